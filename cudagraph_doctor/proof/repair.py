"""Repair: put the right bytes in, replay, see it heal. The strongest proof, and how causes are told from consequences.

`remedies` lists what could be wrong with a replay, each with a way to mend it for one run; `try_out` runs the step with
some of them applied. Bytes are written between staging and replay, through the log's `replaying` listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

import torch

from cudagraph_doctor.graph.backend import Edit, LiveGraph
from cudagraph_doctor.proof.arms import Arm, Arms, Result
from cudagraph_doctor.proof.compare import same_bits
from cudagraph_doctor.proof.ranges import numbered
from cudagraph_doctor.proof.scene import Scene
from cudagraph_doctor.proof.subject import Planned


class Cause(StrEnum):
    """Why a replay read the wrong thing. What comes behind `OTHER_NODES` only `inputs` suspects."""

    NOT_REFRESHED = "not refreshed"
    PARTLY_REFRESHED = "refreshed in part"
    STALE_TAIL = "stale padding rows"
    PADDING = "padding rows address live state"
    REBOUND = "rebound"
    REUSED = "another allocation at the captured address"
    BAKED = "baked by value"
    LEFT_OUT = "host value that staging leaves out"
    OTHER_NODES = "other nodes"
    WRONG_SLICE = "filled elsewhere than it is read"
    SKIPPED = "skipped when absent"
    PADDING_VALUE = "padding rows hold an unsafe value"
    RANDOM_STATE = "random state put back"
    ATTRIBUTE = "attribute written in capture, read outside"
    UNINITIALISED = "read before it is written"
    OVERWRITTEN = "overwritten by another graph before it is read"


@dataclass(slots=True)
class Remedy:
    """One thing to mend for one run."""

    cause: Cause
    name: str
    """The tensor, by path; or "kernel, parameter i"."""
    kind: str
    """As `Region.kind`, or as `Culprit.kind`."""
    where: str = ""
    """Which part: "rows 0 to 6", "padding rows 3 to 7"."""
    buffer: torch.Tensor | None = None
    """What the graph reads: a view of the captured memory."""
    right: torch.Tensor | None = None
    """What it should hold, same shape."""
    held: torch.Tensor | None = None
    """What it held (a copy)."""
    edits: tuple[tuple[LiveGraph, Edit], ...] = ()
    """Or: parameters to set in instantiated graphs."""
    mend: Callable[[LiveGraph], Callable[[], object]] | None = None
    """Or: done right before a replay; what it returns puts all back once the run is measured."""
    capture: Callable[[bool], None] | None = None
    """Or: captures a graph now, which is run instead; mended, or else as it is, for a control."""
    was: object = None
    expected: object = None
    """Both values, for by-value parameters; tensors speak for themselves."""
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def accused(self) -> str:
        """As `Culprit.kind`: what just has a name somewhere is a buffer to whoever reads it."""
        return "buffer" if self.kind == "root" else self.kind

    @property
    def namesake(self) -> bool:
        """Whether the right value comes from a tensor of the same name, rather than from a guess."""
        return _last(str(self.notes.get("truth", self.name))) == _last(self.name)

    @property
    def bytes(self) -> int:
        """Bytes written by it."""
        if self.buffer is not None:
            return self.buffer.numel() * self.buffer.element_size()
        return sum(len(edit.data) for _, edit in self.edits)


_CAPTURED = (Cause.OTHER_NODES, Cause.ATTRIBUTE, Cause.UNINITIALISED, Cause.OVERWRITTEN, Cause.REUSED)
"""Causes that lie in what was captured, whatever is staged."""


def in_staging(remedy: Remedy) -> bool:
    """Whether what has to be mended may be in the code that refreshes the inputs."""
    return remedy.cause not in _CAPTURED and remedy.kind != "parameter"


@contextmanager
def applied(arms: Arms, remedies: Sequence[Remedy]) -> Iterator[None]:
    """Inside the block every replay reads mended memory and parameters; all is put back after."""
    undo: list[Callable[[], object]] = []

    def mend(live: LiveGraph) -> None:
        # engines capture in inference mode; their buffers may only be written in it
        with arms.backend.own_memory(), torch.inference_mode():
            for remedy in remedies:
                if remedy.mend is not None:
                    undo.append(remedy.mend(live))
                elif remedy.buffer is not None and remedy.right is not None:
                    undo.append(partial(remedy.buffer.copy_, remedy.buffer.clone()))
                    remedy.buffer.copy_(remedy.right)

    edits: dict[LiveGraph, list[Edit]] = {}
    for remedy in remedies:
        for live, edit in remedy.edits:
            edits.setdefault(live, []).append(edit)
    with ExitStack() as stack:
        for live, changes in edits.items():
            stack.enter_context(arms.backend.patched(live, changes))
        stack.enter_context(arms.backend.log.listening(replaying=mend))
        try:
            yield
        finally:
            arms.backend.synchronize()
            with arms.backend.own_memory(), torch.inference_mode():
                for put_back in reversed(undo):
                    put_back()


def try_out(arms: Arms, at: Planned, remedies: Sequence[Remedy], arm: Arm = Arm.REPLAYED) -> Result:
    """The step through the graph captured earlier, with the remedies applied; or through one that they capture."""
    for remedy in remedies:
        if remedy.capture is not None:
            remedy.capture(True)
            arm = Arm.FRESH
    return arms.run(arm, at, around=applied(arms, remedies))


def corner(buffer: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """The leading part of `buffer` that has the shape of `value`; None if it does not fit."""
    if buffer.dim() != value.dim() or not buffer.dim():
        return buffer if buffer.shape == value.shape else None
    if any(a < b for a, b in zip(buffer.shape, value.shape, strict=True)):
        return None
    return buffer[tuple(slice(0, size) for size in value.shape)]


def input_remedies(scene: Scene, truth: Mapping[str, torch.Tensor], at: Planned, known_names: bool) -> list[Remedy]:
    """Write a true value over a captured input that holds another one.

    Args:
        scene: the tensors around the bad replay.
        truth: right values by path.
        at: the step.
        known_names: whether `truth` has the captured names; else each value is tried on each buffer that it fits,
            namesakes first.
    """
    found: list[Remedy] = []
    captured = scene.captured
    for name, content in scene.contents.items():
        for source, value in _matching(name, content, truth, known_names):
            part = corner(content, value)
            if part is None or (part.dtype != value.dtype and part.dtype.is_floating_point):
                continue
            right = value.to(part)
            if same_bits(part, right):
                if _last(source) == _last(name):
                    break  # its namesake's value is in place: nobody else's belongs here
                continue
            buffer = corner(captured[name], value)
            if buffer is None:
                continue
            cause = Cause.REBOUND if name in scene.moved else _how_stale(part, right)
            found.append(
                Remedy(cause, name, "input", _wrong_part(part, right), buffer, right, part, notes={"truth": source})
            )
    return sorted(found, key=lambda remedy: not remedy.namesake)


def _matching(
    name: str, content: torch.Tensor, truth: Mapping[str, torch.Tensor], known_names: bool
) -> Iterable[tuple[str, torch.Tensor]]:
    """Values that may belong into a buffer: its namesake's; without one, any whose numbers the buffer has held.

    A guess must not send a kernel to an address that it never saw: an index out of range ends the process.
    """
    if known_names and name in truth:
        return [(name, truth[name])]
    same = [(n, v) for n, v in truth.items() if _last(n) == _last(name)]
    if same or content.dtype.is_floating_point or not content.numel():
        return same
    low, high = content.min(), content.max()
    return [
        (n, v)
        for n, v in truth.items()
        if v.dtype == content.dtype
        and v.dim() == content.dim()
        and v.numel()
        and bool((v.min() >= low) & (v.max() <= high))
    ]


def _last(path: str) -> str:
    """The attribute's own name: the same thing has it wherever it hangs."""
    return path.rpartition(".")[2]


