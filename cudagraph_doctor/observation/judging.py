"""From what was seen of a target's captures to findings. Plain Python on `model.Observation`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cudagraph_doctor.findings import Culprit, Finding, Location, Proof, Severity
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.fixes import fix_of
from cudagraph_doctor.observation.model import (
    CODES,
    Attempt,
    EmptyGraph,
    FirstUse,
    HostValue,
    Observation,
    Operation,
    Refusal,
    StrayCasts,
)

_RULES = {
    Kind.HOST_READ: ("CGD201", "reads values from the device on the host"),
    Kind.SHAPE_FROM_VALUES: ("CGD202", "has an output whose shape depends on values"),
    Kind.PAGEABLE_COPY: ("CGD203", "copies between pageable host memory and the device"),
    Kind.BLOCKING_COPY: ("CGD203", "copies between host and device and makes the host wait"),
    Kind.SYNCHRONISATION: ("CGD204", "makes the host wait for the device"),
    Kind.QUERY: ("CGD205", "asks the device how far it is"),
    Kind.GENERATOR: ("CGD206", "uses a random generator in a way that the graph cannot repeat"),
    Kind.ALLOCATION: ("CGD207", "allocates or frees memory behind the back of torch's allocator"),
    Kind.PINNED_ALLOCATION: ("CGD207", "allocates or frees page-locked memory"),
    Kind.UNJOINED_FORK: ("CGD208", "forks a stream off the capture, and nothing joins it again"),
    Kind.UNCAPTURED_WORK: ("CGD209", "ties the capture to work outside of it"),
    Kind.NESTED_CAPTURE: ("CGD210", "begins a capture or launches a graph inside the capture"),
    Kind.OTHER_THREAD: ("CGD211", "is called by another thread while the capture is open"),
    Kind.DESTROYED_GRAPH: ("CGD212", "destroys an older graph while the capture is open"),
    Kind.FIRST_USE: ("CGD213", "does something for the first time"),
    Kind.OUTSIDE_CAPTURE: ("CGD214", "goes to a stream that is not captured, so the graph lacks it"),
    Kind.HOST_SOURCE: ("CGD216", "copies from page-locked memory that is gone after the capture"),
    Kind.LIBRARY_CALL: ("CGD218", "is a call of CUDA that a capture forbids"),
    Kind.LEFT_OUT: ("CGD220", "is done by eager steps, and left out when the step is captured"),
    Kind.UNKNOWN: ("CGD219", "is refused, and nothing that was watched says why"),
}
"""Rule, and what the operation does, by class."""

_SPOKEN = {
    "Tensor.__repr__": "print or repr of a tensor",
    "Tensor.__bool__": "bool of a tensor (if, while, and, or)",
    "Tensor.__int__": "int of a tensor",
    "Tensor.__float__": "float of a tensor",
    "Tensor.__index__": "a tensor as an index (range, a slice's bound)",
    "Tensor.__getitem__": "indexing of a tensor",
    "Tensor.__setitem__": "an assignment to elements of a tensor",
    "CUDAGraph.__del__": "the end of an older CUDAGraph",
    "": "an operation",
}

_CALLERS = 4
"""Lines that are shown around a finding's own."""

RULES = tuple(sorted({code for code, _ in _RULES.values()} | {"CGD215", "CGD217", "CGD221"}))
"""The codes that findings can have."""


def judge(seen: Observation, backend: str, values: bool = True) -> list[Finding]:
    """The findings, in the order of execution; what is only suspected last.

    Args:
        seen: what was observed.
        backend: the name of the backend.
        values: whether host values may be shown.
    """
    return [
        *(_refused(refusal, backend) for refusal in seen.refusals),
        *(_first_use(first, backend) for first in seen.first_uses),
        *(_silent(operation, backend) for operation in (*seen.outside, *seen.host_sources, *seen.left_out.harmful)),
        *(_empty(graph, backend) for graph in seen.empty),
        *(_stray_casts(casts, backend) for casts in seen.casts if casts.gone or casts.made_in_capture),
        *(_host_value(value, backend, values) for value in seen.host_values),
        *(_suspected(operation, backend) for operation in seen.suspected),
    ]


