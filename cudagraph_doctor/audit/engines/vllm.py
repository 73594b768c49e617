"""vLLM: sizes in tokens; full graphs for uniform decode batches, piecewise ones for the rest; times adapter counts."""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_doctor.audit.engines.rule import Asked, Rule, choose, steps
from cudagraph_doctor.audit.fields import Fields, tidy
from cudagraph_doctor.audit.keys import Configuration, KeySet, Unit
from cudagraph_doctor.errors import UsageError

NAME = "vllm"
MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_CEILING = 512
_IGNORED = (
    *("cudagraph_num_of_warmups", "cudagraph_copy_inputs", "use_cudagraph", "full_cuda_graph", "cudagraph_mm_encoder"),
    *("compile_mm_encoder", "use_inductor_graph_partition", "enable_flashinfer_autotune"),
)


@dataclass(frozen=True, slots=True)
class _Asked:
    requests: int
    """`max_num_seqs`."""
    width: int
    """Tokens of a request in a uniform decode step."""
    largest: int | None
    """`max_cudagraph_capture_size`, where it is given."""
    batched: int | None
    """`max_num_batched_tokens`, where it is given."""

    @property
    def limit(self) -> int:
        """The size up to which the grid goes."""
        limit = min(self.requests * self.width * 2, _CEILING) if self.largest is None else self.largest
        return limit if self.batched is None else min(limit, self.batched)


def _grid(asked: _Asked) -> tuple[int, ...]:
    return steps((1, 3, 1), (4, 5, 1), (8, 256, 8), (256, 1 << 30, 16), most=asked.limit)


def _with_uniform(asked: _Asked) -> tuple[int, ...]:
    """The grid, and with drafts the same grid of requests, where no largest size is given."""
    found = set(_grid(asked))
    if asked.batched is not None and asked.batched <= asked.limit:
        found.add(asked.batched)
    if asked.width > 1 and asked.largest is None:
        most = min(asked.requests, _CEILING)
        counts = {*steps((1, 3, 1), (4, 5, 1), (8, 256, 8), (256, 1 << 30, 16), most=most), most}
        found |= {n * asked.width for n in counts if n * asked.width <= asked.limit}
    return tuple(sorted(found))


def _with_limit(asked: _Asked) -> tuple[int, ...]:
    """As before, and without drafts the most requests."""
    fits = asked.width == 1 and asked.largest is None and asked.requests <= asked.limit
    return tuple(sorted({*_with_uniform(asked), *((asked.requests,) if fits else ())}))


RULES = (
    Rule(
        "vllm-30330",
        "pull request 30330 (December 2025)",
        "https://github.com/vllm-project/vllm/pull/30330",
        _grid,
    ),
    Rule(
        "vllm-50488",
        "pull request 50488 (August 2026): whole requests of speculative decoding are keys",
        "https://github.com/vllm-project/vllm/pull/50488",
        _with_uniform,
    ),
    Rule(
        "vllm-57355",
        "pull request 57355 (September 2026): the most requests are a key",
        "https://github.com/vllm-project/vllm/pull/57355",
        _with_limit,
    ),
)


