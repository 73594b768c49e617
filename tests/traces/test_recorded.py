"""Traces recorded on a GPU by `record`: each step is what the fault makes of it, and no other code is drawn.

What each step has to be is derived from the faults (`record_all.EXPECTED`), not from what was read.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.checks import bucket_hits
from cudagraph_doctor.findings import Outcome, Severity
from cudagraph_doctor.misses.judged import Demands
from cudagraph_doctor.reference_models.runner_faults import RUNNER_FAULTS
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import sniff

if TYPE_CHECKING:
    from tests.traces.record_all import Recorded

FOLDER = Path(__file__).parents[1] / "data" / "traces"
SUFFIX = {"graph": "graph.sqlite.gz", "node": "node.sqlite.gz", "torch": "torch.json.gz"}

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason=f"{FOLDER} was not recorded yet (tests/traces/record_all.py)"
)


def judged(recorded: Recorded, mode: str, folder: Path) -> Outcome:
    file = FOLDER / f"{recorded.name}.{SUFFIX[mode]}"
    if mode != "torch":
        unpacked = folder / file.stem
        unpacked.write_bytes(gzip.decompress(file.read_bytes()))
        file = unpacked
    return bucket_hits.judge([collect(file, sniff(file))], Demands())


@pytest.mark.parametrize("mode", SUFFIX)
def test_every_step_and_every_code(recorded: Recorded, mode: str, tmp_path: Path) -> None:
    outcome = judged(recorded, mode, tmp_path)
    decode = [step for step in outcome.steps if step.detail["stage"] in ("decode", "mixed")]
    assert [step.verdict for step in decode] == recorded.verdicts()
    drawn = {finding.code for finding in outcome.findings if finding.severity is not Severity.NOTE}
    assert drawn == recorded.codes, [finding.message for finding in outcome.findings]
    if recorded.fault and not recorded.twin:
        planted = RUNNER_FAULTS[recorded.fault]
        culprits = [
            f"{f.culprit.kind} {f.culprit.name}" if f.culprit else ""
            for f in outcome.findings
            if f.code == planted.rule
        ]
        assert culprits and all(planted.culprit in name if planted.culprit else not name for name in culprits)


@pytest.mark.parametrize("mode", SUFFIX)
def test_buckets_padding_and_times_of_the_clean_model(
    mode: str, tmp_path: Path, clean: Recorded, sizes: tuple[int, ...], bucket: Callable[[int], int]
) -> None:
    outcome = judged(clean, mode, tmp_path)
    for i, step in enumerate(outcome.steps):
        rows = sizes[i % len(sizes)]
        assert (step.rows, step.key) == (rows, str(bucket(rows)))
        assert step.detail["padding_rows"] == bucket(rows) - rows
        assert step.detail["graph_launches"] == 1 and step.detail["gpu_ms"] > 0
        assert step.detail["submit_ms"] >= step.detail["in_calls_ms"] > 0
    kernels = {step.detail["graph_kernels"] for step in outcome.steps}
    assert min(kernels) > 10 and len(kernels) <= 3


def test_without_labels_the_steps_are_found_all_the_same(clean: Recorded, tmp_path: Path) -> None:
    import sqlite3

    file = tmp_path / "t.sqlite"
    file.write_bytes(gzip.decompress((FOLDER / f"{clean.name}.{SUFFIX['node']}").read_bytes()))
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE NVTX_EVENTS")
    outcome = bucket_hits.judge([collect(file, sniff(file))], Demands())
    assert [step.verdict for step in outcome.steps] == clean.verdicts()
    assert {finding.code for finding in outcome.findings} == {"CGD416"}


def test_nothing_in_them_tells_of_the_machine() -> None:
    for file in FOLDER.glob("*.gz"):
        content = gzip.decompress(file.read_bytes())
        assert not any(word in content for word in (b"/home", b"/root", b"/tmp", b"/usr", b"HOSTNAME", b"PATH="))


def test_they_are_small() -> None:
    assert max(file.stat().st_size for file in FOLDER.glob("*.gz")) < 300_000
