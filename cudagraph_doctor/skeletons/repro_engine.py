"""ABOUT

Plays decode steps of an engine without its graphs, then with them, and compares the outputs.
Needs torch, a CUDA GPU and the engine's own modules. Exit code 1: replays differ from eager steps. 0: they do not.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from typing import Any

import torch

# what was seen
PLAN = [(0, 4), (1, 3), (2, 4)]
SEED = 0
LOOK_AT: tuple[str, ...] = ()


def make_target() -> Any:
    """The target that the fault was seen in."""
    from cudagraph_doctor.reference_models import load

    return load("engine", device="cuda")


# end of what was seen

BOUND = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 5e-2, torch.bfloat16: 1e-1}
"""How far a replay may be from eager, relative to the largest value: rounding stays below."""
LATE = 20_000_000
"""Cycles, about 10 ms, that the device starts each step late in one of the passes: what is not waited for shows."""

Steps = list[dict[str, torch.Tensor]]


def tensors(node: Any, path: str = "") -> dict[str, torch.Tensor]:
    """Path -> tensor, of dataclasses, dicts, lists and tuples."""
    if isinstance(node, torch.Tensor):
        return {path: node}
    if dataclasses.is_dataclass(node):
        items: Any = [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    else:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, (list, tuple)) else ()
    return {p: tensor for name, child in items for p, tensor in tensors(child, f"{path}.{name}".lstrip(".")).items()}


def play(engine: Any, graphs: bool, late: bool) -> Steps:
    """The outputs of all steps, looked at when the last one is done; `late` lets the host run ahead of the device."""
    engine.graphs(graphs)
    engine.reset()
    torch.cuda.synchronize()
    steps: Steps = []
    for step, rows in PLAN:
        random.seed(SEED + step)
        torch.manual_seed(SEED + step)
        if late:
            torch.cuda._sleep(LATE)
        steps.append({path: tensor.clone() for path, tensor in tensors(engine.step(step, rows)).items()})
        if not late:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return steps


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


def main() -> int:
    """The exit code."""
    if not torch.cuda.is_available():
        print("This needs a CUDA GPU.", file=sys.stderr)
        return 2
    engine = make_target()
    truth = play(engine, graphs=False, late=False)
    wrong = False
    for late in (False, True):
        for (step, rows), found, expected in zip(PLAN, play(engine, graphs=True, late=late), truth, strict=True):
            for told in differences(found, expected):
                print(f"step {step}, {rows} rows, {'running ahead' if late else 'one at a time'}: {told}")
                wrong = True
    print("Replays differ from eager steps." if wrong else "All replays are as eager steps.")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
