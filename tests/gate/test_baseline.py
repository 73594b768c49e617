"""Known findings: written, read back, refused in words; old and new and gone ones are told apart."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Accepted, Finding, Report, Status
from cudagraph_doctor.gate import baseline
from cudagraph_doctor.gate.baseline import Baseline

Fault = Callable[..., Finding]
Ran = Callable[..., Report]


def known(*reports: Report) -> Baseline:
    return dataclasses.replace(baseline.of_reports(reports), file="known.json")


def test_it_comes_back_as_it_was(ran: Ran, fault: Fault, tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    written = known(ran(fault("CGD102"), fault("CGD101")), ran(fault(name="x"), check="capture"))
    file.write_text(baseline.text(written))
    read = baseline.load(file)
    assert read.file == str(file)
    assert sorted(read.known, key=str) == sorted(written.known, key=str)
    assert baseline.text(read) == baseline.text(written)


def test_the_file_does_not_hang_on_the_order(ran: Ran, fault: Fault) -> None:
    one = known(ran(fault("CGD101"), fault("CGD102")))
    other = known(ran(fault("CGD102"), fault("CGD101")))
    assert baseline.text(one) == baseline.text(other)


def test_a_moved_line_stays_known(ran: Ran, fault: Fault) -> None:
    accepted = list(known(ran(fault(line=88))).accepted([fault(line=120)]))
    assert accepted == [Accepted("known", "known.json")]


def test_what_is_not_in_it_is_new(ran: Ran, fault: Fault) -> None:
    have = known(ran(fault("CGD101", "slot_mapping")))
    new = [fault("CGD102", "slot_mapping"), fault("CGD101", "positions"), fault(text="run(other)")]
    assert list(have.accepted(new)) == [None, None, None]


def test_a_second_one_of_a_kind_is_new(ran: Ran, fault: Fault) -> None:
    once = known(ran(fault(line=88)))
    assert [bool(a) for a in once.accepted([fault(line=88), fault(line=92)])] == [True, False]
    twice = known(ran(fault(line=88), fault(line=92)))
    assert [bool(a) for a in twice.accepted([fault(line=88), fault(line=92)])] == [True, True]


def test_ignored_findings_are_left_out_and_known_ones_stay(ran: Ran, fault: Fault) -> None:
    report = ran(
        dataclasses.replace(fault("CGD101"), accepted=Accepted("ignored", "target", "x")),
        dataclasses.replace(fault("CGD102"), accepted=Accepted("known", "old.json")),
    )
    assert [entry.code for entry in known(report).known] == ["CGD102"]


def test_what_is_gone_is_told(ran: Ran, fault: Fault) -> None:
    [words] = known(ran(fault())).fixed(ran())
    assert words == "CGD101 frozen-in-graph: input slot_mapping in decode.py, Runner.run. It can leave known.json."


def test_what_is_still_there_or_was_not_looked_for_is_not_gone(ran: Ran, fault: Fault) -> None:
    have = known(ran(fault()))
    assert list(have.fixed(ran(fault(line=99)))) == []
    assert list(have.fixed(ran(status=Status.INCONCLUSIVE))) == []
    assert list(have.fixed(ran(check="capture"))) == []
    assert list(have.fixed(ran(spec="another/target.py"))) == []
    assert list(have.fixed(ran(rules=("CGD102",)))) == []


def test_one_of_two_is_gone(ran: Ran, fault: Fault) -> None:
    have = known(ran(fault(line=88), fault(line=92)))
    assert len(list(have.fixed(ran(fault(line=88))))) == 1


def test_traces_have_other_names_from_run_to_run(ran: Ran, fault: Fault) -> None:
    rules = ("CGD403",)
    have = known(ran(fault("CGD403"), check="buckets", spec="monday.sqlite", rules=rules))
    assert len(list(have.fixed(ran(check="buckets", spec="tuesday.sqlite", rules=rules)))) == 1


ENTRY = {
    "fingerprint": "ab",
    "code": "CGD101",
    "check": "diff",
    "target": "",
    "culprit": "",
    "place": "",
    "message": "m",
}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no complete JSON"),
        ("[]", "no baseline"),
        ({"schema_version": 1, "outcomes": []}, "it is a report"),
        ({"schema_version": 1, "known": {}}, "no baseline"),
        ({"schema_version": 2, "known": []}, "reads up to 1"),
        ({"schema_version": 1, "known": [{"code": "CGD101"}]}, "not whole"),
        ({"schema_version": 1, "known": ["CGD101"]}, "not whole"),
        ({"schema_version": 1, "known": [{**ENTRY, "colour": "red"}]}, "not whole"),
        ({"schema_version": 1, "known": [{**ENTRY, "code": 101}]}, "no text"),
    ],
)
def test_what_is_no_baseline_is_refused_in_words(tmp_path: Path, content: Any, said: str) -> None:
    file = tmp_path / "known.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UsageError) as refused:
        baseline.load(file)
    assert said in str(refused.value)
    assert refused.value.fix


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read") as refused:
        baseline.load(tmp_path / "known.json")
    assert "cudagraph-doctor baseline run.json --output" in refused.value.fix
