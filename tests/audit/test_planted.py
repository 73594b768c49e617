"""Each rule's configuration in docs/examples/audit draws its code, and its twin draws nothing above a note."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor import cli
from cudagraph_doctor.audit import wording
from cudagraph_doctor.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "examples" / "audit"
PLANTED = {file.stem: file for file in sorted(FOLDER.glob("CGD*.yaml"))}
CONSEQUENCE = {"CGD509": {"CGD501"}}
"""What a fault cannot be without: a load that is stuck on the fallback has batches that no key serves."""


def audited(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings of the command in the file's first line."""
    monkeypatch.chdir(ROOT)
    command = PLANTED[name].read_text().splitlines()[0].removeprefix("# ")
    program, *arguments = shlex.split(command)
    assert program == "cudagraph-doctor" and str(PLANTED[name].relative_to(ROOT)) in arguments
    code = cli.main([*arguments, "--format", f"json={folder / 'r.json'}"])
    [outcome] = json.loads((folder / "r.json").read_text())["outcomes"]
    return code, outcome["findings"]


@pytest.mark.parametrize("code", wording.RULES)
def test_planted_fault_is_found(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exit_code, found = audited(f"{code}_bad", tmp_path, monkeypatch)
    spoken = {finding["code"] for finding in found if finding["severity"] != "note"}
    assert code in {finding["code"] for finding in found}
    assert spoken <= {code} | CONSEQUENCE.get(code, set())
    assert exit_code == (1 if RULES[code].severity.value == "error" else 0)


@pytest.mark.parametrize("code", wording.RULES)
def test_twin_is_silent(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exit_code, found = audited(f"{code}_good", tmp_path, monkeypatch)
    assert exit_code == 0
    assert code not in {finding["code"] for finding in found}
    assert [finding["message"] for finding in found if finding["severity"] != "note"] == []


def test_every_rule_has_a_pair_that_its_page_shows() -> None:
    assert set(PLANTED) == {f"{code}_{kind}" for code in wording.RULES for kind in ("bad", "good")}
    for name in PLANTED:
        page = (ROOT / "docs" / "rules" / f"{name.partition('_')[0]}.md").read_text()
        assert f"<!-- file docs/examples/audit/{name}.yaml -->" in page
