"""One fault or two: by what was mended, and by what healed; a name alone joins nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudagraph_doctor.causes.same import follows, is_named, same_fault, steps_of
from cudagraph_doctor.findings import Culprit, Location, Proof

if TYPE_CHECKING:
    from tests.causes.conftest import Make

NODE_7 = {"graph": "4", "node": 7, "parameter": 3}
NODE_8 = {"graph": "4", "node": 8, "parameter": 3}


def test_the_same_parameter_joins_whatever_the_names_are(make: Make) -> None:
    a = make("CGD102", 'runner.static[4]["slots"]', places=[NODE_8, NODE_7])
    b = make("CGD301", "slot_mapping", places=[NODE_7])
    assert same_fault(a, b) == "both are mended at what node 7, parameter 3 of graph 4 reads"


def test_a_name_alone_joins_nothing(make: Make) -> None:
    a, b = make("CGD102", "x", places=[NODE_7]), make("CGD301", "x", places=[NODE_8])
    assert same_fault(a, b) == ""
    assert same_fault(make("CGD102", "x"), make("CGD301", "x")) == ""


def test_the_same_bytes_join(make: Make) -> None:
    place = {"graph": "4", "step": 3, "bytes": "ab"}
    assert same_fault(make("A", "x", places=[place]), make("B", "y", places=[place])) == "the same bytes heal step 3"


def test_graphs_of_other_keys_are_joined_by_who_launches(make: Make) -> None:
    told = ["attend, parameter 3, launched at decode.py:88"]
    a = make("A", "x", places=[NODE_7], read_by=told)
    b = make("B", "y", places=[{**NODE_8, "graph": "16"}], read_by=told)
    assert "one launch reads: attend" in same_fault(a, b)
    unknown = ["attend, parameter 3"]  # no line: any layer may have launched it
    assert same_fault(replace(a, evidence={"read_by": unknown}), replace(b, evidence={"read_by": unknown})) == ""


def test_the_same_launching_line_joins_what_was_not_mended(make: Make, line: Location) -> None:
    a, b = make("CGD216", "copy", location=line), make("CGD301", "x", location=line, places=[NODE_7])
    assert same_fault(a, b) == "both are about what this line launches"
    assert same_fault(make("A", "y", location=line, places=[NODE_8]), b) == ""  # two parameters of one launch
    staged = replace(line, role="staged")
    assert same_fault(make("A", "x", location=staged), make("B", "y", location=staged)) == ""


def test_the_same_kept_output_joins(make: Make) -> None:
    a, b = make("CGD104", "kept", step=2, kept=["kept"]), make("CGD313", "kept", step=2, kept=["kept"])
    assert same_fault(a, b) == "the same output is kept over replays of graph 4"
    assert same_fault(a, make("CGD313", "kept", step=3, kept=["kept"])) == ""


def test_what_accuses_nobody_follows_from_what_heals_its_steps(make: Make) -> None:
    differs = make("CGD102", proof=Proof.MEASURED, step=2, seen_at_steps=[2, 3])
    healed = make("CGD310", "temperature", places=[NODE_7], seen_at_steps=[2])
    assert follows(differs, healed, frozenset()) == "the steps that differ are right once `temperature` is mended"
    assert follows(differs, healed, frozenset({3})) == ""  # a step that nothing mends: another fault
    assert follows(differs, replace(healed, proof=Proof.MEASURED), frozenset()) == ""
    assert follows(differs, make("CGD310", "x", seen_at_steps=[5]), frozenset()) == ""
    assert follows(replace(differs, evidence={**differs.evidence, "places": [NODE_8]}), healed, frozenset()) == ""


def test_wrong_state_names_nobody(make: Make) -> None:
    differs = replace(make("CGD102", step=4), culprit=Culprit("state", "k_cache"))
    assert not is_named(differs) and is_named(make("CGD301", "x"))
    assert steps_of(differs) == {4}
