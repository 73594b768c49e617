"""Shares as people write them, and the numbers of an older report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Outcome, Report, Status, to_json
from cudagraph_doctor.trace_options import fraction, older_numbers, pattern


@pytest.mark.parametrize(("text", "value"), [("0.95", 0.95), ("95%", 0.95), ("1", 1.0), ("0", 0.0), (None, None)])
def test_share(text: str | None, value: float | None) -> None:
    assert fraction(text) == value


@pytest.mark.parametrize("text", ["95", "x", "-1", "101%", "nan", ""])
def test_no_share(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no share; write 0\.95 or 95%"):
        fraction(text)


def test_a_pattern_that_is_given_is_not_empty() -> None:
    assert (pattern(None), pattern("^gen")) == ("", "^gen")
    with pytest.raises(ValueError, match="an empty pattern fits every label"):
        pattern("")


def test_older_numbers(tmp_path: Path) -> None:
    summary = {
        "decode_steps": 4,
        "hit_rate": {"by_steps": 0.75},
        "eager_steps": 1,
        "padding": {"share": None},
    }
    outcome = Outcome("buckets", Status.FOUND, checked={"summary": summary})
    file = tmp_path / "old.json"
    file.write_text(json.dumps(to_json(Report({}, {}, {}, (outcome,)))))
    assert older_numbers(file) == {"hit_rate": 0.75, "eager_share": 0.25}
    assert older_numbers(None) is None


def test_a_report_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    for outcome in (Outcome("diff", Status.PASSED), Outcome("buckets", Status.PASSED, checked={"summary": {}})):
        file.write_text(json.dumps(to_json(Report({}, {}, {}, (outcome,)))))
        with pytest.raises(UsageError, match="is no report of `buckets`"):
            older_numbers(file)
