"""`inputs` from a target to an outcome: what is counted, what cannot be told, what happens when a replay fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.checks import eager_diff, replay_inputs
from cudagraph_doctor.findings import Outcome, Proof, Severity, Status, outcome_from_json, to_json
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.settings import Settings

Inputs = dict[str, torch.Tensor]


class Loop:
    """A sum over rows, by index."""

    buckets = (2, 4)

    def __init__(self, device: str) -> None:
        self.device = device
        self.table = torch.arange(8.0, device=device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {"index": (torch.arange(n, device=self.device) + step) % 8}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        static["index"].zero_()
        static["index"][: len(fresh["index"])].copy_(fresh["index"])

    def forward(self, inputs: Inputs) -> torch.Tensor:
        return self.table[inputs["index"]]

    def reset(self) -> None:
        pass


def looked_at(backend: Backend, loop: type[Any], **settings: Any) -> Outcome:
    with backend.installed():
        return replay_inputs.run(loop(backend.device), backend, Settings(check="inputs", steps=4, **settings), Silent())


def test_a_sound_target_passes_and_says_what_was_looked_at(emulated: Backend) -> None:
    outcome = looked_at(emulated, Loop)
    assert outcome.status is Status.PASSED and not outcome.findings and outcome.coverage == 1
    assert outcome.checked["regions"] >= 2 and outcome.checked["addresses"] >= 4
    assert outcome.checked["captures compared"] > 0 and outcome.checked["unreadable nodes"] == 0
    assert outcome_from_json(to_json(outcome)) == outcome


class TwoFaults(Loop):
    """One input is never staged, another in its place; and a scale is baked in."""

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {**super().next_inputs(step, n), "shift": torch.full((n,), 1.0 + step, device=self.device)}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        static["shift"].fill_(0.5)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        return super().forward(inputs) * inputs["shift"]


def test_two_faults_are_two_findings(emulated: Backend) -> None:
    outcome = looked_at(emulated, TwoFaults)
    told = {finding.culprit.name: finding.proof for finding in outcome.findings if finding.culprit}
    assert told == {"index": Proof.CONFIRMED, "shift": Proof.CONFIRMED}
    assert {finding.code for finding in outcome.findings} == {"CGD301"}


class Unnamed(Loop):
    """What is wrong is in the captured code itself: nothing that is written heals it."""

    def forward(self, inputs: Inputs) -> torch.Tensor:
        rows = super().forward(inputs)
        return rows + 1 if torch.cuda.is_current_stream_capturing() else rows


def test_what_nothing_heals_is_not_checked_in_words(emulated: Backend) -> None:
    outcome = looked_at(emulated, Unnamed)
    assert outcome.status is Status.INCONCLUSIVE and not outcome.findings
    assert "what they read does not explain it" in outcome.reason
    assert any("nothing that was tried heals it; see `diff`" in sentence for sentence in outcome.not_checked)


def test_values_stay_out_of_the_findings(emulated: Backend) -> None:
    outcome = looked_at(emulated, TwoFaults, values=False)
    assert outcome.findings
    assert all(f.culprit and f.culprit.captured is f.culprit.expected is None for f in outcome.findings)


class Raises(Loop):
    """An index that no row has reaches the kernel through the graph only."""

    def update(self, static: Inputs, fresh: Inputs) -> None:
        static["index"].fill_(100 if len(fresh["index"]) == 3 else 0)


def test_a_replay_that_fails_is_said(emulated: Backend) -> None:
    outcome = looked_at(emulated, Raises)
    (finding,) = outcome.findings
    assert (finding.code, finding.severity) == ("CGD003", Severity.ERROR)
    assert "what comes after the replay that failed" in outcome.not_checked


class WithoutRecapture:
    """An engine whose graph cannot be captured anew."""

    batch_sizes = (4,)

    def __init__(self, device: str) -> None:
        self.device = device
        self.x = torch.zeros(4, device=device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = self.x * 2

    def reset(self) -> None:
        pass

    def graphs(self, on: bool) -> None:
        self.on = on

    def step(self, i: int, n: int) -> torch.Tensor:
        x = torch.arange(4.0, device=self.device) + i
        if not self.on:
            return x * 2
        self.x.copy_(x)
        self.graph.replay()
        return self.y


def test_an_engine_without_recapture_is_looked_at_as_far_as_it_goes(emulated: Backend) -> None:
    with emulated.installed():
        engine = WithoutRecapture(emulated.device)
        outcome = replay_inputs.run(engine, emulated, Settings(check="inputs", steps=3), Silent())
    assert outcome.status is Status.PASSED and outcome.checked["captures compared"] == 0
    assert any("no graph could be captured anew" in sentence for sentence in outcome.not_checked)


def test_steps_are_captured_as_often_as_asked(emulated: Backend) -> None:
    few, more, many = (
        looked_at(emulated, Loop, buckets=(4,), recaptures=n).checked["captures compared"] for n in (0, 1, 40)
    )
    assert few == more < 40 <= many


class Paged(Loop):
    """A table of pages that is the same at each step, but for how many of its columns are in use."""

    def next_inputs(self, step: int, n: int) -> Inputs:
        pages = torch.full((n, 3), -1, device=self.device)
        used = step % 3 + 1
        pages[:, :used] = torch.arange(used, device=self.device) + torch.arange(n, device=self.device)[:, None]
        return {**super().next_inputs(step, n), "pages": pages}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        super().update(static, fresh)
        static["pages"][len(fresh["pages"]) :].fill_(-1)
        self.stage(static["pages"], fresh["pages"])

    def stage(self, pages: torch.Tensor, fresh: torch.Tensor) -> None:
        pages[: len(fresh)].copy_(fresh)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        return super().forward(inputs) + (inputs["pages"] + 1).sum(1)


class PagedInUse(Paged):
    """Only columns in use are copied: what was there before stays behind them."""

    def stage(self, pages: torch.Tensor, fresh: torch.Tensor) -> None:
        used = int((fresh[0] >= 0).sum())
        pages[: len(fresh), :used].copy_(fresh[:, :used])


class PagedOnlyBehind(Paged):
    """Rows behind the batch are filled; the table itself is forgotten."""

    def stage(self, pages: torch.Tensor, fresh: torch.Tensor) -> None:
        pass


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        (Paged, []),
        (PagedInUse, ["`pages` is refreshed only in part: not rows 0 to 2, columns 1 to 2"]),
        (PagedOnlyBehind, ["`pages` is never refreshed: the replay reads what was there before"]),
    ],
)
def test_columns_that_are_copied_are_told_from_those_that_are_not(
    loop: type[Loop], told: list[str], emulated: Backend
) -> None:
    assert [finding.message.partition(". ")[0] for finding in looked_at(emulated, loop).findings] == told


class Branching(Loop):
    """A number of the step decides whether rows are doubled."""

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {**super().next_inputs(step, n), "long": torch.tensor(step >= 2, device=self.device)}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        super().update(static, fresh)
        static["long"].copy_(fresh["long"])

    def forward(self, inputs: Inputs) -> torch.Tensor:
        rows = super().forward(inputs)
        return torch.where(inputs["long"], rows * 2, rows) + 1


class BranchingOnTheHost(Branching):
    steps = 0

    def reset(self) -> None:
        self.steps = 0

    def forward(self, inputs: Inputs) -> torch.Tensor:
        rows = Loop.forward(self, inputs)
        self.steps += 1
        if self.steps % 2:
            rows = rows.mul(2)  # the branch
        return rows + 1


@pytest.mark.parametrize("loop", [Branching, BranchingOnTheHost])
def test_a_branch_is_told_by_the_line_that_one_of_the_captures_lacks(loop: type[Loop], emulated: Backend) -> None:
    found = looked_at(emulated, loop).findings
    assert [finding.code for finding in found] == ["CGD323"] * (loop is BranchingOnTheHost)
    for finding in found:
        assert finding.location and finding.location.code.endswith("# the branch") and not finding.related
        assert finding.culprit and finding.culprit.name == "aten.mul.Tensor"
        assert "nothing" in (finding.culprit.captured, finding.culprit.expected)


class Scored:
    """An engine that scores rows by a temperature of each, hung up anew at every step."""

    batch_sizes: tuple[int, ...] = (2, 4)

    def __init__(self, device: str) -> None:
        self.device = device
        self.index = torch.zeros(4, dtype=torch.int64, device=device)
        self.temperature = torch.ones(4, device=device)
        self.table = torch.arange(8.0, device=device)
        self.enabled = False
        self.recapture()

    def recapture(self) -> None:
        self.captured = {rows: self.capture(rows) for rows in self.batch_sizes}

    def capture(self, rows: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scores = self.scores(rows)
        return graph, scores

    def scores(self, rows: int) -> torch.Tensor:
        return self.table[self.index[:rows]] / self.temperature[:rows]

    def reset(self) -> None:
        self.index.zero_()
        self.heat(torch.ones(4, device=self.device))

    def graphs(self, on: bool) -> None:
        self.enabled = on

    def heat(self, values: torch.Tensor) -> None:
        self.temperature = values

    def step(self, i: int, n: int) -> torch.Tensor:
        self.index.copy_((torch.arange(4, device=self.device) + i) % 8)
        self.heat(1.0 + i + torch.arange(4, device=self.device))
        if not self.enabled:
            return self.scores(n)
        graph, scores = self.captured[n]
        graph.replay()
        return scores


class ScoredInPlace(Scored):
    def heat(self, values: torch.Tensor) -> None:
        self.temperature.copy_(values)


class UpdatedTable(ScoredInPlace):
    """Its table, a plain tensor, is another one from some step on."""

    def reset(self) -> None:
        super().reset()
        self.table = torch.arange(8.0, device=self.device)

    def step(self, i: int, n: int) -> torch.Tensor:
        if i == 3:
            self.table = self.table + 1
        return super().step(i, n)


@pytest.mark.parametrize(("engine", "told"), [(Scored, ("CGD305", "buffer", "temperature")), (ScoredInPlace, None)])
def test_what_each_step_puts_in_place_is_no_weight(
    engine: type[Any], told: tuple[str, str, str] | None, emulated: Backend
) -> None:
    found = [f for f in looked_at(emulated, engine).findings if f.culprit]
    assert [(f.code, f.culprit.kind, f.culprit.name) for f in found if f.culprit] == [told] * bool(told)


def test_what_steps_leave_alone_until_it_is_another_is_a_weight(emulated: Backend) -> None:
    (found,) = looked_at(emulated, UpdatedTable).findings
    assert found.culprit and (found.code, found.culprit.kind, found.culprit.name) == ("CGD308", "weight", "table")


class Padded(Scored):
    """Three rows are served by the graph of four."""

    batch_sizes = (2, 3, 4)

    def recapture(self) -> None:
        self.captured = {rows: self.capture(rows) for rows in (2, 4)}

    def step(self, i: int, n: int) -> torch.Tensor:
        return super().step(i, 4 if n == 3 and self.enabled else n)[:n]


def test_a_graph_of_several_batch_sizes_is_one_graph_in_each_check(emulated: Backend) -> None:
    outcome = looked_at(emulated, Padded)
    assert [finding.code for finding in outcome.findings] == ["CGD305"]
    assert outcome.findings[0].evidence["also_in"] == ["graph 2"]
    with emulated.installed():
        other = eager_diff.run(Padded(emulated.device), emulated, Settings(check="diff", steps=4), Silent())
    assert outcome.checked["graphs"] == other.checked["graphs"] == 2


class CapturedInReset(ScoredInPlace):
    """All graphs are captured anew by each reset()."""

    def reset(self) -> None:
        super().reset()
        self.recapture()


def test_graphs_that_are_captured_in_reset_are_counted(emulated: Backend) -> None:
    outcome = looked_at(emulated, CapturedInReset)
    assert outcome.status is Status.PASSED and outcome.checked["graphs"] == 2
    assert any(said.startswith("what replays read at 10 of 10 steps: ") for said in outcome.not_checked)
    sound = looked_at(emulated, ScoredInPlace).not_checked
    assert not any(said.startswith("what replays read at") for said in sound)


class SetsInCapture(ScoredInPlace):
    """The captured code sets `largest`, and the engine reads it behind the replay."""

    def scores(self, rows: int) -> torch.Tensor:
        scores = super().scores(rows)
        self.largest = scores.amax()
        return scores

    def step(self, i: int, n: int) -> torch.Tensor:
        scores = super().step(i, n)
        return scores / self.largest


class ReadsOwnOutput(ScoredInPlace):
    """Each graph's own `largest` is one of its outputs."""

    def scores(self, rows: int) -> torch.Tensor:
        scores = super().scores(rows)
        return torch.cat([scores, scores.amax().reshape(1)])

    def step(self, i: int, n: int) -> torch.Tensor:
        scores = super().step(i, n)
        return scores[:-1] / scores[-1]


def test_an_attribute_that_a_capture_sets_is_told_by_the_line_that_sets_it(emulated: Backend) -> None:
    (found,) = looked_at(emulated, SetsInCapture).findings
    assert found.code == "CGD317" and found.location is not None
    assert found.location.code == "self.largest = scores.amax()"
    assert not looked_at(emulated, ReadsOwnOutput).findings


@pytest.mark.gpu
def test_a_sound_target_passes_on_a_gpu(cuda: Backend) -> None:
    outcome = looked_at(cuda, Loop)
    assert outcome.status is Status.PASSED and not outcome.findings
