"""An audit in numbers, as plain JSON, and its one sentence."""

from __future__ import annotations

from typing import Any

from cudagraph_doctor.audit import memory
from cudagraph_doctor.audit.coverage import Kind
from cudagraph_doctor.audit.judged import Audit, Judged, JudgedSet
from cudagraph_doctor.audit.keys import spans
from cudagraph_doctor.audit.traffic import Traffic


def summarize(audit: Audit) -> dict[str, Any]:
    """All numbers."""
    return {
        "sentence": sentence(audit),
        "workload": {
            "origin": audit.workload.origin,
            "assumed": audit.assumed,
            "unit": audit.workload.unit.value,
            "steps": audit.workload.total,
            "sizes": len(audit.workload.steps),
        },
        "costs": {"origin": audit.costs.origin, "measured": audit.costs.measured},
        "configurations": [_configuration(judged, audit) for judged in audit.judged],
        "simulation": _simulation(audit),
    }


def sentence(audit: Audit) -> str:
    """What the keys do to the traffic, in one sentence."""
    said = []
    for judged in audit.judged:
        if judged.configuration.turned_off:
            said.append(f"Graphs are turned off ({judged.configuration.turned_off}): every step runs eager.")
            continue
        for one in judged.sets:
            name = f"{one.keys.name}: " if len(judged.sets) > 1 else ""
            rank = f"Rank {judged.rank}: " if len(audit.judged) > 1 else ""
            said.append(rank + name + _coverage(one) + _under(one.traffic, audit))
    return " ".join(said)


def _coverage(one: JudgedSet) -> str:
    missing = sorted({n for gap in one.gaps if gap.kind is not Kind.PIECEWISE for n in gap.requests})
    partly = sorted({n for gap in one.gaps if gap.kind is Kind.PIECEWISE for n in gap.requests})
    if missing:
        verb = "has" if len(missing) == 1 else "have"
        return f"{len(missing)} of {one.keys.most} batch sizes {verb} no graph ({spans(missing)} requests)"
    if partly:
        return f"{len(partly)} of {one.keys.most} batch sizes run piecewise only ({spans(partly)} requests)"
    return f"Every batch of up to {one.keys.most} requests has a graph"


def _under(traffic: Traffic, audit: Audit) -> str:
    if audit.assumed:
        return "."
    padding = f", {traffic.padding_share:.1%} of the replayed rows are padding" if traffic.padding_share else ""
    return f"; under the workload {traffic.hit_rate:.1%} of the steps hit{padding}."


def _configuration(judged: Judged, audit: Audit) -> dict[str, Any]:
    configuration = judged.configuration
    return {
        "source": configuration.source,
        "rank": judged.rank,
        "engine": configuration.engine,
        "rule": configuration.rule,
        "rule_assumed": configuration.rule_assumed,
        "origin": configuration.origin,
        "turned_off": configuration.turned_off,
        "sets": [_set(one, audit) for one in judged.sets],
    }


def _set(one: JudgedSet, audit: Audit) -> dict[str, Any]:
    keys, traffic = one.keys, one.traffic
    return {
        "name": keys.name,
        "unit": keys.unit.value,
        "tokens_per_request": keys.width,
        "max_requests": keys.most,
        "padded": keys.padded,
        "graphs": keys.graphs,
        "full": list(keys.full),
        "piecewise": list(keys.piecewise),
        "adapters": list(keys.adapters),
        "uncovered": {gap.kind.value: spans(gap.requests) for gap in one.gaps},
        "traffic": _traffic(traffic),
        "table": [_key(key, one, audit) for key in keys.full],
        "memory": _memory(one, audit),
        "capture_ms": _capture_ms(keys.full, audit, memory.copies(keys)),
        "better": _better(one, audit),
        "curve": [{"graphs": len(b.keys), "ms": _round(b.cost_ms)} for b in one.curve],
    }


def _traffic(traffic: Traffic) -> dict[str, Any]:
    ms = traffic.ms
    return {
        "hit_rate": round(traffic.hit_rate, 6),
        "eager_share": round(traffic.eager_share, 6),
        "piecewise_share": round(traffic.share(lambda m: m.served.key is not None and not m.hit), 6),
        "padding_share": None if traffic.padding_share is None else round(traffic.padding_share, 6),
        "ms": _round(ms),
        "padding_share_of_time": round(traffic.padding_ms / ms, 6) if ms else None,
        "eager_share_of_time": round(traffic.eager_ms / ms, 6) if ms else None,
        "eager_extra_share_of_time": round(traffic.eager_extra_ms / ms, 6) if ms else None,
    }


def _key(key: int, one: JudgedSet, audit: Audit) -> dict[str, Any]:
    met = [m for m in one.traffic.met if m.hit and m.served.key == key]
    rows = sum(m.steps * key for m in met)
    return {
        "key": key,
        "serves": spans(m.size for m in met),
        "share": round(sum(m.steps for m in met) / one.traffic.steps, 6) if one.traffic.steps else 0.0,
        "padding_share": round(sum(m.steps * m.padding for m in met) / rows, 6) if rows else None,
        "replay_ms": _round(audit.costs.replay(key).at(key)),
        "eager_ms": _round(audit.costs.eager_ms(key)),
        "graph_bytes": audit.costs.graph_bytes(key),
    }


def _memory(one: JudgedSet, audit: Audit) -> dict[str, Any] | None:
    if one.memory is None:
        return None
    per_token = getattr(audit.costs, "kv_bytes_per_token", None)
    return {
        "graph_bytes": one.memory.graphs,
        "one_pool_bytes": one.memory.one_pool,
        "own_pools_bytes": one.memory.own_pools,
        "total_bytes": one.memory.total,
        "kv_tokens": one.memory.total // per_token if per_token else None,
    }


def _better(one: JudgedSet, audit: Audit) -> dict[str, Any] | None:
    if one.better is None or one.better_traffic is None:
        return None
    new, old = one.better_traffic, one.traffic
    taken = memory.of(one.better.keys, audit.costs, memory.copies(one.keys))
    return {
        "keys": list(one.better.keys),
        "exact": one.better.exact,
        "saved": round(1 - new.ms / old.ms, 6) if old.ms else None,
        "total_bytes": taken.total if taken else None,
        "traffic": _traffic(new),
    }


def _capture_ms(sizes: tuple[int, ...], audit: Audit, copies: int) -> float | None:
    each = [audit.costs.capture_ms(size) for size in sizes]
    known = [ms for ms in each if ms is not None]
    return _round(copies * sum(known)) if known and len(known) == len(each) else None


def _simulation(audit: Audit) -> dict[str, Any] | None:
    found = audit.comparison
    if found is None:
        return None
    runs = {"listed": found.listed, "every_size": found.every_size}
    return {"whole": found.whole, "never_recovers": found.never_recovers} | {
        name: {
            "batches": list(run.batches),
            "waiting": run.waiting,
            "late_missed": round(run.late_missed, 4),
            "late_batch": round(run.late_batch, 1),
            "steps": sum(run.steps.values()),
            "seconds": round(run.seconds, 1),
        }
        for name, run in runs.items()
    }


def _round(number: float) -> float:
    return float(f"{number:.6g}")