def read(fields: Fields, asked: Asked) -> Configuration:
    """The keys. Raises UsageError for a value that is none, or that vLLM refuses as well."""
    compilation = fields.section("compilation_config") or Fields(fields.where, {})
    given = compilation.sizes("cudagraph_capture_sizes") or fields.sizes("cudagraph_capture_sizes")
    largest = compilation.integer("max_cudagraph_capture_size") or fields.integer("max_cudagraph_capture_size")
    mode = (compilation.word("cudagraph_mode") or "FULL_AND_PIECEWISE").upper()
    special = compilation.flag("cudagraph_specialize_lora")
    speculative = fields.section("speculative_config")
    drafts = speculative.integer("num_speculative_tokens") if speculative else None
    limit = fields.integer("max_num_seqs") or asked.max_batch
    batched = fields.integer("max_num_batched_tokens")
    eager = fields.flag("enforce_eager")
    lora, adapters = fields.flag("enable_lora"), fields.integer("max_loras") or 1
    by_count = fields.flag("specialize_active_lora")
    if mode not in MODES:
        raise compilation.error("cudagraph_mode", mode, f"one of {', '.join(MODES)}")
    if limit is None:
        raise UsageError(
            f"{fields.where} does not say max_num_seqs, and vLLM's default depends on the GPU.",
            fix="Add max_num_seqs as the server's log prints it, or give --max-batch.",
        )
    width = 1 + (drafts or 0)
    rule = choose(RULES, asked, NAME)
    if given:
        sizes, untidy = tidy(given)
        if largest is not None and largest != sizes[-1]:
            raise UsageError(
                f"{fields.where}: max_cudagraph_capture_size is {largest}, the largest of cudagraph_capture_sizes is "
                f"{sizes[-1]}: vLLM refuses this.",
                fix="Give one of them.",
            )
        dropped = [size for size in sizes if batched is not None and size > batched]
        if dropped:
            untidy = (*untidy, f"{', '.join(map(str, dropped))}: above max_num_batched_tokens ({batched}), dropped")
            sizes = tuple(size for size in sizes if size not in dropped)
    else:
        sizes, untidy = rule.sizes(_Asked(limit, width, largest, batched)), ()
        if largest is not None and sizes and sizes[-1] < largest:
            untidy = (f"max_cudagraph_capture_size {largest} is no size of the grid: truncated to {sizes[-1]}",)
    full_decode = mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    if full_decode:
        sizes = rounded(sizes, width)
    counts = _adapter_counts(adapters, special is not False, bool(by_count)) if lora else ()
    return Configuration(
        source=fields.where,
        engine=NAME,
        sets=(
            KeySet(
                "verify" if drafts else "decode",
                _full(sizes, mode, limit * width, width),
                limit,
                Unit.TOKENS,
                width,
                full_decode,
                sizes if "PIECEWISE" in mode else (),
                mode == "FULL",
                adapters=counts,
                most_adapters=adapters if lora else 0,
            ),
        ),
        rule="" if given else rule.name,
        rule_assumed=not given and not asked.rule,
        origin="as given" if given else rule.words,
        mixed_uncovered="cudagraph_mode FULL_DECODE_ONLY leaves steps with prefill tokens without a graph"
        if mode == "FULL_DECODE_ONLY"
        else "",
        turned_off="enforce_eager" if eager else "cudagraph_mode" if mode == "NONE" else "",
        untidy=untidy,
        unread=(*fields.rest(_IGNORED), *compilation.rest(_IGNORED)),
        unknown=(
            *(() if given or batched else ("max_num_batched_tokens: taken as larger than every size",)),
            *(("the drafter's own graphs",) if drafts else ()),
        ),
    )


def rounded(sizes: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Sizes as whole requests of `width` tokens: rounded up, and dropped where that is above the largest given."""
    if width == 1 or not sizes:
        return sizes
    up = {-(-size // width) * width for size in sizes}
    return tuple(sorted(size for size in up if size <= sizes[-1]))


def _full(sizes: tuple[int, ...], mode: str, most_tokens: int, width: int) -> tuple[int, ...]:
    if mode == "FULL":
        return sizes
    if mode in ("NONE", "PIECEWISE"):
        return ()
    return tuple(size for size in sizes if width <= size <= most_tokens)


def _adapter_counts(most: int, apart: bool, by_count: bool) -> tuple[int, ...]:
    """Active adapters that each size is captured for: none, and 1, 2, 4, ... or only the most (and one beside them).

    Where graphs with and without adapters are not apart, all batches run in those with adapters: no part of the key.
    """
    if not apart:
        return ()
    counts = [n for n in range(1, most + 2) if n & (n - 1) == 0 or n == most + 1] if by_count else [most + 1]
    return (0, *counts)
