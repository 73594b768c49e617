"""Watches replays: what each region that a graph reads held, and what the graph captured now would have found there.

What is watched is not what is judged: `proof.steps` runs the same steps unobserved. Bytes are copied right before the
launch, through the log's `replaying` listener.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.proof import places
from cudagraph_doctor.proof.arms import Arm, Arms, span
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.reading import read
from cudagraph_doctor.proof.repair import corner
from cudagraph_doctor.proof.scene import Scene, look
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.weights import weight_names
from cudagraph_doctor.replays.freed import Lost, lost
from cudagraph_doctor.replays.model import (
    SMALL_BYTES,
    Content,
    Graph,
    Reader,
    Reading,
    Region,
    Replay,
    Span,
    Write,
)

_NAMED = ("input", "state", "weight", "root")
_PACKED = 1 << 20
"""Bytes: larger tensors come over by themselves, as packing is a copy on the device."""
_WIDEST = 16
"""Bytes of the widest dtype."""


@dataclass(slots=True)
class Watched:
    """What was seen of all replays."""

    graphs: dict[int, Graph] = field(default_factory=dict)
    """By ordinal."""
    regions: dict[tuple[str, int], Region] = field(default_factory=dict)
    """By name and address."""
    replays: list[Replay] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    unnamed: set[int] = field(default_factory=set)
    """Addresses of memory that graphs point at and nobody names."""
    lost: list[Lost] = field(default_factory=list)
    """Memory that graphs read although whoever it belonged to is gone."""
    pointers: int = 0
    """Addresses in parameters."""


class Watcher:
    """Runs each step once more and looks.

    Args:
        arms: after `discover_graphs`.
        target: the user's.
    """

    def __init__(self, arms: Arms, target: object) -> None:
        self.seen = Watched()
        self._arms = arms
        self._weights = weight_names(arms)
        self._staging = places.staging(target)
        self._last: dict[int, Content] = {}
        self._writes: dict[int, int | None] = {}
        self._written: dict[int, Write] = {}
        self._given: set[str] = set()

    def watch(self, plan: Sequence[Planned]) -> Watched:
        """Play the steps in a row, each from the eager state of the one before, and note what each replay reads."""
        arms = self._arms
        for at in plan:
            self._given |= arms.subject.truth(at).keys()
        arms.begin(plan)
        for at in plan:
            self._watch_step(at)
        return self.seen

    def _watch_step(self, at: Planned) -> None:
        self._arms.save()
        eager = self._arms.run(Arm.EAGER, at)
        self._look_at(at)
        self._arms.commit(at, eager)

    def _look_at(self, at: Planned) -> None:
        arms = self._arms
        scene = look(arms, at)
        if not scene.held:
            return
        graphs = read(arms, scene.held, self._weights)
        if any(held.live.ordinal not in self.seen.graphs for held in scene.held):
            self.seen.lost += lost(arms, at, scene.held, graphs)
        for held, graph in zip(scene.held, graphs, strict=True):
            self._note_graph(held.live.ordinal, at, graph, held.live.captured_at, scene)
        number = len(self.seen.replays)
        ordinals = tuple(held.live.ordinal for held in scene.held)
        self.seen.replays.append(Replay(at.index, at.step, at.rows, str(at.key), ordinals))
        expected, captured = self._expected(at), scene.captured
        there = [
            region
            for (name, _), region in self.seen.regions.items()
            if name in scene.contents and captured[name].data_ptr() == region.address
        ]
        with arms.backend.own_memory(), torch.no_grad():
            sources = (scene.contents, expected, scene.moved)
            told = on_host([source.get(region.name) for region in there for source in sources])
        for region, held_now, wanted, live in zip(there, told[::3], told[1::3], told[2::3], strict=True):
            assert held_now is not None
            moved_to = None if live is None else scene.moved[region.name].data_ptr()
            self._note_reading(number, at, region, held_now, wanted, live, moved_to, version(captured[region.name]))

    def _expected(self, at: Planned) -> dict[str, torch.Tensor]:
        """By name: what a graph captured now would read, with the step's true values in their rows.

        Not for engines, whose recapture replaces the graphs that are to be judged.
        """
        arms, subject = self._arms, self._arms.subject
        if isinstance(subject, EngineSubject) or not subject.can_recapture:
            return {}
        try:
            arms.rewind()
            subject.recapture(at)
            found = look(arms, at, Arm.FRESH).contents
        except Inconclusive as reason:
            subject.not_checked.append(str(reason.what))
            return {}
        finally:
            subject.drop_fresh()
        for name, value in arms.truth(at).items():
            whole = found.get(name)
            part = None if whole is None else corner(whole, value)
            if part is not None:
                part.copy_(value)
        return found

    def _note_graph(
        self, ordinal: int, at: Planned, graph: CapturedGraph | None, captured_at: Location | None, scene: Scene
    ) -> None:
        if ordinal in self.seen.graphs:
            return
        nodes = graph.nodes if graph else ()
        not_read = graph.not_read if graph else {"the graph could not be read": 1}
        pool = graph.pool if graph else ""
        self.seen.graphs[ordinal] = Graph(ordinal, str(at.key), captured_at, nodes, pool, dict(not_read))
        readers: dict[str, list[Reader]] = {}
        for node in nodes:
            for param in node.params:
                for pointer in param.pointers:
                    self.seen.pointers += 1
                    if pointer.region.kind in _NAMED:
                        readers.setdefault(pointer.region.name, []).append(
                            Reader(ordinal, node.index, param.index, pointer.region.offset)
                        )
                    elif pointer.region.is_nobodys:
                        self.seen.unnamed.add(pointer.address)
        held = next(one for one in scene.held if one.live.ordinal == ordinal)
        same: dict[tuple[int, torch.Size], list[str]] = {}
        for path, tensor in held.aliases.items():
            same.setdefault((tensor.data_ptr(), tensor.shape), []).append(path)
        for name, some in readers.items():
            tensor = held.tensors[name]
            key = (name, tensor.data_ptr())
            known = self.seen.regions.get(key)
            if known is not None:
                self.seen.regions[key] = replace(known, readers=(*known.readers, *some))
                continue
            aliases = tuple(same.get((tensor.data_ptr(), tensor.shape), ()))
            self.seen.regions[key] = Region(
                len(self.seen.regions),
                self._kind((name, *aliases), tensor, held.inputs),
                name,
                tensor.data_ptr(),
                span(tensor)[1],
                dtype_name(tensor),
                tuple(tensor.shape),
                aliases,
                readers=tuple(some),
            )

    def _kind(self, paths: Sequence[str], tensor: torch.Tensor, inputs: frozenset[str]) -> str:
        """As `Region.kind`."""
        if not inputs.isdisjoint(paths):
            return "input"
        own = Extent(*span(tensor))
        if any(own.meets(extent) for extent in self._arms.found.state):
            return "state"
        return "root" if self._weights.isdisjoint(paths) else "weight"

    def _note_reading(
        self,
        number: int,
        at: Planned,
        region: Region,
        held: torch.Tensor,
        expected: torch.Tensor | None,
        live: torch.Tensor | None,
        moved_to: int | None,
        writes: int | None,
    ) -> None:
        now = content(held)
        wanted = content(expected) if expected is not None and expected.shape == held.shape else None
        before = self._last.get(region.id)
        changed = None if before is None else before.hash != now.hash
        # what is written again is written as well: the same values are staged for many a step
        if self._staging is not None and (changed or (before is not None and writes != self._writes[region.id])):
            self._written[region.id] = Write(self._staging, at.step)
        self._last[region.id], self._writes[region.id] = now, writes
        absent = region.name in self._given and region.name not in self._arms.subject.truth(at)
        self.seen.readings.append(
            Reading(
                number,
                region.id,
                now,
                wanted,
                None if live is None else content(live),
                moved_to,
                unequal=() if wanted is None else unequal(held, expected),
                changed=changed,
                written=self._written.get(region.id),
                absent=absent,
            )
        )


def version(tensor: torch.Tensor) -> int | None:
    """How often torch has written into the tensor; None of one made in inference mode, where it does not count."""
    return None if tensor.is_inference() else tensor._version


def dtype_name(tensor: torch.Tensor) -> str:
    """As torch names it, without "torch."."""
    return str(tensor.dtype).removeprefix("torch.")


def on_host(tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Copies in host memory, in order. Small ones come over together: each transfer waits for the device."""
    found = list(tensors)
    together: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    for at, one in enumerate(tensors):
        if one is not None and one.nbytes <= _PACKED:
            together.setdefault(one.device, []).append((at, one))
        elif one is not None:
            found[at] = one.detach().cpu()
    for some in together.values():
        rows = [_padded(one) for _, one in some]
        parts = torch.cat(rows).cpu().split([len(row) for row in rows])
        for (at, one), part in zip(some, parts, strict=True):
            found[at] = part[: one.nbytes].view(one.dtype).view(one.shape)
    return found


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the elements in order, and zeros up to where any dtype may begin."""
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return torch.nn.functional.pad(data, (0, -len(data) % _WIDEST))


def content(tensor: torch.Tensor) -> Content:
    """What a tensor holds: a hash of its bytes in order, its range, and its bytes if they are few."""
    flat = tensor.detach().contiguous().reshape(-1).cpu()
    data = bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""
    finite = flat[~flat.isnan()] if flat.dtype.is_floating_point else flat
    ordered = finite.numel() > 0 and not flat.dtype.is_complex
    return Content(
        len(data),
        blake2b(data, digest_size=8).hexdigest(),
        dtype_name(tensor),
        tuple(tensor.shape),
        finite.min().item() if ordered else None,
        finite.max().item() if ordered else None,
        data if len(data) <= SMALL_BYTES else None,
    )


def unequal(held: torch.Tensor, expected: torch.Tensor | None) -> tuple[Span, ...]:
    """Stretches of bytes, of the elements in order, where the two differ."""
    if expected is None:
        return ()
    size = held.element_size()
    a, b = (t.detach().contiguous().reshape(-1).view(torch.uint8).view(-1, size) for t in (held, expected))
    places = (a != b).any(1).nonzero().flatten().tolist()
    spans: list[Span] = []
    for place in places:
        if spans and spans[-1].stop == place * size:
            spans[-1] = Span(spans[-1].start, (place + 1) * size)
        else:
            spans.append(Span(place * size, (place + 1) * size))
    return tuple(spans)
