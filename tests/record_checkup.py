"""Records how `checkup` does on every planted fault and twin: `python tests/record_checkup.py --backend cuda`.

`--shard i/n` takes every n-th fault, from the i-th; what `--output` holds of this commit already is not run again, so a
run that was cut off goes on where it ended. From `tests/data/checkup_BACKEND.jsonl`, where all shards may be put
together (`cat`), `docs/regenerate.py` makes a table. Each variant runs in a process of its own, on one core: shards are
there to share the others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cudagraph_doctor.findings import Report
from cudagraph_doctor.policy import gate_of
from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS
from cudagraph_doctor.reference_models.faults import FAULTS, Fault
from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS
from cudagraph_doctor.report.json import load

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
ALL: dict[str, Fault] = {**FAULTS, **CAPTURE_FAULTS, **INPUT_FAULTS}
BATCHES = {"loop": ("--buckets", "4"), "engine": ("--batch-sizes", "8,7,1,8,2")}
"""What every variant is played with, by its form: as small as shows the faults."""
LONG = {"key-without-length"}
"""Faults that need all batch sizes of an engine's plan to show."""


@dataclass(frozen=True)
class Row:
    """One variant, examined."""

    commit: str
    backend: str
    device: str
    torch: str
    fault: str
    form: str
    twin: bool
    causes: int
    rule: str
    """Of the finding that leads the first cause."""
    others: tuple[str, ...]
    """Rules of what other checks found of it."""
    culprit: str
    proof: str
    exit_code: int
    seconds: float


def variants() -> list[tuple[str, str, bool]]:
    """(fault, form, whether it is the twin): those first that take longest, so that shards get as much to do each.

    Where a capture fails, two of the three checks are skipped.
    """
    found = [(name, form, twin) for name, fault in ALL.items() for form in fault.forms for twin in (False, True)]
    return sorted(found, key=lambda variant: variant[0] in CAPTURE_FAULTS and not variant[2])


def environment() -> dict[str, str]:
    """Of a child: on one core, this checkout first, then whatever this process was told to find."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}


def commit() -> str:
    """Of the working tree, with "+" if tracked files were changed since; "" outside of a repository."""
    told = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip()


def read(file: Path) -> list[Row]:
    """The rows of a recording; a line that was cut off is left out."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows.append(Row(**{**data, "others": tuple(data["others"])}))
    return rows


def examined(name: str, form: str, twin: bool, backend: str, preset: str, stamp: str) -> Row:
    """One variant, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        words = [sys.executable, "-m", "cudagraph_doctor", "checkup", f"reference:{form}", "--fault", name]
        words += ["--twin"] * twin + ["-a", f"preset={preset}", "--backend", backend, "--steps", "4"]
        words += BATCHES[form] if name not in LONG else ()
        words += ["--format", f"json={file}", "--format", f"terminal={Path(folder) / 'text'}"]
        started = time.perf_counter()
        done = subprocess.run(
            words, cwd=ROOT, env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        seconds = time.perf_counter() - started
        if not file.exists():
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return row(load(file), name, form, twin, stamp, round(seconds, 1))


def row(report: Report, name: str, form: str, twin: bool, stamp: str, seconds: float) -> Row:
    """What a report says."""
    findings = report.findings
    cause = report.causes[0] if report.causes else None
    leading = findings[cause.leading] if cause else None
    environment = report.environment
    return Row(
        stamp,
        str(environment.get("backend", "")),
        str(environment.get("gpu") or "CPU"),
        str(environment.get("packages", {}).get("torch", "")),
        name,
        form,
        twin,
        len(report.causes),
        leading.code if leading else "",
        tuple(findings[number].code for number in cause.others) if cause else (),
        leading.culprit.name if leading and leading.culprit else "",
        leading.proof.value if leading else "",
        gate_of(report).exit_code,
        seconds,
    )


def table(rows: list[Row], to_pages: str) -> Iterator[str]:
    """Markdown: a line a fault, its twin beside it."""
    yield "| fault | form | rule | also by | culprit | proof | backend | seconds | its twin |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    twins = {(one.fault, one.form): one for one in rows if one.twin}
    for one in (one for one in rows if not one.twin):
        twin = twins.get((one.fault, one.form))
        rule = f"[{one.rule}]({to_pages}/{one.rule}.md)" if one.rule else "not seen"
        more = "" if one.causes <= 1 else f" (and {one.causes - 1} more root causes)"
        told = "" if twin is None else f"{twin.causes} causes, exit {twin.exit_code}"
        cells = [f"`{one.fault}`", one.form, rule + more, ", ".join(one.others), f"`{one.culprit}`", one.proof]
        yield f"| {' | '.join([*cells, one.backend, f'{one.seconds:g}', told])} |"


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["cuda", "emulated"], default="emulated")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--output", type=Path, help="default: tests/data/checkup_BACKEND.jsonl")
    parser.add_argument("--preset", default="tiny")
    arguments = parser.parse_args()
    first, shards = map(int, arguments.shard.split("/"))
    output = arguments.output or DATA / f"checkup_{arguments.backend}.jsonl"
    stamp = commit()
    known = {(one.fault, one.form, one.twin) for one in read(output) if one.commit == stamp}
    for variant in variants()[first - 1 :: shards]:
        if variant in known or not (arguments.backend == "cuda" or ALL[variant[0]].emulated):
            continue
        found = examined(*variant, arguments.backend, arguments.preset, stamp)
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        print(f"{found.fault} {found.form}{' (twin)' * found.twin}: {found.causes} causes, {found.rule}", flush=True)


if __name__ == "__main__":
    main()
