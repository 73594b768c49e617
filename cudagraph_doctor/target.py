"""The contract: what a target has to offer, in one of two forms told apart by their members.

A target is named on the command line (`package.module:attr`, `path/file.py:attr`) and called by `loader.py` with
`device=` and the `--target-arg`s; what it returns is a `LoopTarget` or an `EngineTarget`. No base class is needed: the
members decide. Only the members above the "optional" line are required.

`device` is "cuda" on a GPU. On the emulated backend it is "cpu:0": the *emulated device*. Tensors made with
`device="cpu:0"` (or `device=x.device` of such a tensor) stand for device memory; tensors made without a device, or with
"cpu", are host memory, and reading a device tensor from the host during a capture raises as it does under CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Protocol

Pytree = Any
"""Nested dicts, lists, tuples, dataclasses and plain objects; leaves are tensors, numbers, strings, enums, None."""


class LoopTarget(Protocol):
    """A decode step that can be called with any values: the doctor captures it and plays the runner."""

    @property
    def buckets(self) -> Iterable[int]:
        """The batch sizes captured, ascending."""

    def next_inputs(self, step: int, n: int) -> Pytree:
        """The truth: fresh, unpadded inputs of step `step` (0, 1, ...) for `n` rows (1 <= n <= widest bucket).

        Pure: any order, any number of calls, the same answer. Tensors have the rows in dimension 0 and may be on any
        device.
        """

    def forward(self, inputs: Pytree) -> Pytree:
        """The decode step: reads `inputs` (and state), writes state, returns outputs with the rows in dimension 0."""

    def reset(self) -> None:
        """Back to before step 0, in place: device *and* host state, seeds, counters."""

    # Optional members, with what happens without them:
    #   static_inputs(bucket) -> Pytree      buffers shaped as next_inputs at the widest of the planned steps
    #   update(static, fresh) -> None        copies fresh tensors into the leading rows (and columns); behind them, what
    #                                        static_inputs put there, or the last live row again
    #   prepare(static, fresh, bucket, capturing) -> None
    #                                        host planning, before captures and replays, in neither, and not before
    #                                        eager steps: nothing
    #   at_capture(bucket) -> Pytree         values that the capture sees: a step outside the compared ones
    #   graphed() -> Callable[[fresh], outputs]   the user's own runner (captures as it likes): the doctor's
    #   state() -> Mapping[str, Tensor]      names for state tensors: found by watching, named by attribute path
    #   named() -> Mapping[str, Tensor]      further names for tensors
    #   reserved() -> Mapping[str, indices]  state rows that padding may write, by state name (dimension 0)
    #   generators -> Iterable[torch.Generator]   registered on every graph the doctor captures
    #   warmup() -> None                     before captures: two calls of forward on a side stream
    #   pipelined -> bool                    steps may overlap (host runs ahead): False
    #   ignore -> Mapping[str, str]          rules (prefixes of their codes) that do not count here, a reason each: none


class EngineTarget(Protocol):
    """A real engine, driven through its own entry point and its own switch."""

    def reset(self) -> None:
        """Back to before step 0, in place: device *and* host state, seeds, counters."""

    def step(self, i: int, n: int) -> Pytree:
        """The engine's own decode step `i` on `n` rows; its input preparation, key choice, staging and replay."""

    def graphs(self, on: bool) -> None:
        """Its enforce-eager switch, at run time: `on=False` makes `step` run eagerly."""

    # Optional members:
    #   batch_sizes -> Iterable[int]         sizes worth trying: 1, 2, 3, 4, 5, 7, 8
    #   roots() -> Mapping[str, object]      walked for tensors and scalars; names become attribute paths: the target
    #   key(i, n) -> Hashable                what the runner looks the graph of this step up by, None if it has
    #                                        none: n
    #   recapture() -> None                  captures all graphs anew, as at start-up: no fresh arm
    #   reserved() -> Mapping[str, indices]  state rows that padding may write, by path (dimension 0): none
    #   events(), interludes(), untouchable(), generators, pipelined, ignore


Roots = Mapping[str, object]
Key = Hashable
Runner = Callable[[Pytree], Pytree]

LOOP_MEMBERS: Mapping[str, str] = {
    "buckets": "buckets: list[int]",
    "next_inputs": "def next_inputs(self, step: int, n: int) -> pytree",
    "forward": "def forward(self, inputs) -> pytree",
    "reset": "def reset(self) -> None",
}
"""Required members of a LoopTarget, with the signature shown in errors."""

LOOP_OPTIONAL: Mapping[str, str] = {
    "static_inputs": "def static_inputs(self, bucket: int) -> pytree",
    "update": "def update(self, static, fresh) -> None",
    "prepare": "def prepare(self, static, fresh, bucket: int, capturing: bool) -> None",
    "at_capture": "def at_capture(self, bucket: int) -> pytree",
    "graphed": "def graphed(self) -> Callable[[pytree], pytree]",
    "state": "def state(self) -> dict[str, torch.Tensor]",
    "named": "def named(self) -> dict[str, torch.Tensor]",
    "reserved": "def reserved(self) -> dict[str, list[int]]",
    "generators": "generators: list[torch.Generator]",
    "warmup": "def warmup(self) -> None",
    "pipelined": "pipelined: bool",
    "ignore": "ignore: dict[str, str]",
}
"""Optional members of a LoopTarget."""

ENGINE_MEMBERS: Mapping[str, str] = {
    "reset": "def reset(self) -> None",
    "step": "def step(self, i: int, n: int) -> pytree",
    "graphs": "def graphs(self, on: bool) -> None",
}
"""Required members of an EngineTarget."""

ENGINE_OPTIONAL: Mapping[str, str] = {
    "batch_sizes": "batch_sizes: list[int]",
    "roots": "def roots(self) -> dict[str, object]",
    "key": "def key(self, i: int, n: int) -> Hashable",
    "recapture": "def recapture(self) -> None",
    "events": "def events(self) -> dict[str, Callable[[], None]]",
    "interludes": "def interludes(self) -> dict[str, Callable[[], None]]",
    "reserved": "def reserved(self) -> dict[str, list[int]]",
    "untouchable": "def untouchable(self) -> list[torch.Tensor]",
    "generators": "generators: list[torch.Generator]",
    "pipelined": "pipelined: bool",
    "ignore": "ignore: dict[str, str]",
}
"""Optional members of an EngineTarget."""
