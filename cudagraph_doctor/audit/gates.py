"""What was demanded of the keys, against what the audit found. A demand without a workload or costs is inconclusive."""

from __future__ import annotations

from collections.abc import Iterator

from cudagraph_doctor.audit.judged import Audit, JudgedSet
from cudagraph_doctor.byte_sizes import in_bytes
from cudagraph_doctor.misses.gates import Gate

_WORKLOAD = "Give the traffic: --workload FILE, --from-trace TRACE or --arrivals RATE."
_BYTES = "Give --costs with graph_bytes for each size."


def check(audit: Audit) -> list[Gate]:
    """All demands that were made, each held against the worst set of keys."""
    return list(_gates(audit, [one for judged in audit.judged for one in judged.sets]))


def _gates(audit: Audit, sets: list[JudgedSet]) -> Iterator[Gate]:
    demands = audit.demands
    if demands.min_hit_rate is not None:
        worst = min(sets, key=lambda one: one.traffic.hit_rate)
        rate, wanted = worst.traffic.hit_rate, demands.min_hit_rate
        said = f"the hit rate is {rate:.1%}{_of(worst, sets)}, demanded are {wanted:.1%}"
        yield _held("--min-hit-rate", rate >= wanted, said, audit)
    if demands.max_padding is not None:
        shares = [(one.traffic.padding_share, one) for one in sets if one.traffic.padding_share is not None]
        if not shares:
            yield Gate("--max-padding", None, "no step of the workload is replayed", fix="See the findings.")
        else:
            share, one = max(shares, key=lambda pair: pair[0])
            said = f"padding is {share:.1%} of the rows{_of(one, sets)}, allowed are {demands.max_padding:.1%}"
            yield _held("--max-padding", share <= demands.max_padding, said, audit)
    if demands.max_graph_memory is not None:
        known = [one.memory.total for one in sets if one.memory]
        if len(known) < len(sets):
            yield Gate("--max-graph-memory", None, "the memory of the keys is not known", fix=_BYTES)
        else:
            taken = max(sum(o.memory.total for o in judged.sets if o.memory) for judged in audit.judged)
            said = f"graphs take {in_bytes(taken)}, allowed are {in_bytes(demands.max_graph_memory)}"
            yield Gate("--max-graph-memory", taken <= demands.max_graph_memory, said)


def _held(option: str, met: bool, said: str, audit: Audit) -> Gate:
    if audit.assumed:
        return Gate(option, None, f"there is no workload ({said} if all batches are as often)", fix=_WORKLOAD)
    return Gate(option, met, said)


def _of(one: JudgedSet, sets: list[JudgedSet]) -> str:
    return f" in {one.keys.name} steps" if len({s.keys.name for s in sets}) > 1 else ""
