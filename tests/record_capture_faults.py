"""Records how `capture` does on every planted fault and twin: `python tests/record_capture_faults.py [--jobs N]`.

On a GPU, in processes of their own: torch alone (`plain_capture.py`), and `capture`, with CUPTI and without; what shows
only in a new process has one for each run of it, all at a time. Each fault is written and told as soon as it is known,
so that a recording that was stopped goes on with the names that are left. From the result,
`tests/data/capture_faults.json`, `docs/regenerate.py` makes a table. Faults can be named; what was recorded of the
others stays. What the emulated backend does is asked anew each time, by the same code (`watched`, `score`), as the
tests do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cudagraph_doctor import worker
from cudagraph_doctor.findings import Culprit, Finding, Outcome, Proof, Status, outcome_from_json
from cudagraph_doctor.graph import cupti
from cudagraph_doctor.graph.attributes import replaced
from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS, CaptureFault, planted_lines
from cudagraph_doctor.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "data" / "capture_faults.json"
PRESET = {"preset": "tiny"}


TOOLS = ("with CUPTI", "without CUPTI")
ASKED = ("found", "line", "rule", "module", "culprit")
"""Fields of `Score` that have to be true for a fault."""


@dataclass(frozen=True)
class Score:
    """What of a planted fault was named; for a twin all but `others` is False."""

    found: bool
    """The check's status is FOUND, and nothing about the planted lines is only suspected."""
    line: bool
    """Every planted line has a finding."""
    rule: bool
    """Under its rule."""
    module: bool
    """In its module and thread."""
    culprit: bool
    """With the operation's name."""
    others: tuple[str, ...]
    """Further findings above a note: there must not be any."""
    message: str
    """Of the findings."""

    @property
    def right(self) -> bool:
        """Everything was named, and nothing else."""
        return all(getattr(self, name) for name in ASKED) and not self.others


def score(name: str, outcome: Outcome) -> Score:
    """Hold an outcome against what was planted."""
    fault = CAPTURE_FAULTS[name]
    spoken = [finding for finding in outcome.findings if finding.severity.rank > 0]
    planted = planted_lines(name)
    at = {(str((ROOT / place.file).resolve()), place.line): f for f in spoken if (place := f.location)}
    named = [at[line.file, line.line] for line in planted if (line.file, line.line) in at]
    every = len(named) == len(planted)
    return Score(
        found=outcome.status is Status.FOUND and all(finding.proof is not Proof.SUSPECTED for finding in named),
        line=every,
        rule=every and [finding.code for finding in named] == [line.code for line in planted],
        module=every and all(_is_where(fault, finding) for finding in named),
        culprit=every and named[0].culprit is not None and fault.culprit in _name(fault, named[0].culprit),
        others=tuple(f"{f.code} at {_at(f)}" for f in spoken if f not in named),
        message=" | ".join(f.message for f in spoken) or outcome.reason,
    )


def _is_where(fault: CaptureFault, finding: Finding) -> bool:
    module, thread = (str(finding.evidence.get(name, "")) for name in ("module", "thread"))
    return module.endswith(fault.module) and thread.startswith(fault.thread) and bool(thread) == bool(fault.thread)


def _name(fault: CaptureFault, culprit: Culprit) -> str:
    """What the culprit is called; a quoted line of code is no name, but for what a library does first."""
    return "" if culprit.name.startswith("`") and not fault.first_use else culprit.name


def _at(finding: Finding) -> str:
    place = finding.location
    return f"{Path(place.file).name}:{place.line}" if place else "no line"


def watched(name: str, twin: bool, backend: str) -> Outcome:
    """`capture` on one variant, in this process."""
    events: list[dict[str, Any]] = []
    settings = Settings("capture", fault=name, twin=twin, backend=backend, target_args=PRESET, buckets=(4,))
    if "engine" in CAPTURE_FAULTS[name].forms:
        settings = Settings("capture", fault=name, twin=twin, backend=backend, target_args=PRESET)
    worker.perform(settings, ("capture",), events.append)
    outcomes = [event["outcome"] for event in events if event["event"] == "outcome"]
    assert len(outcomes) == 1, events
    return outcome_from_json(outcomes[0])


@contextmanager
def without_cupti() -> Iterator[None]:
    """Inside, CUPTI cannot be had."""

    def hidden() -> Any:
        raise cupti.Unavailable("it is hidden")

    with replaced(cupti, {"_api": hidden}):
        yield


def as_a_user(name: str, twin: bool, tool: str) -> Outcome:
    """`cudagraph-doctor capture` on one variant, on the GPU, with everything in processes of their own."""
    words = ["capture", "reference", "--fault", name, "--backend", "cuda", "--target-arg", "preset=tiny"]
    words += ["--twin"] if twin else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        if tool == "without CUPTI":
            hidden = Path(folder) / "cupti"
            hidden.mkdir()
            (hidden / "__init__.py").write_text('raise ImportError("hidden")\n')
        done = _run(["-m", "cudagraph_doctor", *words, "--format", f"json={report}"], folder)
        if not report.exists():
            return Outcome("capture", Status.ERRORED, f"exit {done.returncode}: {done.stderr[-300:]}")
        return outcome_from_json(json.loads(report.read_text())["outcomes"][0])


