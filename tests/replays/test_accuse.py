"""From diagnosed steps to flags and trials, with made-up cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from cudagraph_doctor.checks import replay_inputs
from cudagraph_doctor.findings import Location, Outcome, Proof
from cudagraph_doctor.graph.backend import Edit, LiveGraph
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.model import GraphNode, NodeKind
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.cases import Case
from cudagraph_doctor.proof.diagnose import Diagnosis
from cudagraph_doctor.proof.nodes import Unlike
from cudagraph_doctor.proof.places import Places
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Kind as Verdict
from cudagraph_doctor.proof.verdict import StepRecord
from cudagraph_doctor.replays.accuse import CODES, Accused, accuse, measured
from cudagraph_doctor.replays.baked import Judged
from cudagraph_doctor.replays.candidates import Candidate, Kind, Part
from cudagraph_doctor.replays.content import HOLDS
from cudagraph_doctor.replays.judging import judged
from cudagraph_doctor.replays.model import Flag, History, Region, Replay
from cudagraph_doctor.replays.wording import findings
from cudagraph_doctor.settings import Settings

STAGING = Location("serve.py", 31, role="staged")
SCALE = "scale_rows, parameter 1 (scale)"


def case(*culprits: Remedy, kind: Verdict = Verdict.FROZEN, step: int = 0, **diagnosis: Any) -> Case:
    at = Planned(step, step, 4, 4)
    found = Diagnosis(list(culprits), confirmed=bool(culprits), tried=3, **diagnosis)
    return Case(at, kind, StepRecord(), found, "", Places(STAGING), (), (step,), True)


def baked(name: str = SCALE) -> Remedy:
    live = LiveGraph(0, lambda: None)  # type: ignore[arg-type]
    edits = ((live, Edit(0, 1, b"\0\0\0\0")),)
    return Remedy(Cause.BAKED, name, "parameter", edits=edits, was=1.0, expected=2.0)


def candidate(kind: Kind, values: tuple[Any, ...] = (1.0, 2.0, 1.0)) -> Candidate:
    part = Part(0, 4, "float32", values)
    return Candidate(kind, "4", 0, "scale_rows", (0,), ((0, 4), (1, 4), (2, 4)), 1, "scale", (part,), "self.scale")


def accused(history: History, *cases: Case, judged: Judged | None = None, own_keys: bool = False) -> Accused:
    return accuse(history, cases, judged or Judged(), own_keys, True)


@pytest.mark.parametrize("cause", CODES)
def test_what_heals_has_a_code_of_its_own(made_up: History, cause: Cause) -> None:
    found = accused(replace(made_up, flags=()), case(Remedy(cause, "lens", "input", "row 1")))
    assert [(flag.code, flag.replay) for flag in found.flags] == [(CODES[cause], 0)]
    assert [(trial.replay, trial.flags, trial.healed) for trial in found.trials] == [(0, (0,), True)]


@pytest.mark.parametrize(
    ("remedy", "staged"),
    [
        (Remedy(Cause.NOT_REFRESHED, "lens", "input"), True),
        (Remedy(Cause.LEFT_OUT, "lens", "input"), True),
        (Remedy(Cause.REBOUND, "lens", "weight"), True),
        (Remedy(Cause.BAKED, SCALE, "parameter"), False),
        (Remedy(Cause.UNINITIALISED, "memory of the graph's pool", "unnamed"), False),
        (Remedy(Cause.ATTRIBUTE, "longest", "output"), False),
    ],
)
def test_staging_is_shown_where_it_may_be_at_fault(made_up: History, remedy: Remedy, staged: bool) -> None:
    (flag,) = accused(replace(made_up, flags=()), case(remedy)).flags
    assert (flag.location, flag.related) == (STAGING if staged else None, ())


def test_the_readings_know_better_how_much_was_refreshed(made_up: History) -> None:
    read = Flag("CGD302", 0, 0, name="slots", where="row 1", evidence={"replays": 3})
    (flag,) = accused(replace(made_up, flags=(read,)), case(Remedy(Cause.NOT_REFRESHED, "slots", "input"))).flags
    assert (flag.code, flag.where, flag.region, flag.evidence["replays"]) == ("CGD302", "row 1", 0, 3)


def swapped(name: str, other: str, region: int) -> Flag:
    return Flag("CGD318", 0, region, name=name, kind="input", evidence={HOLDS: other})


def test_two_inputs_that_are_swapped_are_one_fault(made_up: History) -> None:
    regions = tuple(Region(i, "input", name, 4096 * i, 8) for i, name in enumerate(("a", "b", "c")))
    read = (swapped("a", "b", 0), swapped("b", "a", 1), swapped("c", "a", 2))
    made = replace(made_up, regions=regions, flags=read)
    remedies = [
        Remedy(Cause.NOT_REFRESHED, name, "input", "row 1", torch.zeros(2), notes={"read_by": [f"reads {name}"]})
        for name in ("a", "b", "c")
    ]
    found = accused(made, case(*remedies))
    assert [(flag.name, flag.evidence.get("names")) for flag in found.flags] == [("a", ["a", "b"]), ("c", None)]
    assert found.flags[0].evidence["read_by"] == ["reads a", "reads b"] and found.flags[0].where == "row 1"
    assert [(trial.flags, trial.bytes) for trial in found.trials] == [((0,), 16), ((1,), 8)]
    told = findings(judged(replace(made, trials=tuple(found.trials)), found.flags))
    assert [finding.message.partition(". ")[0] for finding in told] == [
        "The buffer of `a` holds what `b` should hold, and that of `b` what `a` should hold: the two are swapped",
        "The buffer of `c` holds what `a` should hold",
    ]
    assert "writing 16 bytes of `a`, `b` (row 1)" in told[0].message


def test_a_rebound_weight(made_up: History) -> None:
    (flag,) = accused(made_up, case(Remedy(Cause.REBOUND, "head.weight", "root"))).flags
    assert (flag.code, flag.kind) == ("CGD308", "weight")


def test_a_tensor_that_was_chosen_is_named_by_the_place_it_was_put_in(made_up: History) -> None:
    first = Region(9, "weight", "versions[0]", 1, 4, aliases=("head.weight",))
    history = replace(made_up, regions=(first,), flags=())
    chosen = Remedy(Cause.REBOUND, "versions[1]", "root", was="versions[0]", expected="versions[1]")
    later = Remedy(Cause.REBOUND, "head.weight", "weight")
    found = accused(history, case(chosen), case(later, step=1))
    assert [(flag.code, flag.name) for flag in found.flags] == [("CGD308", "head.weight")]
    assert [trial.flags for trial in found.trials] == [(0,), (0,)]


def test_tensors_of_one_object_are_one_flag(made_up: History) -> None:
    some = [Remedy(Cause.REBOUND, f"metadata.{name}", "input") for name in ("a", "b")]
    (flag,) = accused(made_up, case(*some)).flags
    assert flag.name == "metadata" and flag.evidence["names"] == ["metadata.a", "metadata.b"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(Kind.VALUE, "CGD320"), (Kind.OPAQUE, "CGD321"), (Kind.COUNTER, "CGD324"), (Kind.DRAW, "CGD324")],
)
def test_captures_tell_what_kind_of_value_is_baked(made_up: History, kind: Kind, code: str) -> None:
    (flag,) = accused(made_up, case(baked()), judged=Judged((candidate(kind),))).flags
    assert (flag.code, flag.held, flag.expected, flag.evidence["follows"]) == (code, 1.0, 2.0, "self.scale")


def test_a_descriptor_is_opaque_whatever_captures_tell(made_up: History) -> None:
    remedy = baked()
    remedy.notes["opaque"] = True
    for told in (Judged(), Judged((candidate(Kind.VALUE),))):
        assert [flag.code for flag in accused(made_up, case(remedy), judged=told).flags] == ["CGD321"]


def test_a_baked_value_that_a_key_could_hold_is_a_weak_key_of_whoever_has_keys(made_up: History) -> None:
    judged = Judged((candidate(Kind.VALUE),))
    assert [f.code for f in accused(made_up, case(baked()), judged=judged, own_keys=True).flags] == ["CGD325"]
    each_step = Judged((candidate(Kind.VALUE, (1.0, 2.0, 3.0)),))
    assert [f.code for f in accused(made_up, case(baked()), judged=each_step, own_keys=True).flags] == ["CGD320"]


def test_other_nodes_and_other_sizes_are_measured(made_up: History) -> None:
    old = GraphNode(0, NodeKind.KERNEL, "attend", (1, 1, 1), (64, 1, 1), 0)
    other = case(unlike=Unlike(3, None, old))
    wider = case(unlike=Unlike(3, old, replace(old, grid=(2, 1, 1))), step=1)
    found = accused(made_up, other, wider)
    assert [(flag.code, flag.kind, flag.where) for flag in found.flags] == [
        ("CGD323", "node", "node 3"),
        ("CGD322", "launch", "node 3"),
    ]
    assert found.flags[1].held["grid"] == (1, 1, 1) and found.flags[1].expected["grid"] == (2, 1, 1)
    assert not found.trials


def test_a_candidate_that_cannot_be_set_is_measured(made_up: History) -> None:
    found = accused(made_up, case(), judged=Judged((candidate(Kind.VALUE),)))
    assert [(flag.code, flag.name) for flag in found.flags] == [("CGD320", SCALE)] and not found.trials


def test_what_nothing_explains_is_kept_apart(made_up: History) -> None:
    wrong = case(kind=Verdict.DIFFERS)
    found = accused(made_up, wrong, case(), judged=Judged())
    assert not found.flags and found.unexplained[0] is wrong and len(found.unexplained) == 2


def test_a_sound_replay_is_not_harmed_and_a_measured_one_is() -> None:
    replay = Replay(0, 0, 4, "4", (0,))
    assert not replay.harmed and not measured(replay, case()).harmed
    assert measured(replay, replace(case(), record=StepRecord(harm_step=3))).harmed


def test_no_candidate_is_accused_beside_memory_that_is_gone(made_up: History) -> None:
    judged = Judged((candidate(Kind.DRAW),))
    bad = case(kind=Verdict.FROZEN)
    assert [flag.code for flag in accuse(made_up, [bad], judged, True, True).flags] == ["CGD324"]
    found = accuse(made_up, [bad], judged, True, True, lost=frozenset({"4"}))
    assert not found.flags and found.unexplained == [bad]


def inputs_of(make: Callable[[str], object], steps: int, rows: int) -> Outcome:
    """What `inputs` says of a target, emulated."""
    backend = EmulatedBackend()
    with backend.installed(), torch.no_grad():
        settings = Settings(check="inputs", steps=steps, batch_sizes=(rows,))
        return replay_inputs.run(make(backend.device), backend, settings, Silent())


class Rebinding:
    """Another bias than the captured one at each step, and work that only captures do: nothing mends that."""

    buckets = (4,)

    def __init__(self, device: str) -> None:
        self.device = device
        self.bias = torch.zeros(4, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        return {"x": torch.arange(n, device=self.device).float() + step}

    def prepare(self, static: Any, fresh: Any, bucket: int, capturing: bool) -> None:
        if not capturing:
            self.bias = torch.full((4,), 5.0, device=self.device)

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        y = inputs["x"] + self.bias[: len(inputs["x"])]
        return y + 1 if torch.cuda.is_current_stream_capturing() else y

    def reset(self) -> None:
        pass


def test_what_is_rebound_beside_a_fault_that_nothing_heals_is_told() -> None:
    outcome = inputs_of(Rebinding, steps=2, rows=4)
    (finding,) = outcome.findings
    assert finding.culprit is not None and finding.culprit.name == "bias" and finding.proof is Proof.MEASURED
    assert "changes the result without healing it: something else is wrong besides" in finding.message
    assert any(text.startswith("why step 0") for text in outcome.not_checked)


def test_what_was_mended_in_vain_is_kept_as_such(made_up: History) -> None:
    read = Flag("CGD301", 0, 0, name="slots", evidence={"replays": 3})
    found = accused(replace(made_up, flags=(read,)), case(names={"slots"}))
    assert [flag.name for flag in found.flags] == ["slots"] and [trial.healed for trial in found.trials] == [False]
    again = replace(made_up, flags=tuple(found.flags), trials=tuple(found.trials))
    assert findings(again) == [] and judged(again).flags[0] == found.flags[0]


class Tripling:
    """An engine that stages three times what it should."""

    batch_sizes = (2,)

    def __init__(self, device: str) -> None:
        self.device, self.on = device, True
        self.static = torch.zeros(2, dtype=torch.long, device=device)
        self.table = torch.arange(64.0, device=device) / 3
        self.recapture()

    def reset(self) -> None:
        pass

    def graphs(self, on: bool) -> None:
        self.on = on

    def recapture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.table[self.static]

    def step(self, i: int, n: int) -> torch.Tensor:
        x = torch.arange(n) + i
        if not self.on:
            return self.table[x.to(self.device)]
        self.static[:n].copy_(x * 3)
        self.graph.replay()
        return self.out[:n].clone()


def test_what_an_engine_stages_with_other_values_is_not_called_never_refreshed() -> None:
    outcome = inputs_of(Tripling, steps=6, rows=2)
    (finding,) = outcome.findings
    assert (finding.code, finding.culprit and finding.culprit.name) == ("CGD301", "static")
    assert "is filled before each replay, and not with this step's values" in finding.message
