"""Remedies for what only `inputs` suspects: each is offered where its suspicion fits, and heals there alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.checks import replay_inputs
from cudagraph_doctor.findings import Outcome, Proof
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.diagnose import Bad
from cudagraph_doctor.proof.repair import Cause, Remedy, try_out
from cudagraph_doctor.proof.scene import look
from cudagraph_doctor.proof.start import discover, planned, subject_of
from cudagraph_doctor.proof.verdict import Gap
from cudagraph_doctor.replays import zeroed
from cudagraph_doctor.replays.suspects import Suspects
from cudagraph_doctor.settings import Settings

Inputs = dict[str, Any]


class Loop:
    """Sums of rows, with a workspace and noise on demand."""

    buckets = (4,)

    def __init__(self, device: str) -> None:
        self.device = device

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {"x": torch.arange(n, device=self.device).float() + step}

    def static_inputs(self, bucket: int) -> Inputs:
        return {"x": torch.zeros(bucket, device=self.device)}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        static["x"].zero_()
        static["x"][: len(fresh["x"])].copy_(fresh["x"])

    def forward(self, inputs: Inputs) -> Any:
        return inputs["x"] * 2

    def reset(self) -> None:
        torch.cuda.manual_seed(7)


class ReadsEnd(Loop):
    """The buffer is twice as long as the batch."""

    def static_inputs(self, bucket: int) -> Inputs:
        return {"x": torch.zeros(2 * bucket, device=self.device), "n": torch.zeros(bucket, device=self.device)}

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {**super().next_inputs(step, n), "n": torch.zeros(n, device=self.device)}

    def forward(self, inputs: Inputs) -> Any:
        return inputs["x"][-len(inputs["n"]) :] * 2


class PaddingOfZero(Loop):
    """A padding row divides by zero, and all rows suffer."""

    def forward(self, inputs: Inputs) -> Any:
        x = inputs["x"]
        return x + 0 * (x / x).sum()

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {"x": torch.arange(n, device=self.device).float() + step + 1}


class Reseeded(Loop):
    """Noise that is the same at each replay."""

    def update(self, static: Inputs, fresh: Inputs) -> None:
        super().update(static, fresh)
        torch.cuda.manual_seed(3)

    def forward(self, inputs: Inputs) -> Any:
        return inputs["x"] + torch.rand_like(inputs["x"])


class Skips(Loop):
    """A bias that every other step has."""

    def next_inputs(self, step: int, n: int) -> Inputs:
        bias = torch.ones(n, device=self.device) if step % 2 == 0 else None
        return {**super().next_inputs(step, n), "bias": bias}

    def static_inputs(self, bucket: int) -> Inputs:
        return {**super().static_inputs(bucket), "bias": torch.zeros(bucket, device=self.device)}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        super().update(static, fresh)
        if fresh["bias"] is not None:
            static["bias"][: len(fresh["bias"])].copy_(fresh["bias"])

    def forward(self, inputs: Inputs) -> Any:
        return inputs["x"] if inputs["bias"] is None else inputs["x"] + inputs["bias"]


class Uninitialised(Loop):
    """Only live rows of a workspace are written."""

    def forward(self, inputs: Inputs) -> Any:
        shares = torch.empty(len(inputs["x"]), device=self.device)
        shares.masked_fill_(inputs["x"] > 0, 1.0)
        return inputs["x"] * shares.sum()

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {"x": torch.arange(n, device=self.device).float() + step + 1}


def offered(loop: type[Loop]) -> tuple[dict[Cause, list[Remedy]], set[Cause]]:
    """At a batch of 3 after one of 4: what is offered, and what of it gives the eager result."""
    backend = EmulatedBackend()
    with backend.installed(), torch.no_grad():
        subject = subject_of(loop(backend.device), backend)
        _, plan = planned(subject, Settings(check="inputs", batch_sizes=(4, 3), steps=2))
        arms = Arms(subject, backend)
        discover(arms, plan, Silent(), 1)
        arms.begin(plan)
        arms.save()
        eager = arms.run(Arm.EAGER, plan[0])
        arms.run(Arm.REPLAYED, plan[0])
        arms.commit(plan[0], eager)
        arms.save()
        right = arms.run(Arm.EAGER, plan[1]).outputs
        scene = look(arms, plan[1])
        arms.rewind()
        subject.recapture(plan[1])
        bad = Bad(plan[1], scene, look(arms, plan[1], Arm.FRESH), Gap())
        remedies = Suspects(arms, plan)(bad)
        heals = {
            remedy.cause
            for remedy in remedies
            if remedy.capture is None
            and all(torch.equal(value, right[path]) for path, value in try_out(arms, plan[1], [remedy]).outputs.items())
        }
    by_cause: dict[Cause, list[Remedy]] = {}
    for remedy in remedies:
        if remedy.capture is None:
            by_cause.setdefault(remedy.cause, []).append(remedy)
    return by_cause, heals


@pytest.mark.parametrize(
    ("loop", "cause", "name", "where"),
    [
        (ReadsEnd, Cause.WRONG_SLICE, "x", "rows 0 to 2 are filled, rows 4 and up are read"),
        (PaddingOfZero, Cause.PADDING_VALUE, "x", "padding rows 3 to 3"),
        (Reseeded, Cause.RANDOM_STATE, "default generator", ""),
        (Skips, Cause.SKIPPED, "bias", ""),
        (Uninitialised, Cause.UNINITIALISED, "memory of the graph's pool", ""),
    ],
)
def test_the_right_suspicion_heals_and_no_other(loop: type[Loop], cause: Cause, name: str, where: str) -> None:
    remedies, heals = offered(loop)
    assert [(remedy.name, remedy.where) for remedy in remedies[cause]] == [(name, where)]
    assert heals == {cause}


def test_a_sound_step_is_offered_little() -> None:
    remedies, _ = offered(Loop)
    assert set(remedies) == {Cause.PADDING_VALUE, Cause.UNINITIALISED}


class TwoGraphs:
    """An engine whose second graph writes over the scores of the first, which are read behind it."""

    batch_sizes = (4,)

    def __init__(self, device: str) -> None:
        self.device = device
        self.x = torch.zeros(4, device=device)
        self.recapture()

    def recapture(self) -> None:
        pool = torch.cuda.graph_pool_handle()
        self.first, self.second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.first, pool=pool):
            self.scores = self.x * 2
        with torch.cuda.graph(self.second, pool=pool):
            self.scores.zero_()

    def reset(self) -> None:
        pass

    def graphs(self, on: bool) -> None:
        self.on = on

    def step(self, i: int, n: int) -> torch.Tensor:
        x = torch.arange(4.0, device=self.device) + i
        if not self.on:
            return x * 2
        self.x.copy_(x)
        self.first.replay()
        self.second.replay()
        return self.scores.clone()


def test_an_output_that_a_later_graph_overwrites() -> None:
    backend = EmulatedBackend()
    with backend.installed(), torch.no_grad():
        engine: Any = TwoGraphs(backend.device)
        outcome = replay_inputs.run(engine, backend, Settings(check="inputs", steps=2), Silent())
    (finding,) = outcome.findings
    assert (finding.code, finding.proof) == ("CGD314", Proof.CONFIRMED)
    assert finding.culprit is not None and finding.culprit.name == "scores"


class Frozen(Loop):
    """A number of the host's is in the kernel, and a workspace is written before it is read."""

    def forward(self, inputs: Inputs) -> Any:
        scratch = torch.empty(len(inputs["x"]), device=self.device)
        scratch.copy_(inputs["x"])
        return scratch * inputs["factor"] if inputs["factor"] < 3 else scratch - inputs["factor"]

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {**super().next_inputs(step, n), "factor": step}

    def static_inputs(self, bucket: int) -> Inputs:
        return {**super().static_inputs(bucket), "factor": 0}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        super().update(static, fresh)
        static["factor"] = fresh["factor"]


