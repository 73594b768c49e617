"""What can be tried on a bad replay besides the usual remedies of `proof.repair`: one function a suspicion.

Each lists remedies for what it suspects. They prove nothing by themselves: `Doctor` tries them, and what heals is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch

from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.graph.backend import Backend, Block, LiveGraph
from cudagraph_doctor.graph.callsite import Line
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.graph.regions import Regions
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.compare import Level, same_bits
from cudagraph_doctor.proof.diagnose import Bad
from cudagraph_doctor.proof.reading import read
from cudagraph_doctor.proof.repair import Cause, Remedy, corner
from cudagraph_doctor.proof.subject import Held, Planned
from cudagraph_doctor.replays.zeroed import Zeroed

_LINES = 8
"""Lines that ask for uninitialised memory and are tried each by itself."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Asked by `Doctor` for more remedies.

    Args:
        arms: of the subject.
        plan: all steps that are played.
    """

    arms: Arms
    plan: Sequence[Planned]

    def __call__(self, bad: Bad) -> list[Remedy]:
        """All suspicions at one bad step, those first that a value speaks for."""
        suspicions = (
            self.filled_elsewhere,
            self.skipped_inputs,
            self.random_state,
            self.attributes,
            self.overwritten,
            self.padding_values,
            self.uninitialised,
            self.uninitialised_within,
        )
        return list(chain.from_iterable(suspicion(bad) for suspicion in suspicions))

    def filled_elsewhere(self, bad: Bad) -> Iterator[Remedy]:
        """Inputs that staging fills at their front, with the right values, while the graph reads further behind."""
        truth, captured = self.arms.subject.truth(bad.at), bad.scene.captured
        graphs = [graph for graph in read(self.arms, bad.scene.held) if graph is not None]
        for name in sorted(bad.scene.inputs & truth.keys() & bad.scene.contents.keys()):
            content, buffer = bad.scene.contents[name], captured[name]
            filled = corner(content, truth[name])
            first = _first_row_read(graphs, name, buffer)
            if first and filled is not None and same_bits(filled, truth[name].to(filled)):
                right = content[: len(content) - first]
                if not same_bits(right, content[first:]):
                    where = f"rows 0 to {at_least(first, filled) - 1} are filled, rows {first} and up are read"
                    yield Remedy(Cause.WRONG_SLICE, name, "input", where, buffer[first:], right, content[first:])

    def skipped_inputs(self, bad: Bad) -> Iterator[Remedy]:
        """Inputs that this step does not have, and others do: what a graph captured now finds there."""
        if bad.now is None:
            return
        truth = self.arms.subject.truth(bad.at)
        others = [self.arms.subject.truth(at).keys() for at in self.plan if at.key == bad.at.key]
        for name in sorted(bad.scene.inputs - truth.keys()):
            held, right = bad.scene.contents.get(name), bad.now.contents.get(name)
            known = any(name in other for other in others)
            if not known or held is None or right is None or held.shape != right.shape:
                continue
            if not same_bits(held, right):
                yield Remedy(Cause.SKIPPED, name, "input", "", bad.scene.captured[name], right, held)

    def padding_values(self, bad: Bad) -> Iterator[Remedy]:
        """The first live row's value in the padding rows of each input: a value that the step can work with."""
        rows, captured = bad.at.rows, bad.scene.captured
        for name in sorted(bad.scene.inputs, key=lambda name: not _is_float(bad.scene.contents.get(name))):
            content = bad.scene.contents.get(name)
            if content is None or not content.dim() or len(content) != bad.at.key or not 0 < rows < len(content):
                continue
            tail, right = content[rows:], content[:1].expand_as(content[rows:]).clone()
            if not same_bits(tail, right):
                where = f"padding rows {rows} to {len(content) - 1}"
                yield Remedy(Cause.PADDING_VALUE, name, "input", where, captured[name][rows:], right, tail)

    def random_state(self, bad: Bad) -> Iterator[Remedy]:
        """The generators as the eager step finds them, where the replay does not find them so."""
        seen: list[torch.Tensor] = []

        def look(_live: LiveGraph) -> None:
            seen.append(torch.cuda.get_rng_state())

        with self.arms.backend.log.listening(replaying=look):
            self.arms.run(Arm.REPLAYED, bad.at)
        right = self.arms.saved.random["cuda"]
        if seen and not torch.equal(seen[0], right):

            def mend(_live: LiveGraph) -> Callable[[], object]:
                before = torch.cuda.get_rng_state()
                torch.cuda.set_rng_state(right)
                return partial(torch.cuda.set_rng_state, before)

            yield Remedy(Cause.RANDOM_STATE, "default generator", "state", mend=mend)

    def attributes(self, bad: Bad) -> Iterator[Remedy]:
        """Attributes that lead into a graph's own memory: set in a capture, so that all replays leave them there.

        The graph that is replayed has a place for the same thing, at the same parameter of the same node.
        """
        backend = self.arms.backend
        pools = {graph.pool for graph in backend.log.graphs if graph.pool}
        blocks = [block for block in backend.blocks() if block.pool in pools]
        led = {name: t for name, t in bad.scene.paths.items() if name not in bad.scene.inputs and _inside(t, blocks)}
        if not led:
            return
        graphs = {live.ordinal: _addresses(backend, live) for live in backend.log.graphs}
        here = graphs.get(bad.scene.held[-1].live.ordinal, {})
        for name, tensor in led.items():
            spots = (spot for graph in graphs.values() for spot, at in graph.items() if at == tensor.data_ptr())
            own = next((here[spot] for spot in spots if spot in here), None)
            if own is not None:
                yield Remedy(Cause.ATTRIBUTE, name, "output", mend=partial(self._led_to, name, tensor, own))

    def _led_to(self, name: str, like: torch.Tensor, address: int, _live: LiveGraph) -> Callable[[], object]:
        """Let the attribute lead to this graph's memory."""
        now = self.arms.look_around().paths.get(name)
        if now is None or now.shape != like.shape or now.dtype != like.dtype:
            return lambda: None
        own = self._bytes(Block(address, like.numel() * like.element_size()))
        if own is None:  # as large as this graph's batch
            return lambda: None
        before, now.data = now.detach(), own.view(like.dtype).view(like.shape)
        return partial(setattr, now, "data", before)

    def overwritten(self, bad: Bad) -> Iterator[Remedy]:
        """Tensors in graphs' own memory, given memory of their own before the later graphs of the step run."""
        if len(bad.scene.held) < 2:
            return
        pools = {held.live.pool for held in bad.scene.held if held.live.pool}
        blocks = [block for block in self.arms.backend.blocks() if block.pool in pools]
        later = {held.live.ordinal for held in self._in_order(bad)[1:]}
        for name, tensor in self.arms.look_around().paths.items():
            if _inside(tensor, blocks):
                yield Remedy(Cause.OVERWRITTEN, name, "output", mend=partial(self._moved_away, name, later))

    def _in_order(self, bad: Bad) -> list[Held]:
        """The graphs of the step as they are launched."""
        launched: list[int] = []

        def look(live: LiveGraph) -> None:
            launched.append(live.ordinal)

        with self.arms.backend.log.listening(replaying=look):
            self.arms.run(Arm.REPLAYED, bad.at)
        return sorted(bad.scene.held, key=lambda held: [*launched, held.live.ordinal].index(held.live.ordinal))

    def _moved_away(self, name: str, later: Collection[int], live: LiveGraph) -> Callable[[], object]:
        now = self.arms.look_around().paths.get(name)
        if now is None or live.ordinal not in later:
            return lambda: None
        before = now.detach()
        now.data = before.clone()
        return partial(setattr, now, "data", before)

    def uninitialised(self, bad: Bad) -> Iterator[Remedy]:
        """Zeros in all memory of the graph's pool that nobody owns: what is read before it is written changes."""

        def mend(live: LiveGraph) -> Callable[[], object]:
            found = (self._bytes(block) for block in self.arms.backend.scratch(live.pool))
            undo = [(memory, memory.clone()) for memory in found if memory is not None]
            for memory, _ in undo:
                memory.zero_()
            return lambda: [memory.copy_(before) for memory, before in undo]

        if bad.scene.held:
            yield Remedy(Cause.UNINITIALISED, "memory of the graph's pool", "unnamed", mend=mend)

    def uninitialised_within(self, bad: Bad) -> Iterator[Remedy]:
        """The same where an earlier kernel of the replay left what is read: zeros are captured, of one line, of all."""
        subject = self.arms.subject
        if not subject.can_recapture or bad.gap.level is not Level.LARGE:
            return

        def capture(lines: Sequence[Line], mended: bool) -> None:
            self.arms.rewind()
            with Zeroed(frozenset(lines if mended else ())):
                subject.recapture(bad.at)

        self.arms.rewind()
        seen = Zeroed(only=frozenset())
        with seen:
            subject.eager(bad.at)  # allocates where the capture does
        lines = list(seen.lines)
        for some in (*([line] for line in lines[:_LINES]), lines if len(lines) > 1 else ()):
            if some:
                yield Remedy(
                    Cause.UNINITIALISED,
                    "memory of the graph's pool",
                    "unnamed",
                    capture=partial(capture, some),
                    notes={"line": some[0].location()} if len(some) == 1 else {},
                )

    def _bytes(self, block: Block) -> torch.Tensor | None:
        try:
            return self.arms.backend.bytes_of(block)
        except Inconclusive:  # gone by now
            return None


