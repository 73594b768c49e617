"""Numbers and other host values of `next_inputs`: a graph reads none of them, so staging has to write them somewhere.

Where it writes them nowhere, or not into the tensor that stands for one, the graph goes on with what the static inputs
had at its capture. That may be right: a bound that holds for all steps. So they are no suspects for rounding, which
other shapes bring about or take away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import torch

from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.subject import Planned


def in_tensors(arms: Arms, at: Planned, captured: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The numbers of step `at` whose static input is a tensor, in its shape: by path."""
    found = {}
    with arms.backend.own_memory():
        for path, value in arms.subject.host_truth(at).items():
            if path in captured and isinstance(value, (bool, int, float)):
                right = torch.full_like(captured[path], value)
                if right.numel() and right.flatten()[0].item() == value:
                    found[path] = right
    return found


def left_out(arms: Arms, at: Planned) -> Iterator[Remedy]:
    """Host values of step `at` that the static inputs do not have after staging: a graph captured now gets them.

    One after the other, then all of them.
    """
    subject = arms.subject
    if not isinstance(subject, LoopSubject) or subject.form != "loop":
        return
    staged = subject.host_static(at)
    true = {path: value for path, value in subject.host_truth(at).items() if path in staged}
    wrong = {path: value for path, value in true.items() if not _same(staged[path], value)}

    def capture(told: Mapping[str, object], mended: bool) -> None:
        arms.rewind()
        subject.recapture_told(at, told if mended else {})

    every = [{path: value} for path, value in wrong.items()] + ([wrong] if len(wrong) > 1 else [])
    for told in every:
        was, expected = {path: staged[path] for path in told}, dict(told)
        name = ", ".join(told)
        alone = len(told) == 1
        yield Remedy(
            Cause.LEFT_OUT,
            name,
            "input",
            capture=partial(capture, told),
            was=was[name] if alone else was,
            expected=expected[name] if alone else expected,
        )


def _same(a: object, b: object) -> bool:
    return type(a) is type(b) and bool(a == b or (a != a and b != b))