def _how_stale(content: torch.Tensor, right: torch.Tensor) -> Cause:
    """Whether a whole column was refreshed while others were not."""
    equal = content == right
    if content.dim() >= 2 and content.shape[1] > 1:
        columns = equal.flatten(2).all(-1) if content.dim() > 2 else equal
        whole = columns.all(0)
        if bool(whole.any()) and not bool(whole.all()) and bool(_moves(right).any()):
            return Cause.PARTLY_REFRESHED
    return Cause.NOT_REFRESHED


def _moves(right: torch.Tensor) -> torch.Tensor:
    return right != right.flatten()[0]


def _wrong_part(content: torch.Tensor, right: torch.Tensor) -> str:
    wrong = (content != right) if content.dim() else (content != right).reshape(1)
    rows = (
        wrong.flatten(1).any(1).nonzero().flatten().tolist() if wrong.dim() > 1 else wrong.nonzero().flatten().tolist()
    )
    text = numbered("row", rows)
    if wrong.dim() == 2 and wrong.shape[1] > 1:
        text += f", {numbered('column', wrong.any(0).nonzero().flatten().tolist())}"
    return text


def tail_remedies(scene: Scene, pristine: Mapping[str, torch.Tensor], at: Planned) -> list[Remedy]:
    """Padding rows as a graph captured now has them, over the ones that earlier steps left."""
    found = []
    for name, buffer, content in _with_padding(scene, at):
        right = pristine.get(name)
        if right is None or right.shape != content.shape or same_bits(content[at.rows :], right[at.rows :]):
            continue
        found.append(
            Remedy(
                Cause.STALE_TAIL, name, "input", _padding(at), buffer[at.rows :], right[at.rows :], content[at.rows :]
            )
        )
    return found


