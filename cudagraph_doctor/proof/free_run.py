"""The free-running pass: the steps in a row, as in production. For faults that forced steps cannot show.

*Kept outputs*: an output that the caller still reads is overwritten by a later replay. Shown by moving the kept tensor
to memory of its own before that replay: if later outputs change, and towards eager, it was read.

*Ordering*: steps that are right when the host waits after each, and wrong when it runs ahead of a slowed device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

from cudagraph_doctor import tree
from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arms, overlaps
from cudagraph_doctor.proof.at_once import AtOnce
from cudagraph_doctor.proof.binding import kept_at
from cudagraph_doctor.proof.compare import Level, compare, without_values, worst
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.rules import RULES

DELAY_MS = 8.0
"""Device delay before each replay: longer than the host needs for a step's staging."""
TIMES = 5
"""Delayed runs; all have to be wrong."""

Outputs = dict[str, Any]
Listener = Callable[[LiveGraph], None]


def free_run_findings(arms: Arms, plan: Sequence[Planned], progress: Progress, values: bool) -> list[Finding]:
    """Run the plan freely and judge. What could not be judged is added to the subject's `not_checked`.

    Args:
        arms: after `discover_graphs`.
        plan: the steps, in order.
        progress: told what is run.
        values: whether findings may show values.
    """
    subject = arms.subject
    owns_runner = subject.form != "loop"
    if not owns_runner and not subject.pipelined:
        return []
    progress.advance("in a row, waiting after each step")
    first, again = run_freely(arms, plan), run_freely(arms, plan)
    if first_difference(first, again) is not None:
        subject.not_checked.append("kept outputs and ordering: the same steps in a row gave different results twice")
        return []
    findings = _kept_outputs(arms, plan, first, values) if owns_runner else []
    if subject.pipelined:
        findings += _ordering(arms, plan, first, progress)
    return findings


def run_freely(
    arms: Arms,
    plan: Sequence[Planned],
    *,
    graphs: bool = True,
    wait: bool = True,
    listener: Listener | None = None,
    around: AbstractContextManager[Any] | None = None,
) -> list[Outputs]:
    """The steps in a row, from reset; what each put out.

    Args:
        arms: of the subject.
        plan: the steps.
        graphs: whether through their graphs.
        wait: whether the host waits after each.
        listener: called right before each replay.
        around: entered for each step, not for the copies of what it put out.
    """
    subject, backend = arms.subject, arms.backend
    subject.reset()
    backend.synchronize()
    results = []
    with ExitStack() as stack:
        if listener:
            stack.enter_context(backend.log.listening(replaying=listener))
        for at in plan:
            with around or nullcontext():
                outputs = subject.replayed(at) if graphs else subject.eager(at)
            with backend.own_memory():
                results.append(tree.copies(outputs))
            del outputs
            if wait:
                backend.synchronize()
        backend.synchronize()
    return results


