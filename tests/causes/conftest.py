"""Reports of several checks, made up: no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudagraph_doctor.findings import Culprit, Finding, Location, Outcome, Proof, Report, Severity, Status, Step

Make = Callable[..., Finding]
Checked = Callable[..., Report]


def _finding(code: str, name: str = "", *, proof: Proof = Proof.CONFIRMED, **evidence: Any) -> Finding:
    fields = {key: evidence.pop(key) for key in ("step", "key", "location", "severity") if key in evidence}
    fields = {"severity": Severity.ERROR, "key": "4", **fields}
    culprit = Culprit("input", name) if name else None
    return Finding(code, f"{code} says so.", proof=proof, fix="Mend it.", culprit=culprit, evidence=evidence, **fields)


def _report(*, bad: dict[str, tuple[int, ...]] | None = None, **found: list[Finding]) -> Report:
    outcomes = tuple(
        Outcome(
            check,
            Status.FOUND if findings else Status.PASSED,
            steps=tuple(Step(index, 4, "4", "finding") for index in (bad or {}).get(check, ())),
            findings=tuple(findings),
        )
        for check, findings in found.items()
    )
    return Report({}, {}, {}, outcomes)


@pytest.fixture
def make() -> Make:
    """Makes a finding: code, name of the culprit, evidence."""
    return _finding


@pytest.fixture
def checked() -> Checked:
    """Makes a report of findings by check; `bad` are the steps at which a check saw something."""
    return _report


@pytest.fixture
def line() -> Location:
    """A line that launches something."""
    return Location("/app/decode.py", 88, "forward", "attend(q, slots)")
