"""Copies between pinned host memory and the device that nobody waits for, forced by a slowed device.

The steps are run in a row, waiting after each step, and several times ahead of a device that is slowed down before each
replay. Where only the latter are wrong, copies are mended one buffer at a time (`AtOnce`): what has to be mended for
the steps to be right is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.at_once import AtOnce, Copied
from cudagraph_doctor.proof.free_run import DELAY_MS, TIMES, first_difference, right_by_copies, run_ahead, run_freely
from cudagraph_doctor.proof.subject import Planned

UNTOLD = "copies between host and device that nobody waits for"
_UNNAMED = "pinned memory"
_MOST = 16
"""Buffers that are told apart; with more, all are accused together."""


def handover_findings(arms: Arms, plan: Sequence[Planned], progress: Progress) -> list[Finding]:
    """Run and judge. What could not be judged is added to the subject's `not_checked`.

    Args:
        arms: after `discover_graphs`.
        plan: the steps, in order.
        progress: told what is run.
    """
    subject = arms.subject
    if subject.form == "loop":
        return []  # staged by the doctor, who waits
    if arms.backend.name != "cuda":
        subject.not_checked.append(f"{UNTOLD}: needs a GPU")
        return []

    progress.advance("in a row, each copy at once")
    right = run_freely(arms, plan, around=AtOnce())
    wrong = []
    for number in range(TIMES):
        # each wrong run beside a right one: what differs without cause is no evidence
        if first_difference(run_freely(arms, plan, around=AtOnce()), right) is not None:
            subject.not_checked.append(f"{UNTOLD}: the same steps in a row gave different results twice")
            return []
        progress.advance(f"in a row, device slowed, {number + 1} of {TIMES}")
        at = first_difference(run_ahead(arms, plan), right)
        if at is None:
            return []
        wrong.append(at)
    names = _names(arms)
    every = AtOnce(names=names)
    if not right_by_copies(arms, plan, right, every):
        return []  # another edge is missing than that behind a copy

    def heals(some: Sequence[Copied]) -> bool:
        return first_difference(run_ahead(arms, plan, AtOnce(some, names)), right) is None

    guilty = needed(list(every.mended), heals)
    return [_finding(plan[min(wrong) :], some, every, arms.backend.name) for some in one_fault_each(guilty)]


def _names(arms: Arms) -> Callable[[int], str]:
    """Paths of pinned tensors, by the addresses of their storages."""
    found: dict[int, str] = {}
    for name, tensor in arms.look_around().tensors.items():
        if arms.backend.is_host(tensor) and tensor.is_pinned():
            found.setdefault(tensor.untyped_storage().data_ptr(), name)
    return lambda address: found.get(address, "")


def needed(copies: list[Copied], heals: Callable[[Sequence[Copied]], bool]) -> list[Copied]:
    """Of copies that heal together, a smallest set that still does: one after the other is left out."""
    if len(copies) > _MOST:
        return copies
    for one in list(copies):
        fewer = [copied for copied in copies if copied != one]
        if fewer and heals(fewer):
            copies = fewer
    return copies


def one_fault_each(copies: Sequence[Copied]) -> list[list[Copied]]:
    """Together are buffers of one object that are copied the same way: one line of the user's lets them go too early.

    Those without a name are told apart by their line.
    """
    groups: dict[tuple[bool, object], list[Copied]] = {}
    for copied in copies:
        who = copied.name.rpartition(".")[0] or copied.name or copied.line
        groups.setdefault((copied.to_host, who), []).append(copied)
    return list(groups.values())


def _finding(wrong: Sequence[Planned], copies: Sequence[Copied], mended: AtOnce, backend: str) -> Finding:
    step, first = wrong[0], copies[0]
    names = list(dict.fromkeys(copied.name for copied in copies if copied.name))
    name = (names[0].rpartition(".")[0] if len(names) > 1 else first.name) or _UNNAMED
    code, what = (
        ("CGD312", "read before the copy into it") if first.to_host else ("CGD311", "rewritten before the copy")
    )
    # the host's own reads go unseen, its writes through torch do not
    rewritten = None if first.to_host else mended.written.get(mended.mended[first])
    return Finding(
        code,
        f"`{name}` is {what} has run.",
        Severity.ERROR,
        Proof.CONFIRMED,
        "Wait for an event recorded behind the copy.",
        culprit=Culprit("output" if first.to_host else "input", name, ", ".join(names) if len(names) > 1 else ""),
        location=rewritten or first.line,
        related=(first.line,) if rewritten and first.line and first.line != rewritten else (),
        step=step.step,
        key=str(step.key),
        backend=backend,
        evidence={
            "wrong": f"{TIMES} of {TIMES} runs ahead of a device slowed by {DELAY_MS:g} ms a replay",
            "control": f"0 of {TIMES} runs that waited for each step and copy, one before each of these",
            "seen_at_steps": [at.step for at in wrong],
        },
    )
