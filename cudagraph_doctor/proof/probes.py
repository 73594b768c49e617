"""First diverging module: captured copies of every module's output, in a second pass.

Forward hooks clone each module's output; inside a capture the clone becomes a node, so a replay shows what every module
put out. Watching changes what runs, so this only *locates*: it judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from cudagraph_doctor import tree
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.compare import Level, compare
from cudagraph_doctor.proof.repair import corner
from cudagraph_doctor.proof.subject import Planned

Outputs = dict[str, dict[str, torch.Tensor]]
"""Module path -> its outputs by path, in order of execution."""


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
    seen: Outputs = {}
    captured: dict[LiveGraph, Outputs] = {}  # these tensors are rewritten by each replay

    def probe(name: str) -> Any:
        def hook(_module: torch.nn.Module, _args: Any, output: Any) -> None:
            seen[name] = {path: value.clone() for path, value in tree.tensors(output).items()}

        return hook

    def at_capture(live: LiveGraph) -> None:
        captured[live] = dict(seen)
        seen.clear()

    handles = [module.register_forward_hook(probe(name)) for name, module in modules.items()]
    try:
        arms.run(Arm.EAGER, at)
        eager = dict(seen)
        seen.clear()
        arms.rewind()
        with arms.backend.log.listening(captured=at_capture):
            arms.subject.recapture(captured_at)
        arms.run(Arm.FRESH, at)
        replayed: Outputs = {}
        for held in arms.subject.held(at, fresh=True):
            replayed |= captured.get(held.live, {})
        return next((name for name, outputs in replayed.items() if _differs(outputs, eager.get(name, {}))), "")
    finally:
        for handle in handles:
            handle.remove()
        if arms.subject.form == "engine":
            arms.subject.recapture(at)  # its graphs must not keep the probes
        arms.subject.drop_fresh()


def _differs(outputs: Mapping[str, torch.Tensor], eager: Mapping[str, torch.Tensor]) -> bool:
    """Whether a module put out something else; of a padded batch the leading rows count."""
    live = {path: corner(v, eager[path]) if path in eager else v for path, v in outputs.items()}
    return any(d.level is Level.LARGE for d in compare(live, eager))
