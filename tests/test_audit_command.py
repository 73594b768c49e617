"""`audit` on the command line: exit codes, files, and options that do not go together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudagraph_doctor import cli

LIST = ("--buckets", "1,2,4,8", "--max-batch", "8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a workload of batches 2, 3, 3 and 8."""
    (tmp_path / "w.csv").write_text("batch\n2\n3\n3\n8\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(*arguments: str, code: int = 0) -> dict[str, Any]:
    assert cli.main(["audit", *arguments, "--format", "json=r.json"]) == code
    loaded: dict[str, Any] = json.loads(Path("r.json").read_text())
    return loaded


def test_a_hole_is_exit_code_1(folder: Path) -> None:
    found = report("--buckets", "1,2,4,8", "--max-batch", "20", code=1)
    assert [f["code"] for f in found["outcomes"][0]["findings"]] == ["CGD501"]
    assert report(*LIST)["target"] == {"spec": "--buckets"}


def test_a_workload_and_gates(folder: Path) -> None:
    found = report(*LIST, "--workload", "w.csv", "--min-hit-rate", "100%", "--max-padding", "12%")
    assert found["outcomes"][0]["checked"]["gates"] == [
        {"option": "--min-hit-rate", "met": True, "message": "the hit rate is 100.0%, demanded are 100.0%"},
        {"option": "--max-padding", "met": True, "message": "padding is 11.1% of the rows, allowed are 12.0%"},
    ]
    report(*LIST, "--workload", "w.csv", "--max-padding", "11%", code=1)
    report(*LIST, "--min-hit-rate", "100%", code=3)


def test_findings_can_be_ignored(folder: Path) -> None:
    report("--buckets", "1,2", "--max-batch", "4", "--ignore", "CGD501")


def test_bad_input_is_exit_code_2_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "w.csv").write_text("batch\n2\n2.5\n")
    assert cli.main(["audit", *LIST, "--workload", "w.csv"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and 'cudagraph-doctor: "w.csv", row 3: the batch is no batch.' in told.err


def test_ranks(folder: Path) -> None:
    found = report("--buckets", "1,2,4/1,4", "--max-batch", "4", code=1)
    assert [(f["code"], f["rank"]) for f in found["outcomes"][0]["findings"]] == [("CGD508", 1)]


def test_tokens_and_no_padding(folder: Path) -> None:
    [one] = report("--buckets", "3,12", "--max-batch", "4", "--tokens-per-request", "3", "--no-padding", code=1)[
        "outcomes"
    ][0]["checked"]["summary"]["configurations"][0]["sets"]
    assert (one["unit"], one["padded"], one["uncovered"]) == ("tokens", False, {"no key of whole requests": "2 and 3"})


def test_emit_in_place_of_the_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", *LIST, "--workload", "w.csv", "--graphs", "2", "--emit", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {"buckets": [3, 8], "max_batch": 8}


def test_emit_to_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", *LIST, "--workload", "w.csv", "--graphs", "2", "--emit", "vllm=v.yaml"]) == 0
    assert capsys.readouterr().out.startswith("Every batch of up to 8 requests has a graph")
    assert yaml.safe_load((folder / "v.yaml").read_text())["compilation_config"] == {"cudagraph_capture_sizes": [3, 8]}


def test_what_is_read_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", *LIST, "--workload", "w.csv", "--emit", "yaml=w.csv"]) == 2
    assert "--emit yaml=w.csv would overwrite --workload w.csv" in capsys.readouterr().err
    assert (folder / "w.csv").read_text().startswith("batch")


def test_a_budget_of_memory_and_measured_costs(folder: Path) -> None:
    rows = [{"size": n, "replay_ms": float(n), "eager_ms": 9.0, "graph_bytes": 1 << 20} for n in (1, 2, 4, 8)]
    (folder / "c.json").write_text(json.dumps({"keys": rows, "source": "a test"}))
    found = report(
        *LIST, "--workload", "w.csv", "--costs", "c.json", "--graph-memory", "2MiB", "--max-graph-memory", "4M"
    )
    summary = found["outcomes"][0]["checked"]["summary"]
    assert summary["costs"] == {"origin": "measured: a test", "measured": True}
    assert summary["configurations"][0]["sets"][0]["better"]["keys"] == [3, 8]
    report(*LIST, "--costs", "c.json", "--max-graph-memory", "3M", code=1)
    report(*LIST, "--graph-memory", "2MiB", code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a CONFIGURATION, a list with --buckets"),
        (("f.yaml", "--buckets", "1"), "each say what the keys are"),
        ((*LIST, "--workload", "w.csv", "--arrivals", "3"), "--workload and --arrivals each say what the traffic is"),
        ((*LIST, "--burst", "3"), "--burst is for --arrivals, which is not given"),
        ((*LIST, "--column", "x"), "--column is for --workload"),
        ((*LIST, "--step-pattern", "x"), "--step-pattern is for --from-trace"),
        (("f.yaml", "--no-padding"), "--padding is for --buckets"),
        ((*LIST, "--rule", "vllm-50488"), "are for a CONFIGURATION"),
        ((*LIST, "--costs", "c.json", "--cost-model", "base=2"), "both say what steps cost"),
        ((*LIST, "--arrivals", "nan"), "is no number of requests a second"),
        ((*LIST, "--arrivals", "3", "--output-length", "0.5"), "is no number from 1 to"),
        ((*LIST, "--graphs", "0"), "--graphs"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_static_audit_imports_no_torch(folder: Path) -> None:
    program = (
        "import sys\nfrom cudagraph_doctor.cli import main\n"
        f"main(['audit', *{LIST!r}, '--workload', 'w.csv'])\n"
        "print('torch' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stderr.strip() == "False"
    assert done.stdout.startswith("Every batch of up to 8 requests has a graph; under the workload")


def test_buckets_in_pyproject_are_other_commands(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.cudagraph-doctor]\nbuckets = "1,2"\n')
    (folder / "f.yaml").write_text("buckets: [1, 2, 4]\nmax_batch: 4\n")
    assert report("f.yaml")["target"] == {"spec": "f.yaml"}
    assert report("--max-batch", "2")["target"] == {"spec": "--buckets"}
