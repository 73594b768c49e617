"""What was judged -> findings: one for each rule, set of keys and configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cudagraph_doctor.audit.coverage import Gap, Kind
from cudagraph_doctor.audit.judged import Audit, Judged, JudgedSet
from cudagraph_doctor.audit.keys import KeySet, Mode, Unit, spans
from cudagraph_doctor.byte_sizes import in_bytes
from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.misses.gates import Gate

GATE, ADAPTERS, MIXED, IDLE, RANKS = "CGD500", "CGD504", "CGD505", "CGD507", "CGD508"
STUCK, CHEAPER, UNTIDY, OFF = "CGD509", "CGD510", "CGD511", "CGD512"
CODES = {Kind.ABOVE: "CGD501", Kind.INSIDE: "CGD502", Kind.SPECULATIVE: "CGD503", Kind.PIECEWISE: "CGD506"}
RULES = tuple(sorted({GATE, ADAPTERS, MIXED, IDLE, RANKS, STUCK, CHEAPER, UNTIDY, OFF, *CODES.values()}))
"""All codes that `audit` can emit."""
WORTH = 0.01
"""Share of the time that a better list has to save to be spoken of."""


def findings(audit: Audit, gates: list[Gate]) -> list[Finding]:
    """All findings, gates first."""
    found = [_gate(gate) for gate in gates if gate.met is False]
    for judged in audit.judged:
        found += _of_configuration(judged)
        for one in judged.sets:
            found += _of_set(one, judged, audit)
    found += _ranks(audit)
    found += _stuck(audit)
    return found


def _of_configuration(judged: Judged) -> Iterator[Finding]:
    configuration = judged.configuration
    if configuration.turned_off:
        yield Finding(
            OFF,
            f"Graphs are turned off by {configuration.turned_off}: every decode step runs eager.",
            Severity.WARNING,
            Proof.MEASURED,
            f"Take {configuration.turned_off} out of {configuration.source}, unless eager steps are meant.",
            Culprit("bucket", configuration.turned_off),
            rank=judged.rank,
        )
    elif configuration.mixed_uncovered:
        yield Finding(
            MIXED,
            f"Decode rows run eager whenever prefill tokens are in their step: {configuration.mixed_uncovered}.",
            Severity.WARNING,
            Proof.MEASURED,
            "Schedule prefill apart from decode, or use a mode with piecewise graphs for mixed steps.",
            Culprit("bucket", "steps that mix prefill and decode"),
            rank=judged.rank,
        )
    if configuration.untidy:
        yield Finding(
            UNTIDY,
            f"The list of keys in {configuration.source} is not what is captured: {'; '.join(configuration.untidy)}.",
            Severity.NOTE,
            Proof.MEASURED,
            "Write the list as it is captured: ascending, each size once, none that is dropped.",
            Culprit("bucket", "the list as it is written"),
            rank=judged.rank,
        )


def _of_set(one: JudgedSet, judged: Judged, audit: Audit) -> Iterator[Finding]:
    for gap in one.gaps:
        yield _gap(gap, one, judged, audit)
    if one.without_adapters:
        most = one.keys.most_adapters
        yield Finding(
            ADAPTERS,
            f"No graph of the {one.keys.name} steps is captured for {spans(one.without_adapters)} active adapters (of "
            f"up to {most}; captured are {_list(one.keys.adapters)}): such batches run eager.",
            Severity.ERROR,
            Proof.MEASURED,
            f"Capture for {most} active adapters" + (", and for none." if 0 in one.without_adapters else "."),
            Culprit("bucket", f"{one.keys.name}: numbers of adapters", spans(one.without_adapters)),
            rank=judged.rank,
            evidence={"adapters": list(one.without_adapters), "captured": list(one.keys.adapters)},
        )
    yield from _idle(one, judged, audit)
    yield from _cheaper(one, judged, audit)


def _gap(gap: Gap, one: JudgedSet, judged: Judged, audit: Audit) -> Finding:
    keys = gap.keys
    sizes = set(gap.sizes)
    share = one.traffic.share(lambda met: met.size in sizes and not met.hit)
    given = not audit.assumed
    fails = Mode.FAILS in gap.modes
    if gap.kind is Kind.PIECEWISE:
        severity = Severity.WARNING
    elif given and not share and not fails:
        severity = Severity.WARNING  # the traffic that was given does not reach it
    else:
        severity = Severity.ERROR
    doubt = judged.configuration.rule_assumed and gap.kind in one.doubtful
    worst = gap.requests[-1]
    eager = audit.costs.eager_ms(keys.size(worst))
    replay = audit.costs.replay(keys.size(worst)).at(keys.size(worst))
    evidence: dict[str, Any] = {
        "requests": spans(gap.requests),
        "count": len(gap.requests),
        "keys": list(keys.full),
        "unit": keys.unit.value,
        "rule": judged.configuration.origin,
        "costs": audit.costs.origin,
        "eager_ms": round(eager, 4),
        "replay_ms": round(replay, 4),
    }
    if given:
        evidence["share_of_steps"] = round(share, 6)
    return Finding(
        CODES[gap.kind],
        _gap_message(gap, share if given else None) + (_doubt(judged) if doubt else ""),
        severity,
        Proof.SUSPECTED if doubt else Proof.MEASURED,
        _gap_fix(gap),
        Culprit("bucket", f"{keys.name}: {gap.kind.value}", _requests(gap.requests, keys)),
        key=str(keys.full[-1]) if gap.kind is Kind.ABOVE and keys.full else "",
        rank=judged.rank,
        evidence=evidence,
    )


def _gap_message(gap: Gap, share: float | None) -> str:
    keys = gap.keys
    what = _requests(gap.requests, keys)
    how = {
        Mode.EAGER: "run eager",
        Mode.FAILS: "make the runner raise, for it looks up a graph that is not there",
        Mode.PIECEWISE: "run piecewise, though smaller ones have full graphs",
    }
    done = " or ".join(how[mode] for mode in gap.modes)
    captured = _list(keys.full) if keys.full else "none"
    none = "No full graph serves" if gap.kind is Kind.PIECEWISE else "No key serves"
    text = f"{none} {what} of up to {keys.most} ({keys.name} keys: {captured}): they {done}"
    return text + (f", {share:.1%} of the workload's steps." if share is not None else ".")


def _gap_fix(gap: Gap) -> str:
    keys, top = gap.keys, gap.requests[-1]
    size, unit = keys.size(top), keys.unit.value
    if gap.kind is Kind.ABOVE or gap.kind is Kind.PIECEWISE:
        held = [n for n in range(1, keys.most + 1) if n < gap.requests[0]]
        admit = f", or admit no more than {held[-1]} requests" if held else ""
        return f"Capture a key of {size} {unit}{admit}."
    if gap.kind is Kind.SPECULATIVE:
        return f"Capture multiples of {keys.width} tokens, up to {keys.size(keys.most)} ({keys.most} requests)."
    return "Let the runner pad a batch to the next larger key, or capture a key for each of these sizes."


def _idle(one: JudgedSet, judged: Judged, audit: Audit) -> Iterator[Finding]:
    if one.unreachable:
        taken = sum(audit.costs.graph_bytes(key) or 0 for key in one.unreachable)
        yield Finding(
            IDLE,
            f"No batch of up to {one.keys.most} requests is ever looked up under {_list(one.unreachable)} "
            f"({one.keys.name} keys)" + (f": {in_bytes(taken)} of graphs for nothing." if taken else "."),
            Severity.WARNING,
            Proof.MEASURED if one.sure else Proof.SUSPECTED,
            "Leave them out, or admit more requests.",
            Culprit("bucket", f"{one.keys.name}: keys that nothing reaches", _list(one.unreachable)),
            rank=judged.rank,
            evidence={"keys": list(one.unreachable)},
        )
    used = {met.served.key for met in one.traffic.met}
    unused = [key for key in one.keys.full if key not in used and key not in one.unreachable]
    if unused and not audit.assumed:
        yield Finding(
            IDLE,
            f"{len(unused)} of {len(one.keys.full)} {one.keys.name} keys serve no step of the workload: "
            f"{_list(unused)}.",
            Severity.NOTE,
            Proof.MEASURED,
            "Nothing to do if the workload is only a part of the traffic; else leave them out.",
            Culprit("bucket", f"{one.keys.name}: keys that the workload does not use", _list(unused)),
            rank=judged.rank,
            evidence={"keys": unused},
        )


def _cheaper(one: JudgedSet, judged: Judged, audit: Audit) -> Iterator[Finding]:
    better, new, old = one.better, one.better_traffic, one.traffic
    if better is None or new is None or audit.assumed or not old.ms:
        return
    saved = 1 - new.ms / old.ms
    if saved < WORTH:
        return
    padding = f", padding {new.padding_share:.1%} instead of {old.padding_share:.1%}" if old.padding_share else ""
    yield Finding(
        CHEAPER,
        f"{len(better.keys)} {one.keys.name} keys would take {saved:.1%} less time than these {len(one.keys.full)} "
        f"under the workload{padding}: {_list(better.keys)}.",
        Severity.NOTE,
        Proof.MEASURED if audit.costs.measured else Proof.SUSPECTED,
        "Take this list (--emit writes it as configuration), if the workload is typical.",
        Culprit("bucket", f"{one.keys.name}: the list"),
        rank=judged.rank,
        evidence={"keys": list(better.keys), "saved": round(saved, 4), "costs": audit.costs.origin},
    )


def _ranks(audit: Audit) -> Iterator[Finding]:
    for apart in audit.disagreements:
        said = "; ".join(f"rank {rank} lacks {spans(keys)}" for rank, keys in apart.ranks)
        yield Finding(
            RANKS,
            f"Ranks capture other {apart.name} keys: {said}. One replays what another runs eager or pads otherwise; "
            "where steps hold collectives, they wait for each other.",
            Severity.ERROR,
            Proof.MEASURED,
            "Give all ranks the same list, and let them agree on the key of each step.",
            Culprit("bucket", f"{apart.name}: keys that not all ranks have"),
            rank=apart.ranks[0][0],
            evidence={f"rank {rank}": list(keys) for rank, keys in apart.ranks},
        )


def _stuck(audit: Audit) -> Iterator[Finding]:
    found = audit.comparison
    if found is None or not found.never_recovers:
        return
    keys = audit.judged[0].sets[0].keys
    yield Finding(
        STUCK,
        f"The load never recovers: at the end {found.listed.late_missed:.0%} of the steps have no graph, at "
        f"{found.listed.late_batch:.0f} requests and {found.listed.waiting} waiting; with a graph for every size the "
        f"same arrivals run at {found.every_size.late_batch:.0f} requests. The slow fallback keeps the batch in it.",
        Severity.ERROR,
        Proof.MEASURED if audit.costs.measured else Proof.SUSPECTED,
        "Capture keys up to the most requests that are admitted, or admit no more than the largest key holds.",
        Culprit("bucket", f"{keys.name}: the fallback above the largest key"),
        evidence={"batches": list(found.listed.batches), "with_every_size": list(found.every_size.batches)},
    )


def _gate(gate: Gate) -> Finding:
    return Finding(
        GATE,
        f"{gate.option} is not met: {gate.message}.",
        Severity.ERROR,
        Proof.MEASURED,
        "See the findings below for what misses and pads, or change the gate.",
        Culprit("gate", gate.option),
    )


def _doubt(judged: Judged) -> str:
    engine, rule = judged.configuration.engine, judged.configuration.rule
    return f" (Other versions of {engine} do not have it; {rule} was assumed: name yours with --rule.)"


def _requests(requests: tuple[int, ...], keys: KeySet) -> str:
    noun = "request" if requests == (1,) else "requests"
    tokens = f" ({spans(keys.size(n) for n in requests)} tokens)" if keys.unit is Unit.TOKENS and keys.width > 1 else ""
    return f"{spans(requests)} {noun}{tokens}"


def _list(sizes: tuple[int, ...] | list[int]) -> str:
    """`1, 2, 4, ..., 496`: short enough to read."""
    said = [str(size) for size in sizes]
    return ", ".join(said if len(said) <= 12 else [*said[:6], "...", *said[-3:]])
