"""From `next_inputs` to what a graph reads: a LoopTarget's own `static_inputs`, `prepare` and `update`, or ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cudagraph_doctor import tree
from cudagraph_doctor.errors import TargetError


class Staging:
    """Makes static inputs of a LoopTarget and puts values into them.

    Args:
        target: a LoopTarget.
        next_inputs: its truth, (step, rows) -> values.
        device: where buffers are made if the target makes none.
    """

    def __init__(self, target: Any, next_inputs: Callable[[int, int], Any], device: str) -> None:
        self.steps: Sequence[int] = (0,)
        """All that are played or captured: buffers of ours are as wide as the widest of them."""
        self.first: dict[int, dict[str, torch.Tensor]] = {}
        """Bucket -> what its static inputs held when they were made, by path."""
        self._target = target
        self._next_inputs = next_inputs
        self._device = device

    def has(self, member: str) -> bool:
        """Whether the target has this optional member."""
        return getattr(self._target, member, None) is not None

    def static(self, bucket: int) -> Any:
        """The static inputs of a bucket. Raises TargetError if none can be made."""
        return self._target.static_inputs(bucket) if self.has("static_inputs") else self._widest(bucket)

    def remember(self, bucket: int, static: Any) -> None:
        """Keep what untouched buffers hold."""
        self.first[bucket] = {path: tensor.clone() for path, tensor in tree.tensors(static).items()}

    def stage(self, static: Any, fresh: Any, bucket: int, capturing: bool) -> None:
        """As the runner does before a capture or a replay. Raises TargetError if something does not fit."""
        if self.has("prepare"):
            self._target.prepare(static, fresh, bucket, capturing)
        if self.has("update"):
            self._target.update(static, fresh)
        else:
            default_update(static, fresh, self.first.get(bucket) if self.has("static_inputs") else None)

    def _widest(self, bucket: int) -> Any:
        """Zeros of the shape of `next_inputs` at the widest of the steps, with `bucket` rows."""
        candidates = [self._next_inputs(step, bucket) for step in self.steps]
        shapes: dict[str, list[int]] = {}
        for step, candidate in zip(self.steps, candidates, strict=True):
            for path, leaf in tree.tensors(candidate).items():
                known = shapes.setdefault(path, list(leaf.shape))
                if len(known) != leaf.dim():
                    raise TargetError(
                        f"no static input can be made for `{path}`: its number of dimensions changes from step to step",
                        seen=f"{len(known)} at step {self.steps[0]}, {leaf.dim()} at step {step}",
                        fix="write `static_inputs(bucket)` and `update(static, fresh)`",
                    )
                shapes[path] = [max(a, b) for a, b in zip(known, leaf.shape, strict=True)]

        def buffer(path: str, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return torch.zeros(shapes[path], dtype=leaf.dtype, device=self._device)

        return tree.rebuild(candidates[0], buffer)


def default_update(static: Any, fresh: Any, padding: Mapping[str, torch.Tensor] | None = None) -> None:
    """Copy fresh tensors into the leading rows (and columns) of the static ones of the same path.

    The rows behind hold nothing of earlier steps. Without `padding` the last live row is put there again: its values
    are legal, and a step that overwrites its state writes the same once more.

    Args:
        static: the buffers that the graph reads.
        fresh: what `next_inputs` returned.
        padding: what whole buffers hold as padding, by path, where the target has said so.

    Raises TargetError where a fresh tensor does not fit.
    """
    buffers = tree.tensors(static)
    for path, value in tree.tensors(fresh).items():
        buffer = buffers.get(path)
        if buffer is None:
            raise TargetError(
                f"the static inputs have no tensor `{path}`",
                seen=f"they have {', '.join(buffers)}",
                fix="let static_inputs return the structure of next_inputs, or write `update(static, fresh)`",
            )
        if buffer.dim() != value.dim() or any(a < b for a, b in zip(buffer.shape, value.shape, strict=True)):
            raise TargetError(
                f"`{path}` does not fit its static input",
                seen=f"fresh {tuple(value.shape)}, static {tuple(buffer.shape)}",
                fix="make static_inputs as wide as the widest step, or write `update(static, fresh)`",
            )
        if padding and path in padding:
            buffer.copy_(padding[path])
        if math.prod(value.shape):
            buffer[tuple(slice(0, size) for size in value.shape)].copy_(value)
            if not padding and value.dim():
                rows = len(value)
                buffer[rows:].copy_(buffer[rows - 1].expand_as(buffer[rows:]))