def plain(name: str) -> dict[str, str]:
    """What torch alone says of the fault."""
    done = _run([str(ROOT / "tests" / "plain_capture.py"), name])
    if done.returncode:
        return {"raised": f"the process ended with {done.returncode}", "first": "", "raised_at": "", "first_at": ""}
    told: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return told


def _run(words: list[str], *before: str) -> subprocess.CompletedProcess[str]:
    """Run Python, with these folders before the repository on its path."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (*before, str(ROOT), os.environ.get("PYTHONPATH")))),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def asked(name: str, backend: str) -> dict[str, Any]:
    """How `capture` does on the fault and its twin, with each tool, in this process."""
    told: dict[str, Any] = {}
    for tool in TOOLS:
        told[tool] = {}
        for key, twin in (("fault", False), ("twin", True)):
            with without_cupti() if tool == "without CUPTI" else nullcontext():
                told[tool][key] = _row(name, watched(name, twin, backend))
    return told


def _row(name: str, outcome: Outcome) -> dict[str, Any]:
    return {**asdict(score(name, outcome)), "status": outcome.status.value}


def parts(name: str) -> dict[str, Callable[[], Any]]:
    """What has to be run for one fault, by where its result belongs: each is a process, and none needs another's."""
    runs: dict[str, Callable[[], Any]] = {"plain": partial(plain, name)}
    if not CAPTURE_FAULTS[name].first_use:
        return {**runs, "": partial(_asked_elsewhere, name)}
    for tool in TOOLS:
        for key, twin in (("fault", False), ("twin", True)):
            runs[f"{tool}/{key}"] = partial(_asked_as_a_user, name, twin, tool)
    return runs


def assembled(told: dict[str, Any]) -> dict[str, Any]:
    """All that is known of one fault, from the results of its parts."""
    by_tool = told.get("") or {tool: {key: told[f"{tool}/{key}"] for key in ("fault", "twin")} for tool in TOOLS}
    return {"plain": told["plain"], **by_tool}


def _asked_as_a_user(name: str, twin: bool, tool: str) -> dict[str, Any]:
    return _row(name, as_a_user(name, twin, tool))


def _asked_elsewhere(name: str) -> dict[str, Any]:
    done = _run([__file__, "--within", name])
    if done.returncode == 0:
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told
    lost = Outcome("capture", Status.ERRORED, f"exit {done.returncode}: {done.stderr[-3000:]}")
    print(f"{name}: {lost.reason}", file=sys.stderr, flush=True)
    lost = replace(lost, reason=f"exit {done.returncode}")
    return {tool: {key: _row(name, lost) for key in ("fault", "twin")} for tool in TOOLS}


def record(names: Sequence[str], jobs: int, told: Callable[[str, dict[str, Any]], None]) -> None:
    """Run all parts of these faults, `jobs` at a time, and tell of each fault when its last part is done."""
    longest_first = sorted(names, key=lambda name: not CAPTURE_FAULTS[name].first_use)
    results: dict[str, dict[str, Any]] = {name: {} for name in names}
    with ThreadPoolExecutor(jobs) as pool:
        wanted = {name: parts(name) for name in longest_first}
        running = {pool.submit(part): (name, place) for name in longest_first for place, part in wanted[name].items()}
        for future in as_completed(running):
            name, place = running[future]
            results[name][place] = future.result()
            print(f"{name:24} {place or 'with and without CUPTI'}: done", flush=True)
            if len(results[name]) == len(wanted[name]):
                told(name, assembled(results[name]))


def merged(told: dict[str, Any], facts: dict[str, str], before: Path) -> dict[str, Any]:
    """A record of what was recorded now, and of the other faults as they were recorded before, in order.

    Raises ValueError if that was on another device or torch.
    """
    old = json.loads(before.read_text()) if before.exists() and set(told) != set(CAPTURE_FAULTS) else {"faults": {}}
    if old["faults"] and (were := {fact: old[fact] for fact in facts}) != facts:
        raise ValueError(f"{before.name} was recorded with {were}, and this is {facts}: record all faults anew")
    faults = old["faults"] | told
    return {**facts, "faults": {name: faults[name] for name in CAPTURE_FAULTS if name in faults}}


def main() -> None:
    """Record all, or the named ones."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--jobs", type=int, default=4, help="processes at a time")
    parser.add_argument("--output", type=Path, default=RECORDED)
    parser.add_argument("--within", help="one fault, in this process; prints JSON", metavar="NAME")
    options = parser.parse_args()
    if options.within:
        print(json.dumps(asked(options.within, "cuda")))
        return
    facts = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    names = options.names or list(CAPTURE_FAULTS)
    faults: dict[str, Any] = {}

    def told(name: str, known: dict[str, Any]) -> None:
        faults[name] = known
        options.output.write_text(json.dumps(merged(faults, facts, before), indent=1) + "\n")
        for word in TOOLS:
            fault, twin = known[word]["fault"], known[word]["twin"]
            wrong = [key for key in ASKED if not fault[key]]
            others = [*fault["others"], *(f"twin: {other}" for other in twin["others"])]
            line = f"{name:24} {word:14} {twin['status']:8} missing: {wrong} others: {others} {fault['message']}"
            print(line, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / RECORDED.name  # as it was: what is told is written over it
        old = options.output if options.output.exists() else RECORDED
        if options.names and old.exists():
            before.write_text(old.read_text())
        merged({}, facts, before)  # another device's record is found out before anything runs
        record(names, options.jobs, told)


if __name__ == "__main__":
    main()