def spoken(operation: Operation) -> str:
    """What an operation is called in sentences: its line of code, if it has no name."""
    if not operation.name and operation.location and operation.location.code:
        return f"`{operation.location.code}`"
    return _SPOKEN.get(operation.name, operation.name)


def _refused(refusal: Refusal, backend: str) -> Finding:
    operation = refusal.operation or Operation("", Kind.UNKNOWN, None)
    kind = Kind.OTHER_THREAD if refusal.without_threads else operation.kind
    code, does = _RULES[kind]
    what = spoken(operation)
    message = f"{what} {does}{_circumstances(operation)}: {_error(refusal)}."
    if refusal.without_threads:
        message += ' In mode "thread_local" the same capture goes through.'
    return _finding(code, message, Proof.CONFIRMED, operation, kind, backend, _told(refusal))


def _error(refusal: Refusal) -> str:
    name = CODES.get(refusal.code or 0)
    if name is None:
        return f'refused with "{refusal.message}"'
    call = f"{refusal.api} returns " if refusal.api else ""
    return f"{call}CUDA error {refusal.code} ({name})"


def _circumstances(operation: Operation) -> str:
    parts = [operation.detail] if operation.detail and not operation.thread else []
    if operation.module:
        parts.append(f"in module {operation.module}")
    if operation.thread:
        parts.append(f"in thread {operation.thread}" + (f" ({operation.detail})" if operation.detail else ""))
    if operation.times > 1:
        parts.append(f"{operation.times} times in all captures")
    return "".join(f", {part}" for part in parts)


def _told(refusal: Refusal) -> dict[str, Any]:
    said = {
        "told_by": refusal.told_by.value,
        "first_error": refusal.message,
        "plain_torch_shows": refusal.plain,
        "cuda_error": refusal.code,
        "cuda_call": refusal.api,
        "passes_in_mode_thread_local": refusal.without_threads,
    }
    return {name: value for name, value in said.items() if value not in ("", None)}


def _first_use(first: FirstUse, backend: str) -> Finding:
    operation = first.refusal.operation or Operation("", Kind.UNKNOWN, None)
    if operation.name == first.refusal.api:  # which call of CUDA it was is a detail of the library's
        operation = replace(operation, name="")
    if first.refusal.compiler:
        by = f"by {spoken(operation)}" if operation.name else ""
        operation = replace(operation, name=first.refusal.compiler, detail=by)
    code, does = _RULES[Kind.FIRST_USE]
    runs = len(first.attempts) - 1
    after = "one eager run" if runs == 1 else f"1 to {runs} eager runs"
    message = (
        f"{spoken(operation)} {does} inside the capture{_circumstances(operation)}: {_error(first.refusal)}. "
        f"After {after} of the same body the capture goes through."
    )
    evidence = {**_told(first.refusal), "after_eager_runs": [_in_short(attempt) for attempt in first.attempts]}
    return _finding(code, message, Proof.CONFIRMED, operation, Kind.FIRST_USE, backend, evidence)


def _in_short(attempt: Attempt) -> str:
    if attempt.refusal is not None:
        return attempt.refusal.message
    counted = [nodes for nodes in attempt.nodes if nodes is not None]
    return f"passes, {sum(counted)} nodes in {len(counted)} graphs"


def _silent(operation: Operation, backend: str) -> Finding:
    code, does = _RULES[operation.kind]
    message = f"{spoken(operation)} {does}{_circumstances(operation)}. The capture succeeds without a word."
    return _finding(code, message, Proof.MEASURED, operation, operation.kind, backend, {})


def _empty(graph: EmptyGraph, backend: str) -> Finding:
    why = (
        f"though the step launched {graph.launches} operators: they went to another stream"
        if graph.launches
        else "and the step launched nothing that could be captured"
    )
    return Finding(
        code="CGD215",
        message=f"A capture succeeds and its graph is empty, {why}.",
        severity=Severity.ERROR if graph.launches else Severity.WARNING,
        proof=Proof.MEASURED,
        fix="Issue the step's work to the stream that captures (the current one inside torch.cuda.graph), or leave the "
        "capture out.",
        culprit=Culprit("graph", "empty graph"),
        location=graph.location,
        backend=backend,
    )