Spot = tuple[int, int, int]
"""Position of a node, of a parameter in it, of an address in that."""


def _addresses(backend: Backend, live: LiveGraph) -> dict[Spot, int]:
    """All addresses in a graph; none of one that is gone."""
    try:
        nodes = backend.read(live, Regions()).nodes
    except DoctorError:
        return {}
    return {
        (node.index, param.index, pointer.offset): pointer.address
        for node in reversed(nodes)
        for param in node.params
        for pointer in param.pointers
    }


def _inside(tensor: torch.Tensor, blocks: Sequence[Block]) -> bool:
    return any(block.address <= tensor.data_ptr() < block.address + block.bytes for block in blocks)


def at_least(first: int, filled: torch.Tensor) -> int:
    """Rows that are filled, not counting those that are read as well."""
    return min(first, len(filled))


def _first_row_read(graphs: Sequence[CapturedGraph], name: str, buffer: torch.Tensor) -> int:
    """The first row of an input that some node points at; 0 if none points into it."""
    offsets = {
        pointer.region.offset
        for graph in graphs
        for node in graph.nodes
        for param in node.params
        for pointer in param.pointers
        if pointer.region.kind == "input" and pointer.region.name == name
    }
    row = buffer.stride(0) * buffer.element_size() if buffer.dim() else 0
    return min(offsets) // row if offsets and row else 0


def _is_float(tensor: torch.Tensor | None) -> bool:
    return tensor is not None and tensor.dtype.is_floating_point
