"""The program on the bundled model, emulated, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SMALL = ["-a", "preset=tiny", "--backend", "emulated", "--steps", "2", "--buckets", "2"]


def doctor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudagraph_doctor", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_bundled_model_is_clean(tmp_path: Path) -> None:
    done = doctor(tmp_path, "diff", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "Emulated on the CPU" in done.stdout
    assert "Clean: nothing wrong was found" in done.stdout
    assert "Not checked:" in done.stdout
    assert os.listdir(tmp_path) == []


def test_a_planted_fault_is_found_by_name(tmp_path: Path) -> None:
    done = doctor(
        tmp_path, "diff", "reference", *SMALL, "--fault", "slot-mapping-not-copied", "--format", "json=run.json"
    )
    assert done.returncode == 1, done.stderr
    assert "slot_mapping" in done.stdout
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["target"]["fault"] == "slot-mapping-not-copied"
    assert report["environment"]["backend"] == "emulated"
    [finding] = [f for f in report["outcomes"][0]["findings"] if f["severity"] == "error"]
    assert (finding["code"], finding["culprit"]["name"]) == ("CGD102", "slot_mapping")
    assert finding["location"]["file"].endswith("faulty_staging.py")
    again = doctor(tmp_path, "report", "run.json")
    assert again.stdout == done.stdout
