"""Makes generators of the device usable again after a capture that failed.

A capture that breaks leaves the generators that it could draw from in their capturing state: torch takes them out of it
only when a capture ends well. Every draw after it raises "Offset increment outside graph capture encountered
unexpectedly", until a capture with the same generators has ended well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import torch


def free_generators(generators: Iterable[torch.Generator] = ()) -> None:
    """Capture next to nothing with the default generator and these, on a stream of its own.

    Their seeds stay. Where not even that can be captured, what is run next says why: nothing is raised here.

    Args:
        generators: generators of the device besides the default one.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with contextlib.suppress(RuntimeError), torch.cuda.stream(stream):
        for generator in generators:
            graph.register_generator_state(generator)
        cell = torch.zeros(1, device=f"cuda:{torch.cuda.current_device()}")
        graph.capture_begin(capture_error_mode="thread_local")
        cell.zero_()  # torch warns of empty graphs
        graph.capture_end()
