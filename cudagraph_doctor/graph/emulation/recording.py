"""A captured graph: the operators that were recorded, on the memory they were recorded on. Replays them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from cudagraph_doctor.graph.emulation.faults import cuda_error
from cudagraph_doctor.graph.emulation.generators import drawing_from
from cudagraph_doctor.graph.emulation.memory import Memory, memory_of
from cudagraph_doctor.graph.model import Origin
from cudagraph_doctor.graph.operators import Operator, tensors_in


@dataclass(eq=False, slots=True)
class Node:
    """One recorded operator."""

    operator: Operator
    args: tuple[Any, ...]
    """Arguments as recorded: device tensors by storage and view, host values as they were."""
    kwargs: dict[str, Any]
    outputs: tuple[tuple[int, torch.Tensor], ...]
    """(position among the tensors of the result, tensor over the memory that was allocated for it in the capture)."""
    after: frozenset[int]
    """Positions of the nodes that this one waits for."""
    origin: Origin
    draws: bool = False
    """Draws from the device's default generator without being able to take it as an argument."""

    def run(self) -> None:
        """Execute the operator again; what it allocated in the capture is written anew, in place."""
        result = self.operator.func(*self.args, **self.kwargs)
        if self.outputs:
            if isinstance(result, torch.Tensor):
                self.outputs[0][1].copy_(result)
                return
            found = tuple(tensors_in(result))
            for position, target in self.outputs:
                target.copy_(found[position])

    def written(self) -> Iterator[torch.Tensor]:
        """The tensors that it writes."""
        yield from self.operator.written_tensors(self.args, self.kwargs)
        for _, target in self.outputs:
            yield target


class Recording:
    """The nodes of one graph, in the order of their capture.

    Args:
        nodes: in an order that respects `after`.
        pool: identity of the graph's pool, as text.
        allocated: marks of the memory allocated in the capture.
        generator: the device's default generator.
    """

    def __init__(self, nodes: list[Node], pool: str, allocated: list[Memory], generator: torch._C.Generator) -> None:
        self.nodes = nodes
        self.pool = pool
        self.allocated = allocated
        self._generator = generator
        self._draws = any(node.draws for node in nodes)
        self._held = [memory for node in nodes for memory in _memories(node)]
        for memory in self._held:
            memory.held += 1

    def __del__(self) -> None:
        for memory in self._held:
            memory.held -= 1

    def replay(self) -> None:
        """Run all nodes on the recorded memory."""
        drawing: AbstractContextManager[None] = drawing_from(self._generator) if self._draws else nullcontext()
        # Neither watched nor differentiated: a replay is one launch, and its kernels pass no dispatcher.
        with (
            torch._C._DisableTorchDispatch(),
            torch._C._AutoDispatchBelowADInplaceOrView(),
            torch._C.DisableTorchFunction(),
            drawing,
        ):
            for node in self.nodes:
                try:
                    node.run()
                except (IndexError, RuntimeError) as error:
                    # A kernel that is given values it cannot work with.
                    raise cuda_error(710, f"{node.operator.name}: {error}") from error


def _memories(node: Node) -> Iterator[Memory]:
    """The marks of all memory that the node refers to, one for each reference."""
    for tensor in tensors_in((node.args, node.kwargs, [target for _, target in node.outputs])):
        memory = memory_of(tensor)
        if memory is not None:
            yield memory
