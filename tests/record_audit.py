"""Measures keys on a GPU, predicts a workload, plays the same under a profiler: small JSON, what tests and docs read.

    python tests/record_audit.py --output tests/data/audit

For each of `RUNS`: `audit --target` with the workload (costs and prediction), `record` of the same batches, and
`buckets` on the trace (what was seen). Nothing of the machine is kept but the name of its GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "data" / "audit"
MOST = 16
STEPS = 300


@dataclass(frozen=True)
class Run:
    """One target and one workload."""

    name: str
    spec: str
    seed: int
    """Of the batches."""

    def batches(self) -> list[int]:
        """Requests in each step: they arrive and leave at random, between 1 and `MOST`."""
        draw, active, found = random.Random(self.seed), 6, []
        for _ in range(STEPS):
            active = min(MOST, max(1, active + draw.choice((-2, -1, -1, 0, 0, 1, 1, 2))))
            found.append(active)
        return found


RUNS = (Run("reference", "reference:loop", 1), Run("short-list", "tests/measuring/short_list.py", 2))


def audited(run: Run, folder: Path) -> dict[str, Any]:
    """The report of the measured audit."""
    (folder / "workload.csv").write_text("batch\n" + "".join(f"{batch}\n" for batch in run.batches()))
    words = ["--target", run.spec, "--backend", "cuda", "--max-batch", str(MOST)]
    words += ["--workload", str(folder / "workload.csv"), "--save-costs", str(folder / "costs.json")]
    return _report("audit", words, folder)


def seen(run: Run, folder: Path) -> dict[str, Any]:
    """What `buckets` sees in a trace of the same batches: the first step is not labelled, so it is one more."""
    sizes = [MOST, *run.batches()]
    words = ["-o", str(folder / "trace"), "--steps", str(len(sizes)), "--scrub"]
    words += ["--batch-sizes", ",".join(map(str, sizes)), "--then-check"]
    return _report("record", [run.spec, *words], folder)


def _report(command: str, words: Sequence[str], folder: Path) -> dict[str, Any]:
    file = folder / f"{command}.json"
    done = subprocess.run(
        [sys.executable, "-m", "cudagraph_doctor", command, *words, "--format", f"json={file}"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} {run_words(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def environment() -> dict[str, str]:
    """Of a child: it finds this checkout first, then whatever this process was told to find."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def run_words(words: Sequence[str]) -> str:
    """A command line, short enough to read."""
    return " ".join(word if len(word) < 60 else f"{word[:57]}..." for word in words)


def kept(run: Run, audit: dict[str, Any], trace: dict[str, Any], costs: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping of both reports."""
    [measured], [buckets] = audit["outcomes"], trace["outcomes"]
    [predicted] = measured["checked"]["summary"]["configurations"][0]["sets"]
    summary = buckets["checked"]["summary"]
    environment = audit["environment"]
    return {
        "command": "python tests/record_audit.py",
        "spec": run.spec,
        "torch": environment["packages"]["torch"],
        "gpu": environment["gpu"],
        "batches": run.batches(),
        "costs": costs,
        "measured": measured["checked"]["measured"],
        "findings": sorted({finding["code"] for finding in measured["findings"]}),
        "seconds": measured["seconds"],
        "predicted": {name: predicted["traffic"][name] for name in ("hit_rate", "padding_share", "ms")},
        "seen": {
            "steps": summary["decode_steps"],
            "hit_rate": summary["hit_rate"]["by_steps"],
            "padding_share": summary["padding"]["share"],
            "steps_of_unknown_padding": summary["padding"]["steps_unknown"],
        },
    }


def record(run: Run, output: Path) -> str:
    """One file; returns a line about it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        audit = audited(run, folder)
        found = kept(run, audit, seen(run, folder), json.loads((folder / "costs.json").read_text()))
    file = output / f"{run.name}.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    return f"{file.name}: predicted {found['predicted']}, seen {found['seen']}, findings {found['findings']}"


def file_of(name: str) -> Path:
    """Where a run is kept."""
    return RECORDED / f"{name}.json"


def load(name: str) -> dict[str, Any]:
    """A recorded run."""
    found: dict[str, Any] = json.loads(file_of(name).read_text())
    return found


def keys_table(recorded: dict[str, Any]) -> str:
    """A row a key, in Markdown."""
    heads = ["key", "nodes", "capture", "instantiate", "replay", "smallest batch", "eager", "graph", "pool alone"]
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for key in recorded["measured"]["keys"]:
        cells = [key["size"], key["nodes"], f"{key['capture_ms']:.3g} ms", f"{key['instantiate_ms']:.3g} ms"]
        cells += [f"{key['replay']['median_ms']:.3g} ms"]
        cells += [f"{key['padded']['median_ms']:.3g} ms ({key['padded_rows']} rows)" if key["padded"] else ""]
        cells += [f"{key['eager']['median_ms']:.3g} ms"]
        cells += [f"{key[name] / 2**20:.3g} MiB" for name in ("graph_bytes", "pool_bytes")]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def pools_sentence(recorded: dict[str, Any]) -> str:
    """One pool against others."""
    pools, keys = recorded["measured"]["pools"], recorded["measured"]["keys"]
    one, alone, small = (
        f"{count / 2**20:.4g} MiB"
        for count in (pools["as_captured"], sum(key["pool_bytes"] for key in keys), pools["smallest_first"])
    )
    return f"One pool, the largest key first: {one}; the smallest first: {small}; a pool each: {alone}."


def runs_table(recorded: dict[str, dict[str, Any]]) -> str:
    """Predicted against seen, in Markdown."""
    rows = ["| target | steps | hit rate predicted | seen | padding predicted | seen |", "| --- " * 6 + "|"]
    for run in recorded.values():
        predicted, seen = run["predicted"], run["seen"]
        shares = (f"{where[name]:.2%}" for name in ("hit_rate", "padding_share") for where in (predicted, seen))
        rows.append(f"| `{run['spec']}` | {seen['steps']} | {' | '.join(shares)} |")
    return "\n".join(rows)


def main() -> None:
    """Record all runs, one after the other: they are timed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RECORDED)
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for run in RUNS:
        print(record(run, output), flush=True)


if __name__ == "__main__":
    main()
