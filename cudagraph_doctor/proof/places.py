"""Where in the user's code a bad step's pieces are: the staging, the capture, the launch of an accused node."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, replace
from typing import Any

from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph import origins
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, Origin
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.subject import Planned


@dataclass(frozen=True, slots=True)
class Places:
    """Where in the user's code the pieces are."""

    staging: Location | None = None
    """The code that refreshes the static inputs: it ends in the user's replay, where he replays himself."""
    captured: Location | None = None
    """The line that opened the capture."""
    launched: Origin | None = None
    """Who launched the accused node."""
    step: Location | None = None
    """The step's own code, where the doctor itself captures it."""

    def told(self, line: Location | None, in_staging: bool) -> tuple[Location | None, tuple[Location, ...]]:
        """The line to be mended, and what belongs to it.

        Args:
            line: the one to be mended, where it is known.
            in_staging: whether it may be among those that refresh the inputs: else these are not shown. The user's own
                replay is, which accuses nobody.
        """
        staging = self.staging if in_staging or (self.staging and self.staging.role != "staged") else None
        location = line or (staging if in_staging else None) or self.captured or staging or self.step
        return location, tuple(p for p in (self.captured, staging) if p is not None and p is not location)


def around(target: Any, arms: Arms, at: Planned, launched: Origin | None = None) -> Places:
    """The places of a step."""
    code = definition(getattr(target, "forward", None)) if arms.subject.form == "loop" else None
    step = replace(code, role="captured") if code else None
    return Places(replayed(arms, at) or staging(target), captured(arms, at), launched, step)


def staging(target: Any) -> Location | None:
    """The code that refreshes the graph's inputs: `update` or the runner of a LoopTarget, `step` of an engine."""
    members = (getattr(target, name, None) for name in ("graphed", "update", "step", "forward"))
    return definition(next((member for member in members if member is not None), None))


def definition(function: Any) -> Location | None:
    """Where a function or method is defined; None for what has no Python source."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return None
    try:
        source = inspect.getsourcelines(code)[0]
    except OSError:
        return None
    first = next((line.strip() for line in source if line.strip().startswith("def ")), "")
    return Location(os.path.realpath(code.co_filename), code.co_firstlineno, code.co_qualname, first, "staged")


def captured(arms: Arms, at: Planned) -> Location | None:
    """The user's line that opened the capture of this step's graph; None if the doctor itself captured."""
    held = arms.subject.held(at)
    place = held[0].live.captured_at if held else None
    return replace(place, role="captured") if place else None


def replayed(arms: Arms, at: Planned) -> Location | None:
    """The user's line that replays this step's graph; None if the doctor itself does."""
    held = arms.subject.held(at)
    place = held[0].live.replayed_at if held else None
    return replace(place, role="replayed") if place else None


def launched(arms: Arms, at: Planned, graph: CapturedGraph, node: GraphNode) -> Origin | None:
    """Who launched `node` of `graph`, a graph captured at step `at`'s values; None if it cannot be told.

    Emulated nodes know it. Real ones are looked up in another capture, made under a watching dispatch mode.
    """
    if node.origin is not None or not arms.subject.can_recapture:
        return node.origin
    try:
        arms.rewind()
        traces = arms.backend.trace_origins(lambda: arms.subject.recapture(at), arms.look_around().modules)
        for trace in traces:
            found = origins.attach(graph, trace).nodes[node.index].origin
            if found is not None:
                if found.location is None and trace.no_lines:
                    arms.subject.not_checked.append(f"who launched the accused node: {trace.no_lines}")
                return found
    except DoctorError:
        return None
    finally:
        arms.subject.drop_fresh()
    return None