def _stray_casts(casts: StrayCasts, backend: str) -> Finding:
    """What was cast in an earlier capture and is alive may be right, if that graph is always replayed before."""
    modules = f"casts of {', '.join(casts.modules)}" if casts.modules else ""
    places = (("capture opened", casts.opened), ("cast first", casts.made))
    return Finding(
        code="CGD221",
        message=_of_stray_casts(casts),
        severity=Severity.ERROR,
        proof=Proof.MEASURED if casts.gone or not casts.captures else Proof.SUSPECTED,
        fix="Enter autocast inside of the captured step only, so that each graph casts for itself, or with "
        "cache_enabled=False around the captures; or keep the weights in the lower precision.",
        culprit=Culprit("operation", "autocast's cache", modules),
        location=casts.read,
        related=tuple(replace(place, role=role) for role, place in places if place),
        backend=backend,
        evidence={"weights": casts.weights, "captures": casts.captures, "modules": list(casts.modules)},
    )


def _of_stray_casts(casts: StrayCasts) -> str:
    copies = f"the lower-precision copies of {casts.weights} weight{'s' if casts.weights > 1 else ''}"
    if not casts.captures:
        return (
            f"Eager code reads {copies} that autocast made while a capture was open, and kept: a capture computes "
            "nothing, and no replay came in between."
        )
    graphs = "A graph reads" if casts.captures == 1 else f"{casts.captures} graphs read"
    when = "in an earlier capture" if casts.made_in_capture else "before the capture"
    fate = (
        "Autocast is left when the target has captured, and their memory is free: replays read what comes there next."
        if casts.gone
        else "Only replays of the graph that was captured then write them."
    )
    return f"{graphs} {copies} that autocast made {when}, and kept. {fate}"


def _host_value(value: HostValue, backend: str, values: bool) -> Finding:
    change = f" ({value.change} in the capture)" if values else ""
    return Finding(
        code="CGD217",
        message=f"`{value.path}` is written by Python inside of the captured step{change} and read outside of it: "
        "eager steps move it, replays do not.",
        severity=Severity.WARNING,
        proof=Proof.MEASURED,
        fix="Write it outside of the captured step, before or after the replay; or keep it in a device tensor that the "
        "step advances.",
        culprit=Culprit("attribute", value.path),
        location=value.written or value.read,
        related=(replace(value.read, role="read outside of the graph"),),
        backend=backend,
    )


def _suspected(operation: Operation, backend: str) -> Finding:
    code, does = _RULES[operation.kind]
    message = (
        f"{spoken(operation)} {does}{_circumstances(operation)}. No capture came as far as this: what is before "
        "it could not be got out of the way."
    )
    return _finding(code, message, Proof.SUSPECTED, operation, operation.kind, backend, {})


def _finding(
    code: str,
    message: str,
    proof: Proof,
    operation: Operation,
    kind: Kind,
    backend: str,
    evidence: dict[str, Any],
) -> Finding:
    about = {"class": kind.value, "operation": operation.name, "module": operation.module, "thread": operation.thread}
    return Finding(
        code=code,
        message=message[0].upper() + message[1:] if operation.name in _SPOKEN else message,
        severity=Severity.ERROR,
        proof=proof,
        fix=fix_of(operation if kind is operation.kind else _as(operation, kind)),
        culprit=Culprit("operation", spoken(operation) or kind.value, _where(operation)),
        location=operation.location,
        related=tuple(_callers(operation)),
        backend=backend,
        evidence={**{name: value for name, value in about.items() if value}, **evidence},
    )


def _as(operation: Operation, kind: Kind) -> Operation:
    return Operation(operation.name, kind, operation.location)


def _where(operation: Operation) -> str:
    return f"in module {operation.module}" if operation.module else ""


def _callers(operation: Operation) -> Iterator[Location]:
    for place in operation.callers[:_CALLERS]:
        yield Location(place.file, place.line, place.function, place.code, role="called from")
