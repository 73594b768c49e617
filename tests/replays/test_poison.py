"""Poison: what is legal, what is left alone, how far the steps go then; nothing is accused, and peers are spared."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cudagraph_doctor.checks import replay_inputs
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Status
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.replays.poison import sentinels, survey
from cudagraph_doctor.replays.surveyed import Surveyed
from cudagraph_doctor.settings import Settings

FILE = Path(__file__).with_name("late_value.py")


@pytest.fixture(scope="module")
def late() -> ModuleType:
    spec = importlib.util.spec_from_file_location("late_value", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def emulated() -> Backend:
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    return EmulatedBackend()


@pytest.fixture
def cuda() -> Backend:
    from cudagraph_doctor.graph.cuda import CudaBackend

    reason = CudaBackend.why_unusable()
    if reason:
        pytest.skip(reason)
    return CudaBackend()


def surveyed(backend: Backend, kind: Any, steps: int = 4) -> Surveyed:
    with backend.installed():
        return survey(kind(backend.device), backend, Settings("inputs", steps=steps, buckets=()), Silent())


@pytest.mark.parametrize(
    ("values", "legal"),
    [
        ([[5, 9], [7, 9]], (5, 7)),  # an index, a length: the two smallest
        ([[-1, 6], [4, 4]], (4, 6)),  # a slot: -1 writes nothing, and a live row need not know it
        ([[6, 6], [6, 6]], (6, 5)),  # one is known: what is smaller is within the same bounds
        ([[0, 0]], None),  # nobody knows whether 1 is legal
        ([[-1, -1]], None),
        ([[-2, -1]], (-2, -1)),
        ([[True], [True]], (False, True)),
        ([[0.5, float("nan")], [float("inf"), 2.0]], (0.5, 2.0)),  # finite
        ([[3.0]], (3.0, 1.5)),
        ([[0.0]], (0.0, 1.0)),
        ([[float("nan")]], None),
        ([[1j]], None),
        ([[]], None),
    ],
)
def test_sentinels_are_legal_for_their_kind(values: list[list[Any]], legal: object) -> None:
    assert sentinels([torch.tensor(value) for value in values]) == legal


def test_narrow_floats_have_sentinels() -> None:
    assert sentinels([torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn)]) == (0.5, 2.0)


def test_what_is_staged_at_each_step_is_no_ones_business(late: ModuleType, emulated: Backend) -> None:
    found = surveyed(emulated, late.Loop)
    assert found == Surveyed(steps=4, poisoned=("index", "temperature"))


@pytest.mark.parametrize("name", ["Forgets", "WhenItChanges"])
def test_what_is_left_alone_is_seen_and_more_steps_are_asked_for(
    name: str, late: ModuleType, emulated: Backend
) -> None:
    found = surveyed(emulated, getattr(late, name))
    (left,) = found.left_alone
    assert (left.name, left.of) == ("temperature", int(left.key)) and left.values > 0
    assert found.steps == 8, "16 steps go beyond LATE, 8 do not"


def test_the_steps_go_as_far_as_there_is_a_new_value(
    late: ModuleType, emulated: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "LATE", 40)
    assert surveyed(emulated, late.Forgets).steps == 32
    monkeypatch.setattr(late, "LATE", 10_000)
    assert surveyed(emulated, late.Forgets).steps == 8, "nothing new to be seen far out"


def test_the_steps_go_no_further_than_next_inputs_answers(late: ModuleType, emulated: Backend) -> None:
    class Ends(late.Forgets):  # type: ignore[name-defined, misc]
        def next_inputs(self, step: int, n: int) -> Any:
            if step > 10:
                raise IndexError("no such step")
            return super().next_inputs(step, n)

    assert surveyed(emulated, Ends).steps == 4


def test_an_engine_is_poisoned_where_its_steps_write(late: ModuleType, emulated: Backend) -> None:
    found = surveyed(emulated, late.Engine, steps=6)
    assert [(one.name, one.step, one.values) for one in found.left_alone] == [("static.temperature", 1, 4)]
    assert found.steps == 24 and {"static.index", "static.temperature"} <= set(found.poisoned)


def test_what_is_poisoned_is_put_back(late: ModuleType, emulated: Backend) -> None:
    with emulated.installed():
        engine = late.Engine(emulated.device)
        survey(engine, emulated, Settings("inputs", steps=5), Silent())
        assert engine.static["temperature"].tolist() == [1.0] * 4
        assert engine.step(1, 4).tolist() == [2.0, 3.0, 4.0, 5.0]


def test_a_step_that_cannot_bear_it_is_told(late: ModuleType, emulated: Backend) -> None:
    class Strict(late.Forgets):  # type: ignore[name-defined, misc]
        def update(self, static: Any, fresh: Any) -> None:
            super().update(static, fresh)
            if static["temperature"].cpu()[0] != 1:
                raise ValueError("temperature")

    found = surveyed(emulated, Strict)
    assert found.not_poisoned == {"temperature": "a step that follows it raised ValueError"}
    assert not found.left_alone


def test_memory_of_peers_is_refused(late: ModuleType, emulated: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="shares memory with peers") as refused:
        surveyed(emulated, late.OfPeers)
    assert "untouchable() names 1" in refused.value.seen
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UsageError) as refused:
        surveyed(emulated, late.Loop)
    assert refused.value.seen == "2 ranks"


def test_the_check_says_nothing_of_a_survey(late: ModuleType, emulated: Backend) -> None:
    with emulated.installed():
        outcome = replay_inputs.run(
            late.Forgets(emulated.device), emulated, Settings("inputs", steps=4, poison=True), Silent()
        )
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())
    assert outcome.checked["survey"]["steps"] == 8


@pytest.mark.gpu
def test_a_survey_on_a_gpu(late: ModuleType, cuda: Backend) -> None:
    assert surveyed(cuda, late.Loop) == Surveyed(steps=4, poisoned=("index", "temperature"))
    assert [one.name for one in surveyed(cuda, late.Forgets).left_alone] == ["temperature"]
    assert [one.name for one in surveyed(cuda, late.Engine).left_alone] == ["static.temperature"]


def test_bits_that_no_comparison_knows_are_staged_too(late: ModuleType, emulated: Backend) -> None:
    """NaN behind the batch is staged: it is like itself."""

    class Padded(late.Loop):  # type: ignore[name-defined, misc]
        def update(self, static: Any, fresh: Any) -> None:
            static["temperature"].fill_(torch.nan)
            super().update(static, fresh)

    assert surveyed(emulated, Padded) == Surveyed(steps=4, poisoned=("index", "temperature"))


def test_a_runner_of_its_own(late: ModuleType, emulated: Backend) -> None:
    """It names no inputs, and a table is none; which of the true values belongs where is not known."""

    class Runner(late.Forgets):  # type: ignore[name-defined, misc]
        def graphed(self) -> Any:
            return late.Runner(self)

    found = surveyed(emulated, Runner)
    assert [one.name for one in found.left_alone] == ["runner.static.temperature"]
    assert found.poisoned == ("runner.static.index", "runner.static.temperature") and found.steps == 16


def test_what_shares_memory_is_left_alone(late: ModuleType, emulated: Backend) -> None:
    class Shared(late.Loop):  # type: ignore[name-defined, misc]
        def next_inputs(self, step: int, n: int) -> Any:
            return {**super().next_inputs(step, n), "words": torch.ones(n, dtype=torch.int32, device=self.device)}

        def static_inputs(self, bucket: int) -> Any:
            both = torch.ones(bucket, device=self.device)
            index = torch.zeros(1, dtype=torch.int64, device=self.device).expand(bucket)
            return {"index": index, "temperature": both, "words": both.view(torch.int32)}

        def update(self, static: Any, fresh: Any) -> None:
            """Nothing: right at no step, which is nobody's business here."""

    other = "it shares memory with one of another dtype"
    assert surveyed(emulated, Shared).not_poisoned == {
        "index": "its elements share memory",
        "temperature": other,
        "words": other,
    }
