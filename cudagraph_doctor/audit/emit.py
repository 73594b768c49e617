"""A list of keys as the configuration of an engine: what `--emit` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cudagraph_doctor.audit.judged import JudgedSet
from cudagraph_doctor.audit.keys import KeySet, Unit
from cudagraph_doctor.errors import Inconclusive


def vllm(sets: Sequence[KeySet]) -> str:
    """`cudagraph_capture_sizes` in tokens, of the first set, and of piecewise graphs those for larger, mixed steps."""
    larger = [size for size in sets[0].piecewise if size > sets[0].full[-1]]
    tokens = [_tokens(sets[0], size) for size in (*sets[0].full, *larger)]
    return f"compilation_config:\n  cudagraph_capture_sizes: {tokens}\nmax_num_seqs: {sets[0].most}\n"


def sglang(sets: Sequence[KeySet]) -> str:
    """`cuda-graph-bs` in requests, of the first set."""
    requests = [_requests(sets[0], size) for size in sets[0].full]
    return f"cuda-graph-bs: {requests}\nmax-running-requests: {sets[0].most}\n"


def plain(sets: Sequence[KeySet]) -> str:
    """What `audit` reads itself: one list, or one for each set."""
    if len(sets) == 1:
        return "\n".join(_members(sets[0])) + "\n"
    sections = [f"  {keys.name}:\n" + "\n".join(f"    {line}" for line in _members(keys)) for keys in sets]
    return "sets:\n" + "\n".join(sections) + "\n"


EMITTERS: dict[str, Callable[[Sequence[KeySet]], str]] = {"vllm": vllm, "sglang": sglang, "yaml": plain}
"""What `--emit` takes."""


def better(sets: Sequence[JudgedSet], name: str) -> str:
    """The better lists of an audit, as `name` has them. Raises Inconclusive where there is none."""
    found = [one.better_traffic.keys for one in sets if one.better_traffic]
    if not found:
        raise Inconclusive(
            "There is no better list to write: no batch of the workload can be replayed.",
            fix="Turn graphs and padding on, and give a workload of batches up to the largest.",
        )
    return EMITTERS[name](found)


def _members(keys: KeySet) -> list[str]:
    lines = [f"buckets: {list(keys.full)}", f"max_batch: {keys.most}"]
    if keys.unit is Unit.TOKENS or keys.width > 1:
        lines += [f"unit: {keys.unit.value}", f"tokens_per_request: {keys.width}"]
    return lines


def _tokens(keys: KeySet, size: int) -> int:
    return size if keys.unit is Unit.TOKENS else size * keys.width


def _requests(keys: KeySet, size: int) -> int:
    return size if keys.unit is Unit.REQUESTS else size // keys.width