def outcome_of(loop: type[Loop], monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """With memory that cannot be mended from outside of the replay, as where an earlier kernel writes it."""
    monkeypatch.setattr(EmulatedBackend, "scratch", lambda self, pool: [])
    backend = EmulatedBackend()
    with backend.installed(), torch.no_grad():
        settings = Settings(check="inputs", batch_sizes=(4, 3), steps=4)
        return replay_inputs.run(loop(backend.device), backend, settings, Silent())


class LeftBehind(Uninitialised):
    """The workspace is memory that an earlier kernel has written; `alias` stands in for being given it anew."""

    def forward(self, inputs: Inputs) -> Any:
        earlier = torch.full_like(inputs["x"], 7.0)
        shares = torch.ops.aten.alias(earlier)
        shares.masked_fill_(inputs["x"] > 0, 1.0)
        return inputs["x"] * shares.sum()


def test_memory_that_an_earlier_kernel_left_is_zeroed_in_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeroed, "_UNINITIALISED", {"aten::alias"})
    (finding,) = outcome_of(LeftBehind, monkeypatch).findings
    assert (finding.code, finding.proof) == ("CGD326", Proof.CONFIRMED)
    assert finding.location is not None and "aten.alias" in finding.location.code


def test_what_a_capture_of_now_mends_as_it_is_accuses_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome_of(Frozen, monkeypatch).findings
    assert found and "CGD326" not in {finding.code for finding in found}
