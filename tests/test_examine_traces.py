"""`buckets` as a program: exit codes with a real process, no torch, formats, gates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.display import Display
from cudagraph_doctor.examine_traces import examine_traces
from cudagraph_doctor.misses.judged import Demands

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


@pytest.fixture
def trace(made_up: Callable[[], MadeUp], tmp_path: Path) -> Path:
    """Nine replays and an eager step above the largest bucket."""
    loop = made_up()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (8, 4)}
    for i in range(9):
        loop.decode(i, 3 + i % 4, None, graphs[4 if i % 4 < 2 else 8])
    loop.eager(9, 12)
    return loop.nsys(tmp_path / "trace.sqlite", environment="hf_SECRET")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; from cudagraph_doctor.cli import main; code = main(sys.argv[1:]);"
        "print('heavy:', sorted({'torch', 'pandas', 'numpy'} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_warnings_only_and_no_torch(trace: Path) -> None:
    done = run("buckets", trace)
    assert (done.returncode, "heavy: []" in done.stderr) == (0, True)
    assert done.stdout.startswith("10 decode steps: 9 replayed, 1 eager because batch 12 is above the largest")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--min-hit-rate", "90%"), 0),
        (("--min-hit-rate", "91%"), 1),
        (("--max-eager-steps", "0"), 1),
        (("--max-padding", "50%"), 0),
        (("--expect", "full"), 1),
        (("--expect-launches", "1"), 0),
        (("--fail-on", "warning"), 1),
        (("--buckets", "4,8,16"), 0),
        (("--min-hit-rate", "200%"), 2),
        (("--step-pattern", "("), 2),
        (("--step-pattern", r"^forward (?P<batch>\d+)"), 2),
        (("--compare-threshold", "5%"), 2),
        (("--compare", "nothing.json"), 2),
        (("--no-such-option",), 2),
    ],
)
def test_exit_codes(words: tuple[str, ...], code: int, trace: Path) -> None:
    done = run("buckets", trace, *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_refusals(tmp_path: Path) -> None:
    files = {"empty": (b"", 3), "text": (b"hello", 2), "other.json": (b"{}", 2), "short": (b"SQLite format 3\0", 3)}
    for name, (content, code) in files.items():
        (tmp_path / name).write_bytes(content)
        done = run("buckets", tmp_path / name)
        assert (done.returncode, done.stdout) == (code, ""), name
        assert "fix:" in done.stderr and "Traceback" not in done.stderr
    assert run("buckets", tmp_path).returncode == 2
    assert run("buckets", tmp_path / "nothing").returncode == 2
    assert run("buckets").returncode == 2


def test_a_report_without_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 2025")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("buckets", tmp_path / "t.nsys-rep")
    assert done.returncode == 3
    assert "nsys export --type sqlite --force-overwrite true --output t.sqlite t.nsys-rep" in done.stderr


def test_formats(trace: Path, tmp_path: Path) -> None:
    saved, table = tmp_path / "run.json", tmp_path / "steps.csv"
    done = run("buckets", trace, "--format", f"json={saved}", "--format", f"csv={table}")
    assert done.returncode == 0
    report = json.loads(saved.read_text())
    [outcome] = report["outcomes"]
    assert [step["verdict"] for step in outcome["steps"]] == ["FULL"] * 9 + ["EAGER"]
    assert len(table.read_text().splitlines()) == 11
    assert not any("SECRET" in text for text in (saved.read_text(), table.read_text(), done.stdout))
    again = run("report", saved)
    assert again.stdout == done.stdout


def test_compare(trace: Path, tmp_path: Path, made_up: Callable[[], MadeUp]) -> None:
    saved = tmp_path / "old.json"
    run("buckets", trace, "--format", f"json={saved}")
    assert run("buckets", trace, "--compare", saved).returncode == 0
    loop = made_up()
    graph = loop.capture(40, 8)
    for i in range(10):
        loop.decode(i, 8, None, graph) if i < 6 else loop.eager(i, 12)
    worse = loop.nsys(tmp_path / "worse.sqlite")
    assert run("buckets", worse, "--compare", saved).returncode == 1
    assert run("buckets", worse, "--compare", saved, "--compare-threshold", "40%").returncode == 0


def test_the_report_says_what_was_read(trace: Path) -> None:
    report = examine_traces([trace], Demands(min_hit_rate=0.5), "", Display())
    assert report.target == {"spec": "trace.sqlite"}
    assert report.settings["min_hit_rate"] == 0.5
    [about] = report.outcomes[0].checked["traces"]
    assert (about["file"], about["kind"], about["steps"], about["captures"]) == ("trace.sqlite", "nsys", 10, 2)
    assert about["lanes"] == ["process 4711"]
