"""Reports made up for the tests of the gate: no GPU, no torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudagraph_doctor.findings import Culprit, Finding, Location, Outcome, Proof, Report, Severity, Status, Step

RULES = ("CGD101", "CGD102", "CGD107")


@pytest.fixture
def fault() -> Callable[..., Finding]:
    """Makes a finding: `fault("CGD101", "slot_mapping")`."""

    def make(code: str = "CGD101", name: str = "slot_mapping", line: int = 88, text: str = "run()") -> Finding:
        place = Location("/app/serving/decode.py", line, "Runner.run", text, "staged")
        what = f"`{name}` is frozen."
        return Finding(code, what, Severity.ERROR, Proof.CONFIRMED, "Copy it.", Culprit("input", name), place)

    return make


@pytest.fixture
def ran() -> Callable[..., Report]:
    """Makes a report of one check that found these."""

    def make(
        *findings: Finding,
        check: str = "diff",
        spec: str = "serving/decode.py",
        status: Status | None = None,
        coverage: float | None = 1.0,
        steps: int = 4,
        rules: tuple[str, ...] = RULES,
    ) -> Report:
        outcome = Outcome(
            check,
            status or (Status.FOUND if findings else Status.PASSED),
            steps=tuple(Step(i, 1, str(i % 2), "clean") for i in range(steps)),
            findings=findings,
            rules=rules,
            coverage=coverage,
        )
        return Report({"version": "0.1.0"}, {}, {"spec": spec, "form": "loop"}, (outcome,))

    return make
