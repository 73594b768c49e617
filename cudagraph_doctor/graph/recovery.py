"""Puts right what captures leave behind in torch.

A capture that breaks leaves the generators that it could draw from in their capturing state: torch takes them out of it
only when a capture ends well. Every draw after it raises "Offset increment outside graph capture encountered
unexpectedly", until a capture with the same generators has ended well.

Page-locked memory that a copy in a capture read, and that was dropped before its end, waits in torch's host allocator
for an event that was captured, which can be asked for nothing: the next allocation of such memory, and the next
`torch.cuda.graph`, raises "invalid argument", once for each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import torch


def free_generators(generators: Iterable[torch.Generator] = ()) -> None:
    """Capture next to nothing with the default generator and these, on a stream of its own.

    That one has another priority than those of users, which torch hands out in turn, a new one being an old one again.
    Their seeds stay. Where not even that can be captured, what is run next says why: nothing is raised here.

    Args:
        generators: generators of the device besides the default one.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(priority=-1)
    with contextlib.suppress(RuntimeError), torch.cuda.stream(stream):
        for generator in generators:
            graph.register_generator_state(generator)
        cell = torch.zeros(1, device=f"cuda:{torch.cuda.current_device()}")
        graph.capture_begin(capture_error_mode="thread_local")
        cell.zero_()  # torch warns of empty graphs
        graph.capture_end()


MOST_EVENTS = 10_000
"""Captured events at most that a capture leaves in the host allocator."""


def forget_captured_events() -> None:
    """Have torch's host allocator ask for each of its captured events, after which it forgets them.

    Waits for the device: events are asked for in order, as far as the first that is not yet there. The allocator gives
    its unused memory back to the system by the way, as before each `torch.cuda.graph`. Nothing is raised here: what is
    run next meets the device's error, if it has one.
    """
    empty_cache = getattr(torch._C, "_host_emptyCache", None)  # not every torch has it
    with contextlib.suppress(RuntimeError):
        torch.cuda.synchronize()
    if empty_cache is None:
        return
    for _ in range(MOST_EVENTS):
        try:
            empty_cache()
        except RuntimeError:  # "invalid argument"
            continue
        return
