"""Errors that a user can mend: three short lines, an exit code, and never without a fix."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cudagraph_doctor
from cudagraph_doctor import policy
from cudagraph_doctor.errors import DoctorError, Inconclusive, TargetError, UsageError

PACKAGE = Path(cudagraph_doctor.__file__).parent
FAMILY = {"DoctorError", "UsageError", "TargetError", "Inconclusive"}


def test_text_is_what_seen_and_fix() -> None:
    error = UsageError("There is no bucket 3.", seen="its buckets are 1, 2, 4", fix="Name one of these.")
    assert str(error).splitlines() == [
        "There is no bucket 3.",
        "  seen: its buckets are 1, 2, 4",
        "  fix:  Name one of these.",
    ]


def test_nothing_seen_is_no_line() -> None:
    assert str(Inconclusive("It is.", fix="Do that.")).splitlines() == ["It is.", "  fix:  Do that."]


def test_an_error_without_a_fix_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="needs a fix"):
        DoctorError("It is broken.", fix="")


def test_exit_codes() -> None:
    codes = {error: error.exit_code for error in (UsageError, TargetError, Inconclusive)}
    assert codes == {
        UsageError: policy.USAGE,
        TargetError: policy.USAGE,
        Inconclusive: policy.INCONCLUSIVE,
    }


def test_every_error_raised_says_a_fix() -> None:
    """Also where no test gets to: none is made without `fix=`, or with an empty one."""
    files = [f for top in (PACKAGE, PACKAGE / "checks", PACKAGE / "reference_models") for f in top.rglob("*.py")]
    calls = [
        (file, node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FAMILY
    ]
    assert len(calls) > 50
    without = []
    for file, call in calls:
        fixes = [word.value for word in call.keywords if word.arg == "fix"]
        positional = call.args[2:3]
        if not (fixes or positional) or any(isinstance(f, ast.Constant) and not f.value for f in fixes):
            without.append(f"{file.name}:{call.lineno}")
    assert without == []
