"""SGLang: sizes in requests, one list for decode, or for the draft and verify steps of speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_doctor.audit.engines.rule import Asked, Rule, choose, steps
from cudagraph_doctor.audit.fields import Fields, tidy
from cudagraph_doctor.audit.keys import Configuration, KeySet
from cudagraph_doctor.errors import UsageError

NAME = "sglang"
_NONE = 1 << 30
_IGNORED = ("enable_profile_cuda_graph", "enable_cudagraph_gc", "cuda_graph_bs_prefill", "disable_piecewise_cuda_graph")


@dataclass(frozen=True, slots=True)
class _Asked:
    most: int
    """`cuda_graph_max_bs`."""
    padded: bool
    speculative: bool


def _grid(asked: _Asked) -> tuple[int, ...]:
    if not asked.padded:
        return steps((1, _NONE, 1), most=asked.most)
    if asked.speculative:
        stretches = ((1, 9, 1), (10, 33, 2), (40, 65, 4), (72, 257, 8), (272, _NONE, 16))
        return steps(*stretches, most=asked.most)
    few = ((1, 2, 1), (2, 3, 1), (4, 5, 1), (8, 13, 4))
    return steps(*few, (16, 257, 8), (272, 512, 16), (512, _NONE, 32), most=asked.most)


RULES = (
    Rule(
        "sglang-10372",
        "pull request 10372 (October 2025)",
        "https://github.com/sgl-project/sglang/pull/10372",
        _grid,
    ),
    Rule(
        "sglang-21005",
        "pull request 21005 (March 2026): cuda_graph_max_bs itself is always a key",
        "https://github.com/sgl-project/sglang/pull/21005",
        lambda asked: tuple(sorted({*_grid(asked), asked.most})),
    ),
)


def read(fields: Fields, asked: Asked) -> Configuration:
    """The keys. Raises UsageError where the list would depend on the GPU's memory, or a value is none."""
    given = fields.sizes("cuda_graph_bs", "cuda_graph_bs_decode")
    largest = fields.integer("cuda_graph_max_bs", "cuda_graph_max_bs_decode")
    padded = not fields.flag("disable_cuda_graph_padding")
    off = fields.flag("disable_cuda_graph")
    speculative = fields.word("speculative_algorithm", "speculative_algo")
    draft_tokens = fields.integer("speculative_num_draft_tokens")
    topk = fields.integer("speculative_eagle_topk") or 1
    draft_steps = fields.integer("speculative_num_steps")
    most = fields.integer("max_running_requests") or asked.max_batch
    mixed = fields.flag("enable_mixed_chunk")
    rule = choose(RULES, asked, NAME)
    if given is not None:
        sizes, untidy = tidy(given)
    elif largest is not None:
        sizes, untidy = rule.sizes(_Asked(largest, padded, speculative is not None)), ()
    elif off:
        sizes, untidy = (), ()
    else:
        raise UsageError(
            f"{fields.where}: SGLang chooses the largest graph by the GPU's memory, and the file does not say it.",
            fix="Add cuda_graph_max_bs, or cuda_graph_bs, as the server's log prints them.",
        )
    if most is None:
        raise UsageError(
            f"{fields.where} does not say how many requests run at most: SGLang computes it from the GPU's memory.",
            fix="Add max_running_requests as the server's log prints it, or give --max-batch.",
        )
    captured = _captured(sizes, most)
    return Configuration(
        source=fields.where,
        engine=NAME,
        sets=_sets(captured, most, padded, (topk, draft_tokens, draft_steps) if speculative else None),
        rule="" if given is not None else rule.name,
        rule_assumed=given is None and not asked.rule,
        origin="as given" if given is not None else rule.words,
        mixed_uncovered="enable_mixed_chunk puts prefill tokens into decode steps, which no graph serves"
        if mixed
        else "",
        turned_off="disable_cuda_graph" if off else "",
        untidy=untidy,
        unread=fields.rest(_IGNORED),
        unknown=() if speculative is None or draft_tokens else ("speculative_num_draft_tokens: taken as 1",),
    )


def _captured(sizes: tuple[int, ...], most: int) -> tuple[int, ...]:
    """What is left when the pool of requests is smaller than the list: its size takes the place of the larger ones."""
    if not sizes or sizes[-1] <= most:
        return sizes
    return (*(size for size in sizes if size < most), most)


def _sets(
    sizes: tuple[int, ...], most: int, padded: bool, speculative: tuple[int, int | None, int | None] | None
) -> tuple[KeySet, ...]:
    if speculative is None:
        return (KeySet("decode", sizes, most, padded=padded),)
    topk, draft_tokens, draft_steps = speculative
    widths = {"verify": draft_tokens or 1, "draft": topk, "draft extend": (draft_steps or 0) + 1}
    return tuple(KeySet(name, sizes, most, width=width, padded=padded) for name, width in widths.items())
