"""The Bad and Good programs of the rule pages do what their names say, on the emulated backend."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor import worker
from cudagraph_doctor.findings import Finding, Status, outcome_from_json
from cudagraph_doctor.rules import RULES
from cudagraph_doctor.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
PROGRAMS = {file.stem: file for file in EXAMPLES}
BAD = [name for name in PROGRAMS if name.endswith("_bad")]
SOUND = [name for name in PROGRAMS if not name.endswith("_bad")]
WITHOUT = {
    "CGD105": "needs streams that overlap: a GPU",
    "CGD106": "needs kernels that race or keep state: a GPU",
    "CGD107": "rounds differently in a graph: a GPU",
    "CGD207": "needs a library that calls cudaMalloc: a GPU",
    "CGD212": "needs graphs whose end frees something: a GPU",
    "CGD218": "needs a library that calls CUDA: a GPU",
    "CGD219": "is for what none of the others explains",
    "CGD306": "needs memory that is handed out again: a GPU",
    "CGD307": "needs memory that graphs do not keep alive: a GPU",
    "CGD311": "needs copies that run behind the host: a GPU",
    "CGD312": "needs copies that run behind the host: a GPU",
    "CGD314": "needs a pool that hands out memory twice: a GPU",
    "CGD321": "needs kernels that take bytes by value: a GPU",
    "CGD322": "needs launches that have a grid: a GPU",
}
"""Codes for which no program is shown, and why."""


def findings(name: str) -> tuple[Status, list[Finding]]:
    """What the check of its rule says of the program; `diff`, if it is no rule's."""
    rule = RULES.get(name.partition("_")[0])
    check = rule.check if rule and rule.check != "run" else "diff"
    events: list[dict[str, Any]] = []
    settings = Settings(check=check, spec=str(PROGRAMS[name]), backend="emulated", steps=4)
    worker.perform(settings, (check,), events.append)
    outcomes = [outcome_from_json(event["outcome"]) for event in events if event["event"] == "outcome"]
    assert len(outcomes) == 1, events
    return outcomes[0].status, list(outcomes[0].findings)


@pytest.mark.parametrize("name", BAD)
def test_bad_program_draws_its_own_code_and_no_other(name: str) -> None:
    _, found = findings(name)
    assert {finding.code for finding in found} == {name.removesuffix("_bad")}


@pytest.mark.parametrize("name", SOUND)
def test_good_program_draws_nothing(name: str) -> None:
    assert findings(name) == (Status.PASSED, [])


def test_every_code_has_a_pair_or_a_reason() -> None:
    codes = {name.removesuffix("_bad") for name in BAD}
    assert {name.removesuffix("_good") for name in SOUND if name.startswith("CGD")} == codes
    assert codes | set(WITHOUT) == {code for code, rule in RULES.items() if rule.check not in ("buckets", "audit")}
    assert not codes & set(WITHOUT)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("CGD")])
def test_the_page_shows_the_program(name: str) -> None:
    page = (ROOT / "docs" / "rules" / f"{name.partition('_')[0]}.md").read_text()
    assert re.search(rf"<!-- file docs/examples/{name}.py -->\n```python", page)
