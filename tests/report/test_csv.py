"""The step table as CSV: a row a step, all columns that any step has."""

from __future__ import annotations

import csv
import io

from cudagraph_doctor.findings import Outcome, Report, Status, Step
from cudagraph_doctor.report.csv import render
from cudagraph_doctor.report.view import View


def rows(*steps: Step) -> list[dict[str, str]]:
    report = Report({}, {}, {}, (Outcome("buckets", Status.PASSED, steps=steps),))
    return list(csv.DictReader(io.StringIO(render(report, View()))))


def test_rows() -> None:
    first, second = rows(
        Step(0, 3, "4", "FULL", {"label": "decode, bs=3", "padding_rows": 1, "graphs": ["7"]}),
        Step(1, 9, "", "EAGER", {"label": "decode", "reason": 'a "reason"'}),
    )
    assert (first["check"], first["index"], first["rows"], first["key"], first["verdict"]) == (
        "buckets",
        "0",
        "3",
        "4",
        "FULL",
    )
    assert (first["label"], first["padding_rows"], first["graphs"], first["reason"]) == (
        "decode, bs=3",
        "1",
        '["7"]',
        "",
    )
    assert (second["reason"], second["padding_rows"]) == ('a "reason"', "")


def test_no_steps() -> None:
    assert render(Report({}, {}, {}, ()), View()) == "check,index,rows,key,verdict\n"


def test_a_label_is_no_formula() -> None:
    [row] = rows(Step(0, 1, "", "EAGER", {"label": "=cmd()"}))
    assert row["label"] == "'=cmd()"
