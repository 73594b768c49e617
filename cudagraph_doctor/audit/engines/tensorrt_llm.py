"""TensorRT-LLM (PyTorch backend): sizes in requests; without padding only a batch of exactly that size is replayed."""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_doctor.audit.engines.rule import Asked, Rule, choose, steps
from cudagraph_doctor.audit.fields import Fields, tidy
from cudagraph_doctor.audit.keys import Configuration, KeySet
from cudagraph_doctor.errors import UsageError

NAME = "tensorrt-llm"
_EXECUTOR_DEFAULT = 2048
_GRAPH_DEFAULT = 128
_IGNORED = ("torch_compile_config", "encoder_cuda_graph", "multimodal_encoder_cuda_graph_config")


@dataclass(frozen=True, slots=True)
class _Asked:
    most: int
    """`cuda_graph_config.max_batch_size`."""
    padded: bool


def _doubling(asked: _Asked) -> tuple[int, ...]:
    if asked.padded:
        few = steps((1, 3, 1), (4, 5, 1), (8, 129, 8), most=asked.most)
    else:
        few = steps((1, 33, 1), (64, 65, 1), (128, 129, 1), most=asked.most)
    doubled = [2**i for i in range(8, (asked.most - 1).bit_length())]
    return tuple(sorted({*few, *(size for size in doubled if size <= asked.most), asked.most}))


def _by_64(asked: _Asked) -> tuple[int, ...]:
    if not asked.padded:
        return _doubling(asked)
    return tuple(sorted({*steps((1, 3, 1), (4, 5, 1), (8, 129, 8), (192, 1 << 30, 64), most=asked.most), asked.most}))


RULES = (
    Rule(
        "tensorrt-llm-5014",
        "after pull request 5014 (June 2025): powers of two above 128",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/5014",
        _doubling,
    ),
    Rule(
        "tensorrt-llm-12895",
        "pull request 12895 (April 2026): every 64th size above 128 if padding is on",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/12895",
        _by_64,
    ),
)


def read(fields: Fields, asked: Asked) -> Configuration:
    """The keys. Raises UsageError for a value that is none."""
    named = fields.has("cuda_graph_config")
    section = fields.section("cuda_graph_config")
    off = (named and section is None) or fields.flag("use_cuda_graph") is False
    most = fields.integer("max_batch_size") or asked.max_batch
    speculative = fields.section("speculative_config")
    drafts = speculative.integer("max_draft_len", "num_nextn_predict_layers") if speculative else None
    graph = section or Fields(fields.where, {})
    given = graph.sizes("batch_sizes")
    largest = graph.integer("max_batch_size", least=0)
    padded = bool(graph.flag("enable_padding"))
    graph.take("mode")
    graph.rest(strict=True)
    chunked = fields.flag("enable_chunked_prefill")
    rule = choose(RULES, asked, NAME)
    sizes, untidy = tidy(given) if given else (rule.sizes(_Asked(largest or _GRAPH_DEFAULT, padded)), ())
    if given and largest and largest != sizes[-1]:
        raise UsageError(
            f"{graph.where}: max_batch_size is {largest}, the largest of batch_sizes is {sizes[-1]}: TensorRT-LLM "
            "refuses this.",
            fix="Give one of them.",
        )
    admitted = most or _EXECUTOR_DEFAULT
    return Configuration(
        source=fields.where,
        engine=NAME,
        sets=(
            KeySet(
                "verify" if drafts else "decode",
                _captured(sizes, admitted, padded),
                admitted,
                width=1 + (drafts or 0),
                padded=padded,
            ),
        ),
        rule="" if given else rule.name,
        rule_assumed=not given and not asked.rule,
        origin="as given" if given else rule.words,
        mixed_uncovered="enable_chunked_prefill puts prefill tokens into decode steps, which no graph serves"
        if chunked
        else "",
        turned_off="cuda_graph_config" if off else "",
        untidy=untidy,
        unread=fields.rest(_IGNORED),
        unknown=() if most else (f"max_batch_size: the executor's default, {_EXECUTOR_DEFAULT}, is taken",),
    )


def _captured(sizes: tuple[int, ...], most: int, padded: bool) -> tuple[int, ...]:
    """Sizes above the executor's limit are dropped; with padding the limit itself takes their place (since PR 4843)."""
    kept = tuple(size for size in sizes if size <= most)
    return (*kept, most) if padded and len(kept) < len(sizes) and most not in kept else kept
