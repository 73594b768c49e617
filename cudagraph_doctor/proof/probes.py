"""First diverging module: captured copies of every module's output, in a second pass.

Forward hooks clone each module's output; inside a capture the clone becomes a node, so a replay shows what every module
put out. Watching changes what runs, so this only *locates*: it judges nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from cudagraph_doctor import tree
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.compare import Level, compare
from cudagraph_doctor.proof.subject import Planned


def first_diverging_module(arms: Arms, at: Planned, captured_at: Planned) -> str:
    """Path of the first module whose output in a probed graph differs from eager at step `at`; "" if none does.

    Args:
        arms: at the saved state of `at`.
        at: the bad step.
        captured_at: the values that the probed graph is captured at: another step's, so that what is frozen shows.
    """
    modules = {
        f"{name}.{path}".strip("."): module
        for name, top in arms.look_around().modules.items()
        for path, module in top.named_modules()
    }
    if not modules or not arms.subject.can_recapture:
        return ""
    seen: dict[str, Any] = {}

    def probe(name: str) -> Any:
        def hook(_module: torch.nn.Module, _args: Any, output: Any) -> None:
            seen[name] = {path: value.clone() for path, value in tree.tensors(output).items()}

        return hook

    handles = [module.register_forward_hook(probe(name)) for name, module in modules.items()]
    try:
        arms.run(Arm.EAGER, at)
        eager = dict(seen)
        seen.clear()
        arms.rewind()
        arms.subject.recapture(captured_at)
        captured = dict(seen)  # these tensors are rewritten by each replay
        arms.run(Arm.FRESH, at)
        for name, outputs in captured.items():  # in order of execution
            rows = {p: v[: at.rows] if v.dim() and v.shape[0] == at.key else v for p, v in outputs.items()}
            differences = compare(rows, eager.get(name, {}))
            if any(d.level is Level.LARGE for d in differences):
                return name
        return ""
    finally:
        for handle in handles:
            handle.remove()
        if arms.subject.form == "engine":
            arms.subject.recapture(at)  # its graphs must not keep the probes
        arms.subject.drop_fresh()