def padding_moves(scene: Scene, at: Planned, hit: Iterable[int]) -> list[Remedy]:
    """A live row's value in the padding rows of each integer input that points at the state that was hit.

    These do not heal: if the input is what addresses the state, the damage *moves*. Only values that a live row uses
    are written: an index that means nothing to the kernel may be an illegal access.

    Args:
        scene: the tensors around the bad replay.
        at: the step.
        hit: rows of state that changed although eager leaves them alone.
    """
    found = []
    rows = set(hit)
    for name, buffer, content in _with_padding(scene, at):
        tail = content[at.rows :]
        if content.dtype.is_floating_point or content.dtype is torch.bool or not rows & set(tail.flatten().tolist()):
            continue
        for row in content[: at.rows]:
            if not rows & set(row.flatten().tolist()):
                right = row.expand_as(tail).clone()
                found.append(Remedy(Cause.PADDING, name, "input", _padding(at), buffer[at.rows :], right, tail))
                break
    return found


def transplants(old: Scene, new: Scene, at: Planned) -> list[Remedy]:
    """What the old graph's inputs held, over the new graph's: does the new one turn as bad?

    Each remedy does harm: `right` is the stale content. Used where the old graph is gone.
    """
    captured = new.captured
    found = []
    for name, content in old.contents.items():
        now = new.contents.get(name)
        if now is None or now.shape != content.shape or now.dtype != content.dtype or same_bits(now, content):
            continue
        tail_only = now.dim() and now.shape[0] > at.rows and same_bits(now[: at.rows], content[: at.rows])
        cause = Cause.STALE_TAIL if tail_only else Cause.REBOUND if name in old.moved else Cause.NOT_REFRESHED
        where = _padding(at) if tail_only else _wrong_part(content, now)
        found.append(Remedy(cause, name, "input", where, captured[name], content, now))
    return found


def _with_padding(scene: Scene, at: Planned) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    captured, inputs = scene.captured, scene.inputs
    for name, content in scene.contents.items():
        if (
            content.dim()
            and content.shape[0] > at.rows
            and (name in inputs or not inputs)
            and (content.shape[0] == at.key or not inputs)
        ):
            yield name, captured[name], content


def _padding(at: Planned) -> str:
    return f"padding rows {at.rows} and up"


def moved_remedies(scene: Scene) -> list[Remedy]:
    """What a name belongs to now, written into the memory that the graph captured for it.

    Where the captured step has bound the name itself, that is the memory after it, or the one before.
    """
    captured, inputs = scene.paths, scene.inputs
    both = [(name, captured[name], tensor) for name, tensor in scene.moved.items()]
    found = []
    for name, old, tensor in [*both, *((name, old, tensor) for name, (old, tensor) in scene.bound.items())]:
        buffer = corner(old, tensor)
        if buffer is None or buffer.dtype != tensor.dtype or same_bits(buffer, tensor):
            continue
        kind = "input" if name in inputs else "weight" if name in scene.weights else "root"
        found.append(Remedy(Cause.REBOUND, name, kind, "", buffer, tensor, buffer.clone()))
    return found


def first_healer(remedies: Sequence[Remedy], heals: Callable[[Sequence[Remedy]], bool]) -> list[Remedy]:
    """The one remedy that heals alone; else a smallest set of them that heals together; else nothing."""
    for remedy in remedies:
        if heals([remedy]):
            return [remedy]
    chosen = one_each(remedies)
    return needed(chosen, heals) if len(chosen) > 1 and heals(chosen) else []


def one_each(remedies: Sequence[Remedy]) -> list[Remedy]:
    """The first remedy of each name: later ones of the same buffer are other guesses at the same fault."""
    return list({r.name: r for r in reversed(remedies)}.values())[::-1]


def needed(remedies: Sequence[Remedy], heals: Callable[[Sequence[Remedy]], bool]) -> list[Remedy]:
    """Of remedies that heal together, a smallest set that still does: one after the other is left out."""
    chosen = list(remedies)
    for remedy in remedies:
        fewer = [r for r in chosen if r is not remedy]
        if fewer and heals(fewer):
            chosen = fewer
    return chosen
