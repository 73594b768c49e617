"""Copies between pinned host memory and the device that nobody waits for, forced by a slowed device.

The steps are run in a row, waiting after each step, and several times ahead of a device that is slowed down before each
replay. Where only the latter are wrong, copies are mended one buffer at a time (`AtOnce`): a copy to the device gets a
buffer of its own, which the host cannot rewrite too early; behind a copy to the host, the host waits. What has to be
mended for the steps to be right is at fault. The device is never waited for as a whole, which would mend any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.findings import Culprit, Finding, Location, Proof, Severity
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.callsite import callsite
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.free_run import DELAY_MS, TIMES, Outputs, first_difference, run_freely
from cudagraph_doctor.proof.subject import Planned

UNTOLD = "copies between host and device that nobody waits for"
_UNNAMED = "pinned memory"
_MOST = 16
"""Buffers that are told apart; with more, all are accused together."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A buffer of the host, and which way it is copied."""

    name: str
    """By path; "" for one that nobody keeps, which its line tells from others."""
    to_host: bool
    line: Location | None
    """The user's line that issues the copies."""


class AtOnce(TorchDispatchMode):
    """Has copies between pinned memory and the device come out as if they had run when they were issued.

    Args:
        only: the copies to mend; None: all.
        names: address of a host storage -> its path.
        wait: has the host wait for the stream that it issues to.
    """

    def __init__(
        self,
        only: Sequence[Copied] | None = None,
        names: Callable[[int], str] = lambda _address: "",
        wait: Callable[[], None] = lambda: torch.cuda.current_stream().synchronize(),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.mended: dict[Copied, int] = {}
        """In the order met, with the address of the host's storage."""
        self.written: dict[int, Location] = {}
        """Address of a storage of the host -> the user's line that wrote to it last."""
        self._only = only
        self._names = names
        self._wait = wait

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator; mend it if it is such a copy."""
        kwargs = kwargs or {}
        if func is torch.ops.aten.copy_.default:
            return self._copy(func, args[0].device, args[1], args, kwargs)
        if func is torch.ops.aten._to_copy.default and kwargs.get("device") is not None:
            return self._copy(func, torch.device(kwargs["device"]), args[0], args, kwargs)
        if func._schema.name.endswith("_") and isinstance(args[0], torch.Tensor):
            self._note(args[0])
        return func(*args, **kwargs)

    def _note(self, written: torch.Tensor) -> None:
        line = callsite() if written.device.type == "cpu" else None
        if line is not None:
            self.written[written.untyped_storage().data_ptr()] = line

    def _copy(self, func: Any, to: torch.device, source: torch.Tensor, args: Any, kwargs: dict[str, Any]) -> Any:
        if to.type == source.device.type:
            self._note(args[0])
            return func(*args, **kwargs)
        if to.type == "cpu":
            result = func(*args, **kwargs)
            if self._is_to_be_mended(result, to_host=True):
                self._wait()
            return result
        if not self._is_to_be_mended(source, to_host=False):
            return func(*args, **kwargs)
        own = source.clone().pin_memory()  # torch keeps it until the copy has run
        return func(*(own if arg is source else arg for arg in args), **kwargs)

    def _is_to_be_mended(self, host: torch.Tensor, to_host: bool) -> bool:
        if not host.is_pinned() or torch.cuda.is_current_stream_capturing():
            return False
        address = host.untyped_storage().data_ptr()
        copied = Copied(self._names(address), to_host, callsite())
        if self._only is not None and copied not in self._only:
            return False
        self.mended[copied] = address
        return True


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

    def slow(_live: LiveGraph) -> None:
        arms.backend.delay(DELAY_MS)

    def ahead(mend: AtOnce | None = None) -> list[Outputs]:
        return run_freely(arms, plan, wait=False, listener=slow, around=mend)

    progress.advance("in a row, each copy at once")
    right = run_freely(arms, plan, around=AtOnce())
    wrong = []
    for number in range(TIMES):
        # each wrong run beside a right one: what differs without cause is no evidence
        if first_difference(run_freely(arms, plan, around=AtOnce()), right) is not None:
            subject.not_checked.append(f"{UNTOLD}: the same steps in a row gave different results twice")
            return []
        progress.advance(f"in a row, device slowed, {number + 1} of {TIMES}")
        at = first_difference(ahead(), right)
        if at is None:
            return []
        wrong.append(at)
    names = _names(arms)
    every = AtOnce(names=names)
    for _ in range(2):  # buffers that are allocated for the first time hold the host up, which would mend any order
        if first_difference(ahead(every), right) is not None:
            return []  # another edge is missing than that behind a copy

    def heals(some: Sequence[Copied]) -> bool:
        return first_difference(ahead(AtOnce(some, names)), right) is None

    guilty = needed(list(every.mended), heals)
    step = plan[min(wrong)]
    return [_finding(step, some, every, arms.backend.name) for some in one_fault_each(guilty)]


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


def _finding(step: Planned, copies: Sequence[Copied], mended: AtOnce, backend: str) -> Finding:
    first = copies[0]
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
        },
    )
