"""ABOUT

Plays decode steps of a target eagerly, then by CUDA graphs that were captured before them, and compares the outputs.
Needs torch, a CUDA GPU and the target's own modules. Exit code 1: replays differ from eager steps. 0: they do not.
"""

from __future__ import annotations

import copy
import dataclasses
import random
import sys
from typing import Any

import torch

# what was seen
PLAN = [(0, 4, 4), (1, 3, 4), (2, 4, 4)]
SEED = 0
LOOK_AT: tuple[str, ...] = ()


def make_target() -> Any:
    """The target that the fault was seen in."""
    from cudagraph_doctor.reference_models import load

    return load("loop", device="cuda")


# end of what was seen

DEVICE = "cuda"
BOUND = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 5e-2, torch.bfloat16: 1e-1}
"""How far a replay may be from eager, relative to the largest value: rounding stays below."""


def tensors(node: Any, path: str = "") -> dict[str, torch.Tensor]:
    """Path -> tensor, of dataclasses, dicts, lists and tuples."""
    if isinstance(node, torch.Tensor):
        return {path: node}
    if dataclasses.is_dataclass(node):
        items: Any = [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    else:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, (list, tuple)) else ()
    return {p: tensor for name, child in items for p, tensor in tensors(child, f"{path}.{name}".lstrip(".")).items()}


def on_device(node: Any) -> Any:
    """The same with all tensors on the device."""
    if isinstance(node, torch.Tensor):
        return node.to(DEVICE)
    if dataclasses.is_dataclass(node):
        node = copy.copy(node)
        for field in dataclasses.fields(node):
            object.__setattr__(node, field.name, on_device(getattr(node, field.name)))
        return node
    if isinstance(node, dict):
        return {name: on_device(child) for name, child in node.items()}
    if isinstance(node, (list, tuple)):
        children = [on_device(child) for child in node]
        return type(node)(*children) if hasattr(node, "_fields") else type(node)(children)
    return node


def differences(found: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> list[str]:
    """Which outputs are not as they should be: those of LOOK_AT, else all; where floats are rounded, only floats."""
    chosen = {path: tensor for path, tensor in truth.items() if path in LOOK_AT}
    floats = {path: tensor for path, tensor in truth.items() if tensor.dtype in BOUND}
    rounded = any(not torch.equal(found[path], tensor) for path, tensor in floats.items())  # an argmax may follow
    told = []
    for path, tensor in (chosen or (floats if rounded else truth)).items():
        away = (found[path].double() - tensor.double()).abs()
        share = float(away.max() / tensor.double().abs().max().clamp(min=1e-30)) if tensor.numel() else 0.0
        if not share <= BOUND.get(tensor.dtype, 0.0):  # NaN is wrong too
            told.append(f"{path} differs by up to {share:.2g} of its largest value")
    return told


Results = dict[str, dict[str, torch.Tensor]]


class Player:
    """Captures and replays a target's steps as a runner does."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.after = 1 + max(step for step, _, _ in PLAN)
        self.kept: list[dict[str, torch.Tensor]] = []
        """Buffers that graphs read: one that is rebound must stay as it is, or replays read what comes there next."""

    def inputs(self, step: int, rows: int) -> Any:
        """True values of a step."""
        return on_device(self.target.next_inputs(step, rows))

    def static(self, bucket: int) -> Any:
        """Buffers that a graph reads: the target's own, or those of the step whose values are the most."""
        if hasattr(self.target, "static_inputs"):
            return self.target.static_inputs(bucket)
        candidates = [self.inputs(step, bucket) for step in range(self.after + 1)]
        return copy.deepcopy(max(candidates, key=lambda one: sum(t.numel() for t in tensors(one).values())))

    def stage(self, static: Any, fresh: Any, bucket: int, capturing: bool) -> None:
        """Put a step's values into the buffers."""
        if hasattr(self.target, "prepare"):
            self.target.prepare(static, fresh, bucket, capturing)
        if hasattr(self.target, "update"):
            self.target.update(static, fresh)
            return
        for path, value in tensors(fresh).items():
            buffer = tensors(static)[path]
            buffer[tuple(slice(size) for size in value.shape)].copy_(value)
            buffer[len(value) :].copy_(buffer[len(value) - 1].expand_as(buffer[len(value) :]))

    def capture(self, bucket: int) -> tuple[torch.cuda.CUDAGraph, Any, dict[str, torch.Tensor]]:
        """A graph of a step that is not among those played."""
        at_capture = getattr(self.target, "at_capture", None)
        static = self.static(bucket)
        self.stage(static, at_capture(bucket) if at_capture else self.inputs(self.after, bucket), bucket, True)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.target.forward(static)
        torch.cuda.current_stream().wait_stream(side)
        self.kept.append(tensors(static))
        graph = torch.cuda.CUDAGraph()
        for generator in getattr(self.target, "generators", ()):
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            outputs = self.target.forward(static)
        return graph, static, tensors(outputs)

    def play(self, graphs: dict[int, tuple[torch.cuda.CUDAGraph, Any, dict[str, torch.Tensor]]]) -> Results:
        """What all steps put out, and the state they leave: eagerly, or by `graphs` if there are any."""
        self.target.reset()
        results: Results = {}
        for step, rows, bucket in PLAN:
            fresh = self.inputs(step, rows)
            random.seed(SEED + step)
            torch.manual_seed(SEED + step)
            if graphs:
                graph, static, outputs = graphs[bucket]
                self.stage(static, fresh, bucket, False)
                graph.replay()
            else:
                outputs = tensors(self.target.forward(fresh))
            live = {path: tensor[:rows] if tensor.dim() else tensor for path, tensor in outputs.items()}
            results[f"step {step}, {rows} rows"] = {path: tensor.clone() for path, tensor in live.items()}
        results["state after all steps"] = self.state()
        return results

    def state(self) -> dict[str, torch.Tensor]:
        """Copies of the tensors that steps change, where the target tells; rows that padding may write are zeros."""
        found = self.target.state() if hasattr(self.target, "state") else {}
        reserved = self.target.reserved() if hasattr(self.target, "reserved") else {}
        copies = {name: tensor.clone() for name, tensor in found.items()}
        for name, rows in reserved.items():
            copies[name][list(rows)] = 0
        return copies


def main() -> int:
    """The exit code."""
    if not torch.cuda.is_available():
        print("This needs a CUDA GPU.", file=sys.stderr)
        return 2
    player = Player(make_target())
    truth = player.play({})
    player.target.reset()
    found = player.play({bucket: player.capture(bucket) for bucket in sorted({b for _, _, b in PLAN}, reverse=True)})
    wrong = [f"{when}: {told}" for when in truth for told in differences(found[when], truth[when])]
    print("\n".join([*wrong, "Replays differ from eager steps." if wrong else "All replays are as eager steps."]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
