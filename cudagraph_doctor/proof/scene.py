"""The tensors around a replay, right before its launch: what the graph captured, and where the names lead by then."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from cudagraph_doctor.blame import owner
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.subject import Held, Planned, is_small
from cudagraph_doctor.proof.weights import is_weight
from cudagraph_doctor.walk import Walk, walk


@dataclass(slots=True)
class Scene:
    """The tensors around a replay, right before it was launched."""

    held: list[Held]
    contents: dict[str, torch.Tensor]
    """Copies of what the small captured tensors held."""
    live: dict[str, torch.Tensor]
    """Tensors alive then, by path from the roots or from local variables of the staging code."""
    moved: dict[str, torch.Tensor]
    """Captured paths that lead to other memory by then, with the tensor that they lead to now (a copy)."""
    bound: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    """Paths that the captured step itself had bound anew: where they led to before, and the tensor that they lead to
    now (a copy)."""
    weights: frozenset[str] = frozenset()
    """Those of `moved` and `bound` that belong to weights."""

    @property
    def captured(self) -> dict[str, torch.Tensor]:
        """All captured tensors by name: views of the memory that the graphs read."""
        return {name: tensor for held in self.held for name, tensor in held.tensors.items()}

    @property
    def paths(self) -> dict[str, torch.Tensor]:
        """The same by every path that led there at the capture."""
        return {name: tensor for held in self.held for name, tensor in held.paths.items()}

    @property
    def inputs(self) -> frozenset[str]:
        """Names of the static inputs among them."""
        return frozenset(name for held in self.held for name in held.inputs)


def look(arms: Arms, at: Planned, arm: Arm = Arm.REPLAYED) -> Scene:
    """Run the step once more and look at its tensors right before the (last) replay."""
    scene = Scene([], {}, {}, {})
    with looking(arms, at, scene, arm):
        arms.run(arm, at)
    return scene


def looking(arms: Arms, at: Planned, scene: Scene, arm: Arm = Arm.REPLAYED) -> AbstractContextManager[None]:
    """Inside the block, replays fill in the scene right before they are launched: the last one stays."""
    told = bool(arms.subject.truth(at))

    def seen(_live: LiveGraph) -> None:
        with arms.backend.own_memory(), torch.no_grad():
            scene.held = arms.subject.held(at, fresh=arm is Arm.FRESH)
            around = arms.look_around()
            now = around.tensors
            memory = frozenset[int]().union(*(held.storages for held in scene.held))
            peers = {t.untyped_storage().data_ptr() for t in arms.subject.untouchable}
            scene.contents = {
                n: t.clone()
                for held in scene.held
                for n, t in held.small.items()
                if not _weight(now.get(n)) and not _lies_in(t, peers)
            }
            scene.live = {
                n: t.clone() for n, t in now.items() if not _weight(t) and is_small(t) and not _lies_in(t, memory)
            }
            # what the staging code has at hand: an engine's true values are often locals
            for name, tensor in (walk(_locals()).tensors if not told else {}).items():
                # on the host too: a value that staging forgets may never have come to the device
                if not _weight(tensor) and is_small(tensor) and not _lies_in(tensor, memory):
                    scene.live.setdefault(name, tensor.to(arms.backend.device, copy=True))
            moved = _moved(arms, at, scene.held, around, fresh=arm is Arm.FRESH)
            own = {name for name, tensor in scene.paths.items() if not _lies_in(tensor, peers)} if moved else ()
            scene.moved = {name: tensor.detach().clone() for name, tensor in moved.items() if name in own}
            scene.bound = {
                name: (old, there.detach().clone())
                for name, old, there in _bound_anew(scene.held, around.paths)
                if not _lies_in(old, peers)
            }
            lead = {**{name: there for name, (_, there) in scene.bound.items()}, **moved}
            known = scene.moved.keys() | scene.bound.keys()
            scene.weights = frozenset(name for name in known if is_weight(arms.found, around, name, lead[name]))

    return arms.backend.log.listening(replaying=seen)


def _bound_anew(
    graphs: Sequence[Held], now: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Names that the captured step bound, where they led to before, and where they lead to now, if elsewhere."""
    for held in graphs:
        for name, old in held.before.items():
            if name in now and now[name].data_ptr() != old.data_ptr():
                yield name, old, now[name]


def moved_names(arms: Arms, at: Planned) -> list[str]:
    """Captured paths that lead to other memory by now: the graph reads what they left behind."""
    return list(_moved(arms, at, arms.subject.held(at), arms.look_around(), fresh=False))


def _moved(arms: Arms, at: Planned, graphs: Sequence[Held], around: Walk, fresh: bool) -> dict[str, torch.Tensor]:
    """Captured paths that lead elsewhere by now, with the tensor there. Of paths that moved together, the first."""
    static = arms.subject.static_now(at, fresh)
    now = {**around.paths, **static}
    found: dict[tuple[int, int], str] = {}
    for held in graphs:
        moved = [
            (name, (tensor.data_ptr(), other.data_ptr()))
            for name, tensor in held.paths.items()
            if (other := now.get(name)) is not None and other.data_ptr() != tensor.data_ptr() and other.numel()
        ]
        # names first, paths that only lead there as well behind them
        for name, places in sorted(moved, key=lambda one: one[0] not in around.tensors and one[0] not in static):
            found.setdefault(places, name)
    return {name: now[name] for name in found.values()}


def _locals() -> dict[str, Any]:
    """Local variables of the target's functions that are running, innermost first."""
    found: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if found and module.startswith(__package__ or ""):
            break  # whoever calls the doctor may be the user too
        if owner(module) == "user":
            for name, value in frame.f_locals.items():
                found.setdefault(name, value)
        frame = frame.f_back
    found.pop("self", None)  # a root, or reachable from one
    return found


def _weight(tensor: torch.Tensor | None) -> bool:
    # by the type first: what `isinstance` asks of parameters is Python, and most tensors are one or the other
    if tensor is None or type(tensor) is torch.Tensor:
        return False
    return type(tensor) is torch.nn.Parameter or isinstance(tensor, torch.nn.Parameter)


def _lies_in(tensor: torch.Tensor, memory: AbstractSet[int]) -> bool:
    """Whether it is a view of one of these storages, known by their addresses."""
    return bool(memory) and tensor.untyped_storage().data_ptr() in memory
