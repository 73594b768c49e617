"""What pyproject.toml says, parsed as the command line does."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_doctor.configured import configured
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.gate.judge import Demands
from cudagraph_doctor.gate.selection import PYPROJECT, Entry
from cudagraph_doctor.settings import Settings, Tolerance


def table(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.cudagraph-doctor]\n{text}\n")


def test_without_a_file_it_is_the_defaults(tmp_path: Path) -> None:
    settings, demands = configured("diff", tmp_path)
    assert settings == Settings("diff")
    assert demands == Demands()


def test_settings_and_demands(tmp_path: Path) -> None:
    table(
        tmp_path,
        """
steps = 3
buckets = [1, 2]
rtol = {logits = 0.1}
target-arg = {preset = "tiny"}
no-values = true
fail-on = "warning"
min-coverage = "90%"
select = "CGD1"
[tool.cudagraph-doctor.ignore]
CGD102 = "being mended"
""",
    )
    settings, demands = configured("diff", tmp_path)
    assert settings == Settings(
        "diff",
        steps=3,
        buckets=(1, 2),
        tolerances={"logits": Tolerance(0.1, 0.0)},
        target_args={"preset": "tiny"},
        values=False,
    )
    assert (demands.fail_on, demands.min_coverage) == ("warning", 0.9)
    assert demands.selection.entries == (
        Entry("CGD1", PYPROJECT, False),
        Entry("CGD102", PYPROJECT, True, "being mended"),
    )


def test_files_are_relative_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "known.json").write_text('{"schema_version": 1, "known": []}')
    table(tmp_path, 'baseline = "known.json"')
    _, demands = configured("diff", tmp_path)
    assert demands.baseline is not None and demands.baseline.known == ()
    assert Path.cwd() == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    "text", ["steps = 0", "backend = 'gpu'", "select = 'CGD9'", "step = 1", "baseline = 'no.json'"]
)
def test_a_mistake_is_a_usage_error(tmp_path: Path, text: str) -> None:
    table(tmp_path, text)
    with pytest.raises(UsageError):
        configured("diff", tmp_path)


@pytest.mark.parametrize(
    ("check", "said"), [("dif", 'Did you mean "diff"?'), ("buckets", "no check"), ("record", "no check")]
)
def test_what_is_no_check_of_targets(tmp_path: Path, check: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        configured(check, tmp_path)
    assert said in str(refused.value)
    assert "Use one of: checkup, diff, capture, inputs" in refused.value.fix
