"""Run every test that needs a GPU, group by group, and print a short table: `python tests/gpu_suite.py [group...]`.

Each group is a process of its own, so a group that loses its CUDA context takes nothing else along. A skipped test
counts as a failure here: on a GPU machine nothing may be left out. `--log FILE` keeps pytest's whole output.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GROUPS = {
    "graph": ["tests/graph"],
    "kernels": ["tests/reference_models"],
    "zoo": ["tests/test_zoo.py"],
    "faults": ["tests/checks"],
    "program": ["tests/test_cli_gpu.py", "tests/proof"],
    "engines": ["tests/examples"],
}
"""Group -> test paths."""


def run(group: str, paths: list[str], timeout_s: float, log: Path | None) -> tuple[int, int, int, float]:
    """(passed, failed, skipped, seconds) of one group; a group that crashes or hangs counts as one failure."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [*command, *paths], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
            )
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired as stopped:
            output = f"{stopped.stdout or b''!r}\nstopped after {timeout_s:g} s"
        seconds = time.perf_counter() - started
        if log:
            with log.open("a") as file:
                file.write(f"==== {group}\n{output}\n")
        if not report.exists():
            print(output[-2000:])
            return 0, 1, 0, seconds
        suite = ET.parse(report).getroot()
        cases = list(suite.iter("testcase"))
        failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
        skipped = [c for c in cases if c.find("skipped") is not None]
        for case in (*failed, *skipped):
            detail = next(child for child in case if child.tag in ("failure", "error", "skipped"))
            print(f"  {detail.tag}: {case.get('classname')}::{case.get('name')}: {(detail.get('message') or '')[:200]}")
        return len(cases) - len(failed) - len(skipped), len(failed), len(skipped), seconds


def main() -> int:
    """Run the groups; exit 1 if anything failed or was skipped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="default: all")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a group may take")
    options = parser.parse_args()
    rows = []
    for group in options.groups or GROUPS:
        rows.append((group, *run(group, GROUPS[group], options.timeout, options.log)))
    print(f"{'group':10} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for group, passed, failed, skipped, seconds in rows:
        print(f"{group:10} {passed:7} {failed:7} {skipped:8} {seconds:8.1f}")
    return 1 if any(failed or skipped for _, _, failed, skipped, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
