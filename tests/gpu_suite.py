"""Run every test that needs a GPU, group by group, and print a short table: `python tests/gpu_suite.py [group...]`.

Each group has processes of its own, so a group that loses its CUDA context takes nothing else along; groups of a round
run side by side. A skipped test counts as a failure here: on a GPU machine nothing may be left out. A group that is
stopped shows what it had found so far. `--log FOLDER` keeps pytest's output, and each test's in GROUP.jsonl.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ("tests/graph/test_conformance.py",)
CAPTURES = (
    "tests/observation",
    "tests/checks/test_capture_ops.py",
    "tests/checks/test_planted_capture_faults.py",
    "tests/reference_models/test_faulty_capture.py",
)
"""Captures that fail, on purpose: they get processes of their own."""
INPUTS = ("tests/replays", "tests/checks/test_replay_inputs.py", "tests/checks/test_planted_input_faults.py")
APART = [f"--ignore={path}" for path in (*CONFORMANCE, *CAPTURES, *INPUTS)]
GROUPS = {
    "graph": ["tests/graph", *APART],
    "kernels": ["tests/reference_models", *APART],
    "zoo": ["tests/test_zoo.py", "-k", "diff-"],
    "zoo-capture": ["tests/test_zoo.py", "-k", "capture-0"],
    "zoo-inputs": ["tests/test_zoo.py", "-k", "inputs-0"],
    "zoo-audit": ["tests/test_zoo.py", "-k", "measured"],
    "zoo-poison": ["tests/test_zoo.py", "-k", "poisoned"],
    "faults": ["tests/checks", *APART],
    "conformance": list(CONFORMANCE),
    "capture": list(CAPTURES),
    "inputs": list(INPUTS),
    "program": ["tests/test_cli_gpu.py", "tests/proof"],
    "recording": ["tests/recording"],
    "checkup": ["tests/test_checkup_planted.py"],
    "audit": ["tests/measuring"],
    "engines": ["tests/examples", "-k", "not nano_vllm"],
    "nano-vllm": ["tests/examples", "-k", "nano_vllm"],
}
"""Group -> what pytest is told."""
WORKERS = {
    "conformance": 15, "capture": 15, "inputs": 15, "checkup": 15, "zoo": 3, "zoo-capture": 1, "zoo-inputs": 3,
    "zoo-poison": 15, "faults": 3, "program": 2, "engines": 2, "nano-vllm": 3,
}  # fmt: skip
"""Groups that are spread over processes (pytest-xdist), where that is installed."""
ROUNDS = (
    ("conformance",),
    ("capture",),
    ("inputs",),
    (
        "zoo",
        "zoo-capture",
        "zoo-inputs",
        "faults",
        "program",
        "engines",
        "nano-vllm",
        "graph",
        "kernels",
        "recording",
    ),
    ("checkup",),
    ("zoo-poison",),
    ("audit",),  # it times steps
    ("zoo-audit",),
)
"""Groups that run side by side; made for 16 cores."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one group."""

    group: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    details: tuple[str, ...] = ()


def run(group: str, timeout_s: float, log: Path) -> Row:
    """Run one group; what crashes or hangs counts as one failure more."""
    events = log / f"{group}.jsonl"
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", f"--report-log={events}"]
    if group in WORKERS and importlib.util.find_spec("xdist"):
        command += ["-n", str(WORKERS[group])]
    started = time.perf_counter()
    output = log / f"{group}.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, *GROUPS[group]], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            ended = f"pytest ended with {process.wait(timeout_s)}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
            ended = f"stopped after {timeout_s:g} s"
    seconds = time.perf_counter() - started
    outcomes = dict(_outcomes(events)) if events.exists() else {}
    by_outcome = {name: [told for told in outcomes.values() if told[0] == name] for name in ("failed", "skipped")}
    details = [f"{outcome}: {test}: {message[:200]}" for test, (outcome, message) in outcomes.items() if message]
    failed, skipped = len(by_outcome["failed"]), len(by_outcome["skipped"])
    passed = len(outcomes) - failed - skipped
    if process.returncode != (1 if failed else 0):
        details.append(f"{ended}: {output.read_text(errors='replace')[-1000:]}")
        failed += 1
    return Row(group, passed, failed, skipped, seconds, tuple(details))


def _outcomes(events: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each test's outcome and message, from a log of pytest-reportlog; what came last of a test overrides."""
    passed = ("passed", "")
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["$report_type"] == "TestReport" and (event["outcome"], event["when"]) != ("passed", "setup"):
            told = passed if event["outcome"] == "passed" else (event["outcome"], _message(event["longrepr"]))
            if event["when"] == "call" or told != passed:
                yield event["nodeid"], told


def _message(longrepr: Any) -> str:
    """One line of why a test failed or was skipped."""
    if isinstance(longrepr, dict):
        return " ".join(str((longrepr["reprcrash"] or {}).get("message", "")).split()) or "no message"
    return " ".join(str(longrepr[-1] if isinstance(longrepr, list) else longrepr).split()[-40:])


def main() -> int:
    """Run the groups; exit 1 if anything failed or was skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"default: all ({', '.join(GROUPS)})")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a group may take")
    options = parser.parse_args()
    groups = options.groups or list(GROUPS)
    started = time.perf_counter()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder)
        log.mkdir(parents=True, exist_ok=True)
        for together in ROUNDS:
            with ThreadPoolExecutor() as pool:
                asked = [group for group in together if group in groups]
                rows += pool.map(lambda group: run(group, options.timeout, log), asked)
    for row in rows:
        print(*(f"  {row.group}: {detail}" for detail in row.details), sep="\n", end="\n" if row.details else "")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(f"commit {commit.stdout.strip() or 'unknown'}, {time.perf_counter() - started:.0f} s")
    print(f"{'group':10} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for row in rows:
        print(f"{row.group:10} {row.passed:7} {row.failed:7} {row.skipped:8} {row.seconds:8.1f}")
    return 1 if any(row.failed or row.skipped for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