def first_difference(a: Sequence[Outputs], b: Sequence[Outputs]) -> int | None:
    """Position of the first step whose outputs differ."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if compare(x, y)), None)


def _kept_outputs(arms: Arms, plan: Sequence[Planned], first: list[Outputs], values: bool) -> list[Finding]:
    arms.subject.reset()
    own = arms.look_around().tensors  # what the runner itself has hold of: no step put it there
    ids = {id(tensor) for tensor in own.values()}
    kept: dict[str, None] = {}  # in the order met

    def moved_away(only: str = "") -> list[Outputs]:
        """The steps in a row, with what is kept moved to other memory before each replay."""

        def move(live: LiveGraph) -> None:
            pool = [(b.address, b.address + b.bytes) for b in arms.backend.blocks() if b.pool and b.pool == live.pool]
            for name, tensor in arms.look_around().tensors.items():
                address = tensor.untyped_storage().data_ptr()
                in_pool = any(a <= address < b for a, b in pool)
                if own.get(name) is tensor or not (in_pool or any(overlaps(tensor, e) for e in arms.found.touched)):
                    continue
                if id(tensor) in ids:  # the runner needs this very object to find its output
                    _not_tried(arms, name)
                elif only in ("", name):
                    kept[name] = None
                    with arms.backend.own_memory(), torch.inference_mode(tensor.is_inference()):
                        tensor.data = tensor.detach().clone()

        return run_freely(arms, plan, listener=move)

    moved = moved_away()
    at = first_difference(moved, first)
    if not kept or at is None:
        return []
    eager = run_freely(arms, plan, graphs=False)

    def heals(some: list[Outputs]) -> bool:
        # moving it may change the run, but not for the better: nothing is shown then
        index = first_difference(some, first)
        return index is not None and _distance(some[index], eager[index]) < _distance(first[index], eager[index])

    if not heals(moved):
        return []
    names = list(kept)
    name = next((name for name in names if len(names) > 1 and heals(moved_away(only=name))), names[0])
    step = plan[at]
    differences = compare(first[at], moved[at])
    difference = "; ".join(str(d) for d in (differences if values else without_values(differences)))
    return [
        Finding(
            "CGD104",
            f"`{name}` is an output of a graph, still in use when a later replay overwrites it: {difference} at step "
            f"{step.step} ({step.in_rows}). Healed by giving `{name}` memory of its own before that replay.",
            RULES["CGD104"].severity,
            Proof.CONFIRMED,
            f"Clone what is kept over a replay (`{name.rpartition('.')[2]} = output.clone()`).",
            culprit=Culprit("output", name),
            location=kept_at(arms, name, lambda: run_freely(arms, plan[: at + 1])),
            step=step.step,
            key=str(step.key),
            backend=arms.backend.name,
            evidence={
                "kept": names,
                "healed_by": f"cloning `{name}` before each replay",
                "control": "the same steps in a row, twice: bit for bit equal",
            },
        )
    ]


def _not_tried(arms: Arms, name: str) -> None:
    sentence = f"kept outputs: `{name}` is the runner's own output tensor; whether a later step reads it was not tried"
    if sentence not in arms.subject.not_checked:
        arms.subject.not_checked.append(sentence)


def _distance(a: Outputs, b: Outputs) -> tuple[int, float, int]:
    differences = compare(a, b)
    return (
        list(Level).index(worst(differences)),
        max((d.relative for d in differences if not d.integral), default=0.0),
        sum(d.count for d in differences),
    )


def _ordering(arms: Arms, plan: Sequence[Planned], first: list[Outputs], progress: Progress) -> list[Finding]:
    if arms.backend.name != "cuda":
        arms.subject.not_checked.append("ordering between overlapping steps: needs a GPU")
        return []
    waiting: list[dict[str, torch.Tensor]] = []
    run_freely(arms, plan, listener=_watcher(arms, plan, waiting, delay=False))
    wrong_at = []
    delayed: list[dict[str, torch.Tensor]] = []  # of the first delayed run: later ones start from its wrong outputs
    for number in range(TIMES):
        if number and first_difference(run_freely(arms, plan), first) is not None:
            arms.subject.not_checked.append("ordering: the same steps in a row gave different results twice")
            return []
        progress.advance(f"in a row, device slowed, {number + 1} of {TIMES}")
        seen = delayed if number == 0 else []
        results = run_freely(arms, plan, wait=False, listener=_watcher(arms, plan, seen, delay=True))
        at = first_difference(results, first)
        if at is None:
            return []
        wrong_at.append(at)
    if right_by_copies(arms, plan, first, AtOnce()):
        return [_copies_too_late(arms, plan[min(wrong_at) :])]
    # the first replay that read something else names the input; what differs later may follow from its output
    late = ([n for n in a if n in b and not torch.equal(a[n], b[n])] for a, b in zip(waiting, delayed, strict=False))
    names = next((some for some in late if some), [])
    name = names[0] if names else ""
    step = plan[min(wrong_at)]
    detail = "written for a later step while a replay still reads it" if name else ""
    culprit = Culprit("step order", name or "step order", detail)
    told = f"`{name}` was rewritten while a replay still had to read it" if name else "an ordering edge is missing"
    return [
        Finding(
            "CGD105",
            f"The steps are right when the host waits after each, and wrong from step {step.step} on when it runs "
            f"ahead of a device slowed by {DELAY_MS:g} ms a replay: {told}.",
            Severity.ERROR,
            Proof.CONFIRMED,
            "Let the stream that stages wait for an event recorded after the replay that reads the buffer (the reverse "
            "edge of a double buffer).",
            culprit=culprit,
            step=step.step,
            key=str(step.key),
            backend=arms.backend.name,
            evidence={
                "wrong": f"{TIMES} of {TIMES} delayed runs",
                "control": f"0 of {TIMES} runs that waited after each step, one before each of these",
                "inputs_read_too_late": names[:8],
            },
        )
    ]


def run_ahead(arms: Arms, plan: Sequence[Planned], mend: AtOnce | None = None) -> list[Outputs]:
    """The steps in a row, the host ahead of a device that is slowed down before each replay; with copies mended."""

    def slow(_live: LiveGraph) -> None:
        arms.backend.delay(DELAY_MS)

    return run_freely(arms, plan, wait=False, listener=slow, around=mend)


def right_by_copies(arms: Arms, plan: Sequence[Planned], right: list[Outputs], mend: AtOnce) -> bool:
    """Whether the steps are right ahead of a slowed device once copies of pinned memory come out at once."""
    # twice: buffers that are allocated for the first time hold the host up, which would mend any order
    return all(first_difference(run_ahead(arms, plan, mend), right) is None for _ in range(2))


def _copies_too_late(arms: Arms, wrong: Sequence[Planned]) -> Finding:
    step = wrong[0]
    return Finding(
        "CGD105",
        f"The steps are right when the host waits after each, and wrong from step {step.step} on when it runs ahead of "
        f"a device slowed by {DELAY_MS:g} ms a replay: a copy between pinned memory and the device runs later than the "
        "host takes for granted. They are right once all such copies come out at once.",
        Severity.ERROR,
        Proof.CONFIRMED,
        "Wait for an event recorded behind the copy before the host touches the buffer again; `inputs` tells which.",
        step=step.step,
        key=str(step.key),
        backend=arms.backend.name,
        evidence={
            "wrong": f"{TIMES} of {TIMES} delayed runs",
            "control": f"0 of {TIMES} runs that waited after each step, one before each of these",
            "healed_by": "giving each copy out of pinned memory a buffer of its own, and waiting behind each into it",
            "seen_at_steps": [at.step for at in wrong],
        },
    )


def _watcher(arms: Arms, plan: Sequence[Planned], seen: list[dict[str, torch.Tensor]], delay: bool) -> Listener:
    """Before each replay: slow the device down, and copy, in stream order, the inputs that it is about to read."""

    def before_replay(live: LiveGraph) -> None:
        if delay:
            arms.backend.delay(DELAY_MS)
        held = next((h for at in plan for h in arms.subject.held(at) if h.live is live), None)
        if held is not None:
            with arms.backend.own_memory():
                seen.append({n: t.clone() for n, t in held.small.items() if not t.dtype.is_floating_point})

    return before_replay
