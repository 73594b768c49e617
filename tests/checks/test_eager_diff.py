"""`diff` from a target to an outcome, on tiny targets."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from cudagraph_doctor.checks import eager_diff
from cudagraph_doctor.errors import Inconclusive, TargetError, UsageError
from cudagraph_doctor.findings import Finding, Outcome, Proof, Severity, Status, to_json
from cudagraph_doctor.graph.backend import Backend, ListenerError
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.runner import RunnerSubject
from cudagraph_doctor.settings import Settings, Tolerance

Inputs = dict[str, Any]
Make = Callable[..., Any]


class Counters:
    """A LoopTarget: each row adds `x` to a slot of its own of the cache and puts out the slot. Slot 4 is padding's."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.buckets = [2, 4]
        self.cache = torch.zeros(5, device=device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        """Row r has slot r."""
        rows = torch.arange(n, device=self.device)
        return {"x": (rows + step + 1).float(), "slots": (rows + step) % 4}

    def static_inputs(self, bucket: int) -> Inputs:
        """Padding."""
        device = self.device
        return {"x": torch.zeros(bucket, device=device), "slots": torch.full((bucket,), 4, device=device)}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Stage, with padding behind it."""
        static["slots"].fill_(4)
        static["x"].zero_()
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)

    def forward(self, inputs: Inputs) -> Inputs:
        """One step."""
        self.cache.index_add_(0, inputs["slots"], inputs["x"])
        return {"y": self.cache[inputs["slots"]] + 0}

    def reset(self) -> None:
        """All slots empty."""
        self.cache.zero_()


class CountingEngine:
    """An EngineTarget around it, with one graph for up to four rows."""

    batch_sizes = (1, 2, 4)

    def __init__(self, device: str) -> None:
        self.loop = Counters(device)
        self.on = False
        self.recapture()

    def recapture(self) -> None:
        """Anew, over the same buffers once there are some."""
        self.static = getattr(self, "static", None) or self.loop.static_inputs(4)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.loop.forward(self.static)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = self.loop.forward(self.static)["y"]

    def step(self, i: int, n: int) -> Inputs:
        """Step `i` on `n` rows."""
        fresh = self.loop.next_inputs(i, n)
        if not self.on:
            return self.loop.forward(fresh)
        self.loop.update(self.static, fresh)
        self.graph.replay()
        return {"y": self.y[:n].clone()}

    def graphs(self, on: bool) -> None:
        """The switch."""
        self.on = on

    def reset(self) -> None:
        """All slots empty."""
        self.loop.reset()


class Diary:
    """A `Progress` that remembers everything."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def say(self, text: str) -> None:
        """A line."""
        self.events.append(("say", text))

    def stage(self, text: str, total: int) -> None:
        """A stage."""
        self.events.append(("stage", (text, total)))

    def advance(self, text: str = "") -> None:
        """A unit."""
        self.events.append(("advance", text))

    def journal(self, finding: Finding) -> None:
        """A danger."""
        self.events.append(("journal", finding))

    def journal_clear(self) -> None:
        """Over."""
        self.events.append(("clear", None))

    def of(self, kind: str) -> list[Any]:
        """What was told of one kind."""
        return [what for event, what in self.events if event == kind]


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """One after the other, the hooks in."""
    found: Backend = request.getfixturevalue(request.param)
    with found.installed():
        yield found


@pytest.fixture
def make(backend: Backend) -> Make:
    """Makes a `Counters`, or another `base`, with some members replaced."""

    def made(base: type = Counters, **members: Any) -> Any:
        methods = {name: member for name, member in members.items() if callable(member)}
        target = type(base.__name__, (base,), methods)(backend.device)
        for name in sorted(members.keys() - methods.keys()):
            setattr(target, name, members[name])
        return target

    return made


@pytest.fixture
def diff(backend: Backend) -> Callable[..., Outcome]:
    """Runs the check, on two rows for three steps if nothing else is asked for."""

    def run(target: Any, *sizes: int, progress: Any = None, **settings: Any) -> Outcome:
        settings = {"check": "diff", "steps": 1, "batch_sizes": sizes or (2, 1, 2), **settings}
        outcome = eager_diff.run(target, backend, Settings(**settings), progress or Diary())
        json.dumps(to_json(outcome), default=str)
        assert {finding.code for finding in outcome.findings} <= set(outcome.rules)
        return outcome

    return run


def stale_slots(self: Any, static: Inputs, fresh: Inputs) -> None:
    """Staging that forgets the slots."""
    static["x"][: len(fresh["x"])].copy_(fresh["x"])


def in_graphs(change: Callable[[Any, int, torch.Tensor], torch.Tensor]) -> Callable[[Any, int, int], Inputs]:
    """An engine's step whose output is changed where it was replayed."""

    def step(self: Any, i: int, n: int) -> Inputs:
        outputs = CountingEngine.step(self, i, n)
        return {"y": change(self, i, outputs["y"])} if self.on else outputs

    return step


def verdicts(outcome: Outcome) -> list[str]:
    """Of all steps."""
    return [step.verdict for step in outcome.steps]


def only(outcome: Outcome) -> Finding:
    """The one finding."""
    (finding,) = outcome.findings
    return finding


# sound targets


def test_which_subject_a_target_is(make: Make, backend: Backend) -> None:
    assert type(eager_diff.subject_of(make(), backend)) is LoopSubject
    assert type(eager_diff.subject_of(make(graphed=lambda self: self.forward), backend)) is RunnerSubject
    assert type(eager_diff.subject_of(make(graphed=None), backend)) is LoopSubject
    assert type(eager_diff.subject_of(make(CountingEngine), backend)) is EngineSubject
    with pytest.raises(TargetError):
        eager_diff.subject_of(object(), backend)


@pytest.mark.parametrize("base", [Counters, CountingEngine])
def test_a_sound_target_passes(make: Make, diff: Callable[..., Outcome], backend: Backend, base: type) -> None:
    outcome = diff(make(base), 2, 4, 3, 1)
    assert (outcome.status, outcome.findings, verdicts(outcome)) == (Status.PASSED, (), ["clean"] * 4)
    assert [(step.index, step.rows) for step in outcome.steps] == [(0, 2), (1, 4), (2, 3), (3, 1)]
    checked = outcome.checked
    assert (checked["backend"], checked["steps"], checked["batch sizes"]) == (backend.name, 4, [1, 2, 3, 4])
    assert checked["state bytes"] >= 20 and checked["runs"] >= 16 and checked["host values that steps move"] == 0
    assert set(backend.not_checked()) <= set(outcome.not_checked)


@pytest.mark.parametrize("base", [Counters, CountingEngine])
def test_the_target_is_left_as_it_was(make: Make, diff: Callable[..., Outcome], backend: Backend, base: type) -> None:
    target = make(base)
    loop: Any = getattr(target, "loop", target)
    loop.weight = torch.nn.Parameter(torch.ones(3, device=backend.device))
    before = {"weight": (loop.weight, loop.weight.data_ptr()), "cache": (loop.cache, loop.cache.data_ptr())}
    assert diff(target, 2, 4, 1).status is Status.PASSED
    for name, (tensor, address) in before.items():
        assert getattr(loop, name) is tensor and tensor.data_ptr() == address
    assert loop.weight.tolist() == [1, 1, 1] and loop.weight.requires_grad and not loop.cache.requires_grad
    target.reset()
    assert loop.forward(loop.next_inputs(0, 2))["y"].tolist() == [1, 2]
    target.reset()
    if base is CountingEngine:
        target.graphs(True)
        assert target.step(0, 3)["y"].tolist() == [1, 2, 3], "its graphs still work"


def test_gradients_play_no_part(make: Make, diff: Callable[..., Outcome], backend: Backend) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        self.cache[inputs["slots"]] = inputs["x"] * self.weight
        return {"y": self.cache[inputs["slots"]] * self.weight}

    target = make(forward=forward)
    target.weight = torch.nn.Parameter(torch.ones(1, device=backend.device))
    assert diff(target).status is Status.PASSED and not target.cache.requires_grad


def test_progress_is_told(make: Make, diff: Callable[..., Outcome]) -> None:
    diary = Diary()
    diff(make(), progress=diary)
    assert [text for text, _ in diary.of("stage")] == ["finding the state", "steps", "free running"]
    (estimate,) = diary.of("say")
    assert "3 steps of about" in estimate and "MiB for copies" in estimate
    steps = [text for text in diary.of("advance") if text.startswith("step ")]
    assert steps == ["step 0, 2 rows, graph 2", "step 1, 1 row, graph 2", "step 2, 2 rows, graph 2"]


# what cannot be judged


def test_batches_without_a_graph_are_said(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(), 2, 5, 0)
    assert verdicts(outcome) == ["clean", "inconclusive", "inconclusive"] and outcome.status is Status.PASSED
    reasons = [step.detail.get("reason") for step in outcome.steps]
    assert reasons == [None, "above the largest bucket, so it has no graph", "an empty batch"]
    assert any(text.startswith("2 of 3 steps could not be judged (above the") for text in outcome.not_checked)


def test_buckets_that_were_left_out_are_said(make: Make, diff: Callable[..., Outcome]) -> None:
    def rest(*buckets: int, sizes: tuple[int, ...] = (), **settings: Any) -> list[str]:
        outcome = diff(make(buckets=buckets), batch_sizes=sizes, **settings)
        return [text for text in outcome.not_checked if "--exhaustive" in text]

    assert rest(1, 2, 3, 4) == ["bucket 2: use --exhaustive"]
    assert rest(1, 2, 3, 4, exhaustive=True) == [] == rest(2, 4)
    assert rest(1, 2, 3, 4, sizes=(4,)) == [] == rest(1, 2, 3, 4, buckets=(4,)), "as was asked for"


def test_no_step_with_a_graph(make: Make, diff: Callable[..., Outcome]) -> None:
    with pytest.raises(Inconclusive, match="no step of the plan") as caught:
        diff(make(), 5, 0)
    assert caught.value.seen == "batch sizes [0, 5]"


def test_an_engine_that_replays_nothing(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(CountingEngine, graphs=lambda self, on: None))
    assert (outcome.status, outcome.reason) == (Status.INCONCLUSIVE, "no step could be judged")
    assert verdicts(outcome) == ["inconclusive"] * 3 and outcome.fix
    assert any("replayed no graph" in text for text in outcome.not_checked)


def test_inputs_that_are_not_pure_are_refused(make: Make, diff: Callable[..., Outcome]) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        return {**Counters.next_inputs(self, step, n), "x": torch.rand(n, device=self.device)}

    with pytest.raises(TargetError, match="not pure"):
        diff(make(next_inputs=next_inputs))


def test_eager_that_does_not_repeat_is_no_reference(make: Make, diff: Callable[..., Outcome]) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        noise = 0.0 if self.on else float(next(self.numbers))
        return {"y": CountingEngine.step(self, i, n)["y"] + noise}

    outcome = diff(make(CountingEngine, step=step, numbers=iter(range(10**6))))
    assert outcome.status is Status.INCONCLUSIVE and verdicts(outcome) == ["inconclusive"] * 3
    assert (only(outcome).code, only(outcome).severity) == ("CGD001", Severity.NOTE)


def test_what_reset_leaves_behind_is_a_note(make: Make, diff: Callable[..., Outcome]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        self.served += 1
        return Counters.forward(self, inputs)

    outcome = diff(make(forward=forward, served=0))
    assert (only(outcome).code, outcome.status) == ("CGD002", Status.PASSED)
    assert outcome.checked["host values that steps move"] == 1


def test_too_little_memory_for_copies(
    make: Make, diff: Callable[..., Outcome], backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "free_bytes", lambda: 8)
    with pytest.raises(Inconclusive, match="not enough free device memory"):
        diff(make())


PADDED = "the target has no update(), and the padding that the doctor makes up changes the step"


def test_padding_that_the_doctor_makes_up_is_no_fault(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(update=None, static_inputs=None), 4, 3, 4)  # padding adds to a live slot
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())
    assert [step.detail.get("reason") for step in outcome.steps] == [None, PADDED, None]
    (told,) = [text for text in outcome.not_checked if text.startswith("steps whose padding rows")]
    assert "write `def update(self, static, fresh) -> None` in the target" in told
    assert f"1 of 3 steps could not be judged ({PADDED})" in outcome.not_checked


def test_padding_that_the_target_gave_does_no_harm(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(update=None), 4, 3, 4)
    assert (outcome.status, outcome.findings, verdicts(outcome)) == (Status.PASSED, (), ["clean"] * 3)


def test_a_fault_beside_padding_that_the_doctor_makes_up_is_found(make: Make, diff: Callable[..., Outcome]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": Counters.forward(self, inputs)["y"] + (100 if torch.cuda.is_current_stream_capturing() else 0)}

    outcome = diff(make(forward=forward, update=None, static_inputs=None), 4, 3, 4)
    finding = next(finding for finding in outcome.findings if finding.severity is Severity.ERROR)
    assert finding.code == "CGD102" and finding.evidence["seen_at_steps"] == [0, 1, 2]


@pytest.mark.parametrize("backend", ["emulated"], indirect=True)  # CUDA captures no generator that nobody registered
def test_replays_that_do_not_repeat_for_made_up_padding(make: Make, diff: Callable[..., Outcome]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        x = inputs["x"]
        twice = (x[None] == x[:, None]).sum() > len(x)
        return {"y": x + twice * torch.rand(x.shape, generator=self.draw)}

    draw = torch.Generator().manual_seed(0)  # nobody rewinds it, as nobody does the order of writes to one slot
    outcome = diff(make(forward=forward, update=None, static_inputs=None, draw=draw), 4, 3, 4)
    assert [step.detail.get("reason") for step in outcome.steps] == [None, PADDED, None] and not outcome.findings


def test_names_that_were_not_looked_for_are_said(
    make: Make, diff: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudagraph_doctor.walk.MAX_OBJECTS", 2)
    assert any("too many to walk" in text for text in diff(make()).not_checked)


# faults


def test_a_fault_is_found_once_with_all_its_steps(make: Make, diff: Callable[..., Outcome]) -> None:
    diary = Diary()
    outcome = diff(make(update=stale_slots), 2, 2, 2, progress=diary)
    finding = only(outcome)
    assert (outcome.status, finding.code, finding.proof) == (Status.FOUND, "CGD102", Proof.CONFIRMED)
    assert finding.culprit is not None and finding.culprit.name == "slots"
    assert (finding.culprit.captured, finding.culprit.expected) == ([4, 4], [0, 1])
    assert finding.evidence["seen_at_steps"] == [0, 1, 2] and verdicts(outcome) == ["finding"] * 3
    assert finding.location is not None and finding.location.file == __file__
    assert diary.of("stage")[-1][0] == "steps", "nothing is run freely that is known to be wrong"


def test_two_faults_are_told_apart_over_the_steps(make: Make, diff: Callable[..., Outcome]) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        if fresh["x"][0] == 1:  # step 0
            static["x"].copy_(fresh["x"])

    outcome = diff(make(update=update, at_capture=lambda self, bucket: self.next_inputs(9, bucket)), 2, 2)
    found = {f.culprit.name: f.evidence["seen_at_steps"] for f in outcome.findings if f.culprit}
    assert found == {"slots": [0, 1], "x": [1]}


def test_what_comes_only_at_times_is_no_finding(make: Make, diff: Callable[..., Outcome]) -> None:
    def change(self: Any, i: int, y: torch.Tensor) -> torch.Tensor:
        self.replays += 1
        return y + 100 if self.replays in (3, 4) else y  # the first two that are compared

    target = make(CountingEngine, step=in_graphs(change), replays=0)
    target.recapture = None
    outcome = diff(target, 2)
    assert (only(outcome).code, only(outcome).severity) == ("CGD001", Severity.NOTE)
    assert "did not at each repetition" in only(outcome).message and outcome.status is Status.INCONCLUSIVE


def test_an_engine_that_rounds_is_not_captured_anew_at_every_step(make: Make, diff: Callable[..., Outcome]) -> None:
    target = make(CountingEngine, step=in_graphs(lambda self, i, y: y * (1 + 1e-5)), captures=0)

    def recapture() -> None:
        target.captures += 1
        CountingEngine.recapture(target)

    target.recapture = recapture
    outcome = diff(target, *[2] * 6)
    assert verdicts(outcome) == ["note"] * 6 and target.captures == 2


def test_a_step_that_puts_out_nothing(make: Make, diff: Callable[..., Outcome]) -> None:
    with pytest.raises(Inconclusive, match="puts out no tensor") as caught:
        diff(make(forward=lambda self, inputs: None))
    assert caught.value.seen == "leaves of type NoneType"


def test_values_can_be_hidden(make: Make, diff: Callable[..., Outcome]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {**Counters.forward(self, inputs), "secret": 4711 if torch.cuda.is_current_stream_capturing() else 42}

    shown, hidden = (diff(make(forward=forward, update=stale_slots), values=values) for values in (True, False))
    assert "4711" in json.dumps(to_json(shown)) and "4711" not in json.dumps(to_json(hidden))
    assert hidden.status is Status.FOUND


def test_padding_that_hits_a_live_slot(make: Make, diff: Callable[..., Outcome]) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        Counters.update(self, static, fresh)
        static["slots"][len(fresh["slots"]) :] = 0
        static["x"][len(fresh["x"]) :] = 9

    finding = only(diff(make(update=update), 2, 1, 2, 2, 2))
    assert finding.code == "CGD103" and finding.culprit is not None and finding.culprit.name == "slots"
    assert "later steps' output changes by it" in finding.message


def test_state_that_nobody_reads_is_a_note(make: Make, diff: Callable[..., Outcome]) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        Counters.update(self, static, fresh)
        static["x"][len(fresh["x"]) :] = 9

    outcome = diff(make(update=update), 2, 1, 2)
    assert outcome.status is Status.PASSED
    assert (only(outcome).code, only(outcome).evidence["kind"]) == ("CGD107", "harmless")
    reserved = diff(make(update=update, reserved=lambda self: {"cache": [4]}), 2, 1, 2)
    assert reserved.findings == ()


def near_a_tie(error: float) -> Callable[[Any, Inputs], Inputs]:
    """A step that decides by a sum which the number of rows moves by `error` a row."""

    def forward(self: Any, inputs: Inputs) -> Inputs:
        score = inputs["x"] + 1 + error * len(inputs["x"])
        return {"y": torch.where(score > inputs["x"] + 1 + 3.5 * error, inputs["x"], -inputs["x"])}

    return forward


def test_a_close_decision_that_the_batch_size_turns_is_a_note(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(forward=near_a_tie(1e-5)), 4, 3, 4)
    assert (outcome.status, verdicts(outcome)) == (Status.PASSED, ["clean", "note", "clean"])
    assert (only(outcome).code, only(outcome).evidence["kind"]) == ("CGD107", "shape")
    assert "The batch size alone changes the result: eager on 4 rows, 3 of them live" in only(outcome).message


@pytest.mark.parametrize(
    "forward",
    [
        near_a_tie(1.0),
        lambda self, inputs: {"y": inputs["x"] / len(inputs["x"])},
        lambda self, inputs: {"y": inputs["x"] - inputs["x"].mean()},
    ],
    ids=["decides by the number of rows", "divides by it", "takes the mean over all rows"],
)
def test_a_step_that_counts_its_padding_is_at_fault(
    make: Make, diff: Callable[..., Outcome], forward: Callable[[Any, Inputs], Inputs]
) -> None:
    outcome = diff(make(forward=forward), 4, 3, 4)
    assert (outcome.status, only(outcome).code, only(outcome).step) == (Status.FOUND, "CGD102", 1)


def test_rounding_is_a_note_once_a_graph(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(CountingEngine, step=in_graphs(lambda self, i, y: y * (1 + 1e-5))), 2, 2, 2)
    assert (only(outcome).code, outcome.status, verdicts(outcome)) == ("CGD107", Status.PASSED, ["note"] * 3)


def counted(forgets: bool) -> dict[str, Any]:
    """Positions of 134 and more as floats beside logits that the number of rows rounds, and a number of the host's."""

    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        return {**Counters.next_inputs(self, step, n), "ahead": step % 2}

    def static_inputs(self: Any, bucket: int) -> Inputs:
        return {**Counters.static_inputs(self, bucket), "ahead": torch.zeros(1, device=self.device)}

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        Counters.update(self, static, {name: fresh[name] for name in ("x", "slots")})
        if not forgets:
            static["ahead"].fill_(fresh["ahead"])

    def forward(self: Any, inputs: Inputs) -> Inputs:
        logits = Counters.forward(self, inputs)["y"] * (1 / 3 + 1e-6 * len(inputs["x"]))
        return {"logits": logits, "position": inputs["slots"].float() + 134 + inputs["ahead"]}

    return {"next_inputs": next_inputs, "static_inputs": static_inputs, "update": update, "forward": forward}


def test_a_count_in_floats_that_is_off_by_one_is_no_rounding(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(**counted(forgets=True)), 4, 3, 4, 3)
    assert outcome.status is Status.FOUND and verdicts(outcome)[1] == "finding"
    finding = next(f for f in outcome.findings if f.severity is Severity.ERROR)
    assert finding.code == "CGD102"
    assert (
        "position: 3 of 3 values differ, up to 1 of 138, in whole numbers that no rounding reaches" in finding.message
    )
    sound = diff(make(**counted(forgets=False)), 4, 3, 4, 3)
    assert (sound.status, {f.code for f in sound.findings}) == (Status.PASSED, {"CGD107"}), "the logits are rounded"


def scaled(**staging: Any) -> dict[str, Any]:
    """A step with a Python number that its result hangs on."""

    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        return {**Counters.next_inputs(self, step, n), "scale": 1.0 + step}

    def static_inputs(self: Any, bucket: int) -> Inputs:
        return {**Counters.static_inputs(self, bucket), "scale": 1.0}

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        Counters.update(self, static, {name: fresh[name] for name in ("x", "slots")})

    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": Counters.forward(self, inputs)["y"] * inputs["scale"]}

    return {"next_inputs": next_inputs, "static_inputs": static_inputs, "update": update, "forward": forward, **staging}


def test_a_number_that_staging_leaves_out_is_named(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(**scaled()), 2, 1, 2)
    finding = only(outcome)
    assert (finding.code, finding.proof) == ("CGD102", Proof.CONFIRMED)
    assert verdicts(outcome) == ["clean", "finding", "finding"]
    assert finding.culprit is not None and (finding.culprit.kind, finding.culprit.name) == ("input", "scale")
    assert (finding.culprit.captured, finding.culprit.expected) == (1.0, 2.0)
    assert "`scale` of next_inputs never reaches graph 2" in finding.message
    assert "(1.0; 2.0 at this step)" in finding.message
    assert "healed by capturing the graph with `scale` as this step has it" in finding.message
    assert finding.location is not None and finding.location.function.endswith("update")
    assert "buffer.fill_(scale)" in finding.fix
    hidden = only(diff(make(**scaled()), 2, 1, 2, values=False))
    assert hidden.culprit is not None and hidden.culprit.expected is None and "2.0" not in hidden.message


@pytest.mark.parametrize("how", ["filled", "unused"])
def test_a_number_that_staging_need_not_set_is_no_fault(make: Make, diff: Callable[..., Outcome], how: str) -> None:
    def static_inputs(self: Any, bucket: int) -> Inputs:
        return {**Counters.static_inputs(self, bucket), "scale": torch.ones(1, device=self.device)}

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        Counters.update(self, static, {name: fresh[name] for name in ("x", "slots")})
        static["scale"].fill_(fresh["scale"])

    twins: dict[str, dict[str, Any]] = {
        "filled": {"static_inputs": static_inputs, "update": update},
        "unused": {"forward": Counters.forward},
    }
    outcome = diff(make(**scaled(**twins[how])), 2, 1, 2)
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())


def test_a_count_of_an_engine_that_is_off_by_one_is_no_rounding(make: Make, diff: Callable[..., Outcome]) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        return {"y": CountingEngine.step(self, i, n)["y"], "position": torch.full((n,), 134.0 + self.on, device=device)}

    target = make(CountingEngine, step=step)
    device = target.loop.device
    finding = only(diff(target, 2, 2))
    assert finding.code == "CGD102" and "position: 2 of 2 values differ, up to 1 of 134" in finding.message
    given = diff(make(CountingEngine, step=step), 2, 2, tolerances={"position": Tolerance(0.0, 1.0)})
    assert only(given).code == "CGD107", "a tolerance of the user's own decides"


@pytest.mark.parametrize("base", [Counters, CountingEngine])
def test_what_is_rounded_to_whole_numbers_may_round_to_the_next(
    make: Make, diff: Callable[..., Outcome], base: type
) -> None:
    def near_a_half(forward: Any) -> Callable[[Any, Inputs], Inputs]:
        def rounded(self: Any, inputs: Inputs) -> Inputs:
            other_kernel = 1e-3 * torch.cuda.is_current_stream_capturing()
            return {"y": (forward(self, inputs)["y"] / 8 + 134.4995 + other_kernel).round()}

        return rounded

    if base is Counters:
        target = make(forward=near_a_half(Counters.forward))
    else:
        target = make(CountingEngine)
        target.loop.forward = near_a_half(lambda _self, inputs: Counters.forward(target.loop, inputs)).__get__(
            target.loop
        )
        target.recapture()
    outcome = diff(target, 4, 4)
    assert (only(outcome).code, only(outcome).evidence["kind"]) == ("CGD107", "numerics")
    assert outcome.status is Status.PASSED and "note" in verdicts(outcome)


def accumulating(self: Any, step: int, n: int) -> Inputs:
    """Every step reads what the one before it wrote."""
    rows = torch.arange(n, device=self.device)
    return {"x": (rows + step + 1).float(), "slots": rows}


def overwriting(self: Any, inputs: Inputs) -> Inputs:
    """A step that puts out what earlier ones left, and repeats whatever is left of itself."""
    y = self.cache[:4].sum() + inputs["x"]
    self.cache[inputs["slots"]] = inputs["x"]
    return {"y": y}


def growing(put: Callable[[Any, torch.Tensor], None]) -> Callable[[Any, Inputs], Inputs]:
    """A step that makes a new cache, and puts it somewhere."""

    def forward(self: Any, inputs: Inputs) -> Inputs:
        put(self, self.cache.index_add(0, inputs["slots"], inputs["x"]))
        return {"y": self.cache[inputs["slots"]] + 0}

    return forward


def test_state_that_the_step_itself_replaces_is_named(make: Make, diff: Callable[..., Outcome]) -> None:
    def put(self: Any, new: torch.Tensor) -> None:
        self.cache = new

    finding = only(diff(make(forward=growing(put), next_inputs=accumulating), 2, 1, 2))
    assert (finding.code, finding.proof) == ("CGD101", Proof.CONFIRMED)
    assert finding.culprit is not None and finding.culprit.name == "cache"
    assert finding.message.startswith("`cache` is another tensor by now than the one that graph 2 captured")
    assert finding.location is not None and finding.location.code == "self.cache = new"


def keeping(self: Any, inputs: Inputs) -> Inputs:
    """A step that keeps what it put out for whoever asks."""
    self.last = Counters.forward(self, inputs)["y"]
    return {"y": self.last * 2}


@pytest.mark.parametrize("forward", [growing(lambda self, new: self.cache.copy_(new)), keeping])
def test_a_step_that_writes_in_place_or_keeps_what_nobody_reads(
    make: Make, diff: Callable[..., Outcome], forward: Callable[[Any, Inputs], Inputs]
) -> None:
    outcome = diff(make(forward=forward, next_inputs=accumulating), 2, 1, 2)
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())
    said = [text for text in outcome.not_checked if text.startswith("the memory of `last`")]
    assert len(said) == (forward is keeping), "what each step binds anew is no memory that could be compared"


def test_what_the_step_keeps_for_later_eager_steps_is_named(make: Make, diff: Callable[..., Outcome]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        kept = 0 if torch.cuda.is_current_stream_capturing() or self.graphs_only else self.kept
        self.kept = self.kept + inputs["x"].sum()
        return {"y": inputs["x"] + kept}

    def reset(self: Any) -> None:
        self.kept = torch.zeros(1, device=self.device)

    finding = diff(make(forward=forward, reset=reset, kept=torch.zeros(1), graphs_only=False)).findings[0]
    assert (finding.code, finding.proof) == ("CGD101", Proof.CONFIRMED)
    assert finding.culprit is not None and (finding.culprit.kind, finding.culprit.name) == ("state", "kept")
    assert "is another tensor after each eager step, and no replay of graph 2 puts one there" in finding.message
    assert finding.location is not None and finding.location.code == 'self.kept = self.kept + inputs["x"].sum()'
    assert diff(make(forward=forward, reset=reset, kept=torch.zeros(1), graphs_only=True)).findings == ()


def reloading(step: int, restored: bool = True) -> dict[str, Any]:
    """From a step on, staging puts another weight in place; reset() brings the first one back, if `restored`."""

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        Counters.update(self, static, fresh)
        self.weight = self.weight + float(fresh["x"][0] > step)

    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": Counters.forward(self, inputs)["y"] * self.weight}

    def reset(self: Any) -> None:
        Counters.reset(self)
        if restored or "weight" not in vars(self):
            self.weight = torch.full((1,), 3.0, device=self.device)

    return {"update": update, "forward": forward, "reset": reset}


def test_a_weight_that_staging_replaces_at_each_step_is_named(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(**reloading(0)), 2, 1, 2)
    finding = only(outcome)
    assert (outcome.status, finding.code, finding.proof) == (Status.FOUND, "CGD101", Proof.CONFIRMED)
    assert finding.culprit is not None and finding.culprit.name == "weight"
    assert "reads it, while the graph reads the old one (y: " in finding.message
    assert finding.location is not None and finding.location.code.startswith("self.weight = self.weight + ")
    assert [place.role for place in finding.related] == ["staged"]
    hidden = only(diff(make(**reloading(0)), 2, 1, 2, values=False))
    assert hidden.fingerprint == finding.fingerprint


def test_a_weight_that_reset_does_not_bring_back_is_said(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(**reloading(0, restored=False)), 2, 1, 2)
    assert outcome.status is Status.INCONCLUSIVE
    assert any(text.startswith("steps that read `weight`: staging puts another") for text in outcome.not_checked)


def test_a_weight_that_staging_replaces_by_its_like_is_no_fault(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(**reloading(99)), 2, 1, 2)
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())


@pytest.mark.parametrize("forward", [Counters.forward, overwriting])
def test_state_that_staging_replaces_is_named_once(
    make: Make, diff: Callable[..., Outcome], forward: Callable[..., Inputs]
) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        Counters.update(self, static, fresh)
        self.cache = self.cache.clone()

    outcome = diff(make(update=update, next_inputs=accumulating, forward=forward), 2, 2, 2)
    finding = only(outcome)
    assert (outcome.status, finding.code, finding.proof, finding.step) == (Status.FOUND, "CGD101", Proof.CONFIRMED, 0)
    assert finding.culprit is not None and (finding.culprit.kind, finding.culprit.name) == ("state", "cache")
    assert "`cache` is another tensor by now" in finding.message and "cache.copy_(new)" in finding.fix
    assert finding.location is not None and finding.location.file == __file__
    assert any("`cache` is put in another's place" in text for text in outcome.not_checked)
    hidden = only(diff(make(update=update, next_inputs=accumulating, forward=forward), 2, 2, 2, values=False))
    assert hidden.fingerprint == finding.fingerprint


@pytest.mark.parametrize("forward", [Counters.forward, overwriting])
def test_a_reset_that_replaces_state_is_refused_by_name(
    make: Make, diff: Callable[..., Outcome], forward: Callable[..., Inputs]
) -> None:
    def reset(self: Any) -> None:
        self.cache = torch.zeros_like(self.cache)

    with pytest.raises(TargetError, match=r"reset\(\) is not in place: `cache` is another tensor") as caught:
        diff(make(reset=reset, next_inputs=accumulating, forward=forward), 2, 2, 2)
    assert caught.value.seen.startswith("step ") and "cache.copy_(start)" in caught.value.fix


def test_a_reset_that_replaces_what_no_graph_reads_is_left_alone(make: Make, diff: Callable[..., Outcome]) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        self.log[i] = n  # kept beside the graphs, on the device
        return CountingEngine.step(self, i, n)

    def reset(self: Any) -> None:
        CountingEngine.reset(self)
        self.log = torch.zeros(8, device=self.loop.device)

    outcome = diff(make(CountingEngine, step=step, reset=reset), 2, 1, 2)
    assert (outcome.status, outcome.findings, verdicts(outcome)) == (Status.PASSED, (), ["clean"] * 3)


def test_a_tolerance_given_decides(make: Make, diff: Callable[..., Outcome]) -> None:
    def make_engine() -> Any:
        return make(CountingEngine, step=in_graphs(lambda self, i, y: y * 1.2))

    assert only(diff(make_engine(), 2, 2)).code == "CGD102"
    assert only(diff(make_engine(), 2, 2, tolerances={"y": Tolerance(0.5, 0.0)})).code == "CGD107"
    with pytest.raises(UsageError, match='"z", which the step does not put out'):
        diff(make_engine(), 2, 2, tolerances={"z": Tolerance(0.5, 0.0)})


def test_reserved_names_that_there_are(make: Make, diff: Callable[..., Outcome]) -> None:
    with pytest.raises(TargetError, match='"cash", and no tensor'):
        diff(make(reserved=lambda self: {"cash": [4]}))
    with pytest.raises(TargetError, match="row 5"):
        diff(make(reserved=lambda self: {"cache": [5]}))


def test_reserved_rows_by_a_path_that_is_not_the_shortest(make: Make, diff: Callable[..., Outcome]) -> None:
    engine = make(CountingEngine, reserved=lambda self: {"loop.cache": [4]})
    engine.k = engine.loop.cache  # as runners keep their layers' caches in a list
    assert diff(engine, 2, 1, 2).status is Status.PASSED


def test_replays_that_do_not_repeat(make: Make, diff: Callable[..., Outcome]) -> None:
    draw = random.Random(0)
    outcome = diff(make(CountingEngine, step=in_graphs(lambda self, i, y: y + draw.randrange(10**9))))
    assert {(finding.code, finding.proof) for finding in outcome.findings} == {("CGD106", Proof.MEASURED)}
    assert verdicts(outcome) == ["finding"] * 3


def test_an_engine_without_recapture(make: Make, diff: Callable[..., Outcome]) -> None:
    outcome = diff(make(CountingEngine, step=in_graphs(lambda self, i, y: y + 100)), 2)
    assert "either staging is wrong, or a value that the step sets" in only(outcome).message
    assert "ecapture()" not in only(outcome).fix
    target = make(CountingEngine, step=in_graphs(lambda self, i, y: y + 100))
    target.recapture = None
    outcome = diff(target, 2)
    assert only(outcome).code == "CGD102" and "up to 100 of 2, in 5 of 5 replays" in only(outcome).message
    assert any("no recapture()" in text for text in outcome.not_checked)
    assert only(outcome).fix.startswith("Add recapture() to the target")


def test_a_value_that_an_engine_sets_before_it_replays(make: Make, diff: Callable[..., Outcome]) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        self.loop.scale = 1.0 + i
        return CountingEngine.step(self, i, n)

    def reset(self: Any) -> None:
        self.loop.scale = 1.0

    engine = make(CountingEngine, step=step, reset=reset)
    engine.loop.scale = 1.0
    engine.loop.forward = lambda inputs: {"y": inputs["x"] * engine.loop.scale}
    engine.recapture()
    finding = only(diff(engine, 4, 4))
    assert (finding.code, finding.proof, finding.step) == ("CGD101", Proof.CONFIRMED, 1)
    assert finding.culprit is not None and (finding.culprit.captured, finding.culprit.expected) == (1.0, 2.0)


def test_two_stale_tails_of_an_engine_are_two_findings(make: Make, diff: Callable[..., Outcome]) -> None:
    def update(static: Inputs, fresh: Inputs) -> None:
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)

    def forward(inputs: Inputs) -> Inputs:
        cache, count = engine.loop.cache, engine.loop.count
        cache.index_add_(0, inputs["slots"], inputs["x"])
        count.index_add_(0, inputs["rows"], torch.ones_like(inputs["x"]))
        return {"y": cache[:4].sum() + count[:4].sum() + inputs["x"]}

    def next_inputs(step: int, n: int) -> Inputs:
        rows = torch.arange(n, device=device)
        return {"x": (rows + step + 1).float(), "slots": rows, "rows": rows.clone()}

    def reset(self: Any) -> None:
        self.loop.cache.zero_()
        self.loop.count.zero_()

    engine = make(CountingEngine, reset=reset, reserved=lambda self: {"loop.cache": [4], "loop.count": [4]})
    device = engine.loop.device
    engine.loop.count = torch.zeros(5, device=device)
    engine.loop.update, engine.loop.forward, engine.loop.next_inputs = update, forward, next_inputs
    engine.static["rows"] = torch.full((4,), 4, device=device)
    engine.recapture()
    findings = diff(engine, 4, 2, 4).findings
    assert {f.culprit.name for f in findings if f.culprit} == {"static.slots", "static.rows"}
    assert {f.code for f in findings} == {"CGD103"}


def test_a_runner_that_is_made_once_is_judged_without_a_fresh_graph(make: Make, diff: Callable[..., Outcome]) -> None:
    def graphed(self: Any) -> Callable[[Inputs], Inputs]:
        if self.engine is None:
            self.engine = CountingEngine(self.device)

        def run(fresh: Inputs) -> Inputs:
            self.engine.loop.update(self.engine.static, fresh)
            self.engine.graph.replay()
            return {"y": self.engine.y[: len(fresh["x"])] + 100}

        return run

    outcome = diff(make(graphed=graphed, engine=None), 2)
    assert only(outcome).code == "CGD102" and only(outcome).evidence["kind"] == "untold"
    assert only(outcome).fix.startswith("Let graphed() return a new runner")
    assert any("second call of graphed()" in text for text in outcome.not_checked)


def test_the_first_module_that_differs_is_named(make: Make, diff: Callable[..., Outcome]) -> None:
    class Layer(torch.nn.Module):
        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return y + (1 if torch.cuda.is_current_stream_capturing() else 0)

    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": self.layers(Counters.forward(self, inputs)["y"])}

    target = make(forward=forward)
    target.layers = torch.nn.Sequential(torch.nn.Identity(), Layer(), torch.nn.Identity())
    assert only(diff(target, 2)).evidence["first_diverging_module"] == "layers.1"


def test_an_output_that_is_kept_is_found_in_the_free_run(make: Make, diff: Callable[..., Outcome]) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        fresh = self.loop.next_inputs(i, n)
        if self.on:
            self.loop.update(self.static, fresh)
            self.graph.replay()
        y = self.y[:n] if self.on else self.loop.forward(fresh)["y"]
        total = y + (0 if self.last is None else self.last)
        self.last = y
        return {"y": total}

    def reset(self: Any) -> None:
        self.loop.reset()
        self.last = None

    outcome = diff(make(CountingEngine, step=step, reset=reset, last=None), 2, 2, 2)
    assert [finding.code for finding in outcome.findings if finding.severity is Severity.ERROR] == ["CGD104"]


# a replay that fails


def failing(at: int, error: Exception) -> Callable[[Any, int, int], Inputs]:
    """An engine's step that raises after its replay."""

    def change(self: Any, i: int, y: torch.Tensor) -> torch.Tensor:
        if i == at:
            raise error
        return y

    return in_graphs(change)


@pytest.mark.parametrize("at", [0, 1, 2])  # while its keys are met, and after that
def test_a_replay_that_raises_is_a_finding(make: Make, diff: Callable[..., Outcome], at: int) -> None:
    diary = Diary()
    outcome = diff(make(CountingEngine, step=failing(at, RuntimeError("no  luck"))), 2, 1, 2, progress=diary)
    finding = only(outcome)
    assert (outcome.status, finding.code, finding.step) == (Status.FOUND, "CGD003", at)
    assert finding.evidence["error"] == "RuntimeError: no luck"
    assert "what comes after the replay that failed" in outcome.not_checked
    assert finding.message.endswith("not by its graph. It raised RuntimeError: no luck"), "the report shows it at once"
    danger = replace(finding, message=finding.message.removesuffix(" It raised RuntimeError: no luck"))
    assert diary.events[-1] == ("journal", replace(danger, evidence={"moved": []})), "the danger is not over"


def test_what_was_found_before_is_told_too(make: Make, diff: Callable[..., Outcome]) -> None:
    def change(self: Any, i: int, y: torch.Tensor) -> torch.Tensor:
        self.calls += i == 2
        if self.calls > 1:  # once while the state is looked for
            raise RuntimeError("lost")
        return y + 100

    outcome = diff(make(CountingEngine, step=in_graphs(change), calls=0), 2, 2, 2)
    assert [(finding.code, finding.step) for finding in outcome.findings] == [("CGD003", 2), ("CGD102", 0)]


def test_staging_that_raises_is_the_targets(make: Make, diff: Callable[..., Outcome]) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        if len(fresh["x"]) == 1:
            raise ZeroDivisionError
        Counters.update(self, static, fresh)

    with pytest.raises(ZeroDivisionError):
        diff(make(update=update), 2, 1)


def test_before_each_replay_its_danger_is_told_and_taken_back(make: Make, diff: Callable[..., Outcome]) -> None:
    diary = Diary()
    diff(make(CountingEngine), progress=diary)
    told = [event for event, _ in diary.events if event in ("journal", "clear")]
    assert told[::2] == ["journal"] * (len(told) // 2) and told[1::2] == ["clear"] * (len(told) // 2) and told
    assert {finding.code for finding in diary.of("journal")} == {"CGD003"}


def test_a_mended_replay_of_a_bad_step_carries_that_finding(make: Make, diff: Callable[..., Outcome]) -> None:
    diary = Diary()
    diff(make(update=stale_slots), 2, progress=diary)
    codes = [finding.code for finding in diary.of("journal")]
    assert codes[0] == "CGD003" and codes[-1] == "CGD102"


def test_memory_that_ran_out_is_no_fault_of_the_replay(make: Make, diff: Callable[..., Outcome]) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        diff(make(CountingEngine, step=failing(1, torch.cuda.OutOfMemoryError("full"))), 2, 1)


def test_an_error_of_ours_is_no_fault_of_the_replay(make: Make, diff: Callable[..., Outcome], backend: Backend) -> None:
    with pytest.raises(ListenerError), backend.log.listening(replaying=lambda live: [][0]):
        diff(make())


def test_an_eager_step_that_raises_is_the_targets(make: Make, diff: Callable[..., Outcome]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        diff(make(forward=forward))


def reading(self: Any, inputs: Inputs) -> Inputs:
    """The host reads a device value in the step."""
    self.cache[0] = inputs["x"].max().item()
    return {"y": inputs["x"] + 0}


def test_an_illegal_operation_is_named_by_its_line(make: Make, diff: Callable[..., Outcome]) -> None:
    with pytest.raises(Inconclusive, match="cannot be captured") as raised:
        diff(make(forward=reading))
    assert "reading" in raised.value.seen and "max().item()" in raised.value.seen
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_step_that_puts_out_nothing_is_no_clean_one(make: Make, diff: Callable[..., Outcome]) -> None:
    with pytest.raises(Inconclusive, match="no tensor"):
        diff(make(forward=lambda self, inputs: None))


class CapturesOnTheWay:
    """An engine that captures when a batch size comes for the first time; its warm-up writes the padding slot."""

    batch_sizes = (1, 4)
    columns = 2

    def __init__(self, device: str) -> None:
        self.device = device
        self.cache = torch.zeros(9, device=device)
        self.on = False
        self.recapture()

    def recapture(self) -> None:
        """Forgets all graphs, and their buffers with them."""
        self.x = torch.ones(4, device=self.device)
        self.table = torch.full((4, 2), 8, device=self.device)
        self.made: dict[int, Any] = {}

    def captured(self, n: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        """With what is staged as it was."""
        staged = self.table.clone()
        self.table.fill_(8)
        self.decode(self.x[:n], self.table[:n])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = self.decode(self.x[:n], self.table[:n])
        self.table.copy_(staged)
        return graph, y

    def decode(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Each row writes the slot in the first column, and reads all of its own."""
        self.cache.index_add_(0, table[:, 0], x)
        return self.cache[table].sum(1)

    def step(self, i: int, n: int) -> torch.Tensor:
        """Two slots a row, in turns."""
        rows = torch.arange(n, device=self.device)
        x, table = (rows + i + 1).float(), torch.stack([rows * 2 + i % 2, rows * 2 + (i + 1) % 2], 1)
        if not self.on:
            return self.decode(x, table)
        self.x[:n].copy_(x)
        self.table[:n, : self.columns].copy_(table[:, : self.columns])
        if n not in self.made:
            self.made[n] = self.captured(n)
        graph, y = self.made[n]
        graph.replay()
        out: torch.Tensor = y.clone()
        return out

    def graphs(self, on: bool) -> None:
        """The switch."""
        self.on = on

    def reset(self) -> None:
        """All slots empty."""
        self.cache.zero_()


class CapturesOnTheWayStagingOneColumn(CapturesOnTheWay):
    columns = 1


def test_what_a_capture_on_the_way_changes_does_not_hide_the_culprit(
    diff: Callable[..., Outcome], backend: Backend
) -> None:
    (finding,) = diff(CapturesOnTheWayStagingOneColumn(backend.device), 1, 4, steps=8).findings
    assert finding.culprit is not None and finding.culprit.name == "table"


def test_captures_on_the_way_are_no_fault(diff: Callable[..., Outcome], backend: Backend) -> None:
    assert diff(CapturesOnTheWay(backend.device), 1, 4, steps=8).findings == ()
