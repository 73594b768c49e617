"""One view of both target forms: run step `k` eagerly, by the graph captured earlier, or by a graph captured now.

`arms.py` calls these from saved states; nothing here compares or judges. `loop.py` and `engine.py` implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from cudagraph_doctor.graph.backend import LiveGraph

Outputs = Any


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of the plan."""

    index: int
    """Position in the plan: 0, 1, ..."""
    step: int
    """What `next_inputs` or `step` is asked for."""
    rows: int
    key: Hashable
    """What the graph of this step is looked up by; None if no graph serves it."""
    interlude: str = ""
    """Name of the work that an engine does right before this step, in whichever arm; "" for none."""

    @property
    def in_rows(self) -> str:
        """In words: "1 row", "7 rows after `prefill`"."""
        after = f" after `{self.interlude}`" if self.interlude else ""
        return f"{self.rows} row" + ("s" if self.rows != 1 else "") + after


Replaying = Callable[[Planned | None], None]
"""Told the step before a graph is replayed, and None once the device is done with it."""


_MAX_BYTES = {True: 1 << 16, False: 1 << 22}
"""By "is floating point": tensors above this size are caches or weights, no per-step inputs."""


def is_small(tensor: torch.Tensor) -> bool:
    """Whether the tensor may hold a step's values, by its size."""
    return tensor.layout is torch.strided and 0 < tensor.nbytes <= _MAX_BYTES[tensor.dtype.is_floating_point]


@dataclass(slots=True)
class Held:
    """What a graph's surroundings looked like when it was captured.

    The memory is held: a buffer that the user drops later stays mapped, so that the replay reads old bytes instead of
    somebody else's, and the process lives to name it.
    """

    live: LiveGraph
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """By attribute path (or input path)."""
    inputs: frozenset[str] = frozenset()
    """Those of `tensors` that are static inputs."""
    aliases: dict[str, torch.Tensor] = field(default_factory=dict)
    """Further paths that led to them: each may lead elsewhere later, on its own."""
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    """Where paths led to when the capture began, if that was elsewhere: the step has bound them anew, and may have read
    what was there before."""
    small: dict[str, torch.Tensor] = field(init=False)
    """Those of `tensors` that may be a step's values."""
    storages: frozenset[int] = field(init=False)
    """Addresses of the storages of `tensors`. They stay, as the memory is held; asked before each replay."""

    def __post_init__(self) -> None:
        self.small = {name: tensor for name, tensor in self.tensors.items() if is_small(tensor)}
        self.storages = frozenset(tensor.untyped_storage().data_ptr() for tensor in self.tensors.values())

    @property
    def paths(self) -> dict[str, torch.Tensor]:
        """All paths, those of `tensors` first."""
        return {**self.tensors, **self.aliases}


def hold(
    live: LiveGraph,
    tensors: Mapping[str, torch.Tensor],
    inputs: Iterable[str] = (),
    paths: Mapping[str, torch.Tensor] | None = None,
    before: Mapping[str, torch.Tensor] | None = None,
) -> Held:
    """Hold the memory of `tensors`, by their names, and the `paths` that lead there besides (`Walk.paths`).

    `before` is where paths led to when the capture began.

    Held are other objects over the same memory: `tensor.set_` and `tensor.data =` would move the objects themselves.
    """
    with torch.no_grad():
        named = {path: tensor.detach() for path, tensor in tensors.items()}
        others = {path: tensor.detach() for path, tensor in (paths or {}).items() if path not in named}
        every = {**others, **named}
        began = {path: old.detach() for path, old in (before or {}).items() if _elsewhere(old, every.get(path))}
    return Held(live, named, frozenset(inputs), others, began)


def _elsewhere(tensor: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and tensor.data_ptr() != other.data_ptr()


class Subject(Protocol):
    """A target, ready to be run in arms."""

    form: str
    """"loop", "loop with its own runner", "engine"."""
    pipelined: bool
    generators: tuple[torch.Generator, ...]
    untouchable: tuple[torch.Tensor, ...]
    """Memory shared with peers: neither written nor restored, and so not compared."""
    to_recapture: str
    """What to do about the target so that there is a fresh arm; "" where there is one."""
    not_checked: list[str]
    """What turned out to be out of reach, in sentences."""

    @property
    def can_recapture(self) -> bool:
        """Whether there is a fresh arm."""

    def plan(self, steps: int, keys: Sequence[int], sizes: Sequence[int], exhaustive: bool) -> list[Planned]:
        """The steps to compare, in an order that finds stale tails (`schedule.py`)."""

    def reset(self) -> None:
        """The target's own reset."""

    def capture_all(self, plan: Sequence[Planned], replaying: Replaying) -> None:
        """Have every graph of the plan captured, at values outside it where the target leaves the choice to us.

        `replaying` is told of what a target's own runner replays meanwhile.
        """

    def eager(self, at: Planned) -> Outputs:
        """The step without graphs. Live rows."""

    def replayed(self, at: Planned) -> Outputs:
        """The step through the graph captured earlier, staged as the runner stages. Live rows."""

    def fresh(self, at: Planned) -> Outputs:
        """The step through a graph that `recapture` made. Live rows."""

    def recapture(self, at: Planned) -> None:
        """Capture this step's graph now; `fresh` uses it until `drop_fresh`. Raises Inconclusive if none comes."""

    def drop_fresh(self) -> None:
        """Forget the fresh graphs."""

    def has_replayed(self, at: Planned) -> bool:
        """Whether `replayed` has launched a graph at this step: a runner may go around its graphs."""

    def held(self, at: Planned, fresh: bool = False) -> list[Held]:
        """The graphs that this step replays, with what they saw at capture (`fresh`: those captured now)."""

    def static_now(self, at: Planned, fresh: bool = False) -> Mapping[str, torch.Tensor]:
        """The static inputs as they are held now, where the doctor holds them; else nothing: `roots` leads there."""

    def truth(self, at: Planned) -> Mapping[str, torch.Tensor]:
        """This step's true input values by path, on the device; empty if the target does not tell (engines)."""

    def host_truth(self, at: Planned) -> Mapping[str, object]:
        """This step's true input values that are no tensors, by path; empty if the target does not tell (engines)."""

    def roots(self) -> Mapping[str, object]:
        """Where to look for names."""

    def named(self) -> Mapping[str, torch.Tensor]:
        """Names given by the target itself."""

    def reserved(self) -> Mapping[str, Iterable[int]]:
        """State rows that padding may write."""
