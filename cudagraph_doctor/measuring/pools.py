"""One pool against a pool for each key, and the largest first against the smallest: what each takes, by trying it.

A LoopTarget only: it is captured again, beside the graphs that are there.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.measuring.captures import NoRoom, Room, graphs_of, pool_bytes
from cudagraph_doctor.measuring.visits import Key
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.subject import Planned


def alone(target: Any, backend: Backend, keys: Sequence[Key], steps: Sequence[Planned], room: Room) -> dict[int, int]:
    """Key -> bytes of a pool that only this key was captured into; keys without room are missing."""
    found = {}
    _give_back()
    for key in keys:
        subject = _again(target, backend, steps, room)
        try:
            subject.capture_all([key.exact], lambda _at: None)
        except NoRoom:
            break
        found[key.size] = pool_bytes({live.pool for live in graphs_of(subject, key)})
        del subject
        _give_back()
    return found


def smallest_first(
    target: Any, backend: Backend, keys: Sequence[Key], steps: Sequence[Planned], room: Room
) -> int | None:
    """Bytes of one pool that all keys were captured into, the smallest first; None without room for them."""
    _give_back()
    subject = _again(target, backend, steps, room)
    subject.pool = torch.cuda.graph_pool_handle()
    try:
        for key in sorted(keys, key=lambda key: key.size):
            subject.capture_all([key.exact], lambda _at: None)
    except NoRoom:
        return None
    found = pool_bytes({live.pool for key in keys for live in graphs_of(subject, key)})
    del subject
    _give_back()
    return found


def _again(target: Any, backend: Backend, steps: Sequence[Planned], room: Room) -> LoopSubject:
    """The target once more, without graphs yet; static inputs as wide as before."""
    subject = LoopSubject(target, backend)
    subject.plan(0, (), [at.rows for at in steps], True)
    subject.around_capture = room.around
    return subject


def _give_back() -> None:
    """Before each trial and after it. cuBLAS's workspace lies in the pool of the first capture on a stream: each trial
    has to make its own, as in a process that captures nothing else.
    """
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()
    gc.collect()
    torch.cuda.empty_cache()
