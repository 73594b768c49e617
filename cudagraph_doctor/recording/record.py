"""The parent of a recording: chooses the profiler, runs the child or the user's command under it, exports the trace.

What the child prints goes to stderr. Interrupting ends the recorded program, not the recording: the trace is written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.recording.job import Job
from cudagraph_doctor.recording.play import MARK
from cudagraph_doctor.recording.scrub import scrub
from cudagraph_doctor.settings import Settings
from cudagraph_doctor.traces import nsys_tool
from cudagraph_doctor.traces.nsys_tool import Nsys

Say = Callable[[str], None]
SUFFIXES = (".sqlite", ".nsys-rep", ".json.gz")
"""Of the files that a recording may write."""
_KEEPS_EXIT_CODE = '"$@"; code=$?; echo "$code" > "$0"; exit "$code"'
"""sh: run a command, and leave its exit code in a file: nsys's own may be another."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be recorded, and how."""

    output: Path
    """Without a suffix, or with the one that fits."""
    command: tuple[str, ...] = ()
    """The user's command; empty: the target of `settings`."""
    settings: Settings | None = None
    profiler: str = "auto"
    """"auto" | "nsys" | "torch"."""
    graph_trace: str = "graph"
    """nsys: "graph" | "node"."""
    ranges: bool = True
    scrub: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """What came of it."""

    trace: Path
    how: str
    """With what it was recorded, in words."""
    exit_code: int
    """Of the user's command; 0 for a target."""


def record(wanted: Wanted, say: Say) -> Recorded:
    """Record a trace.

    Raises:
        UsageError: the output or the combination of options cannot be.
        Inconclusive: there is no profiler for it here, or no trace came of it.
    """
    nsys = None if wanted.profiler == "torch" else _usable_nsys(wanted, say)
    if nsys is None and wanted.command:
        raise Inconclusive(
            "A command can only be recorded with nsys.",
            fix="Install Nsight Systems, or use torch.profiler in your program and save with export_chrome_trace.",
        )
    base = _base(wanted.output, ".sqlite" if nsys else ".json.gz")
    if nsys:
        return _with_nsys(wanted, base, nsys)
    return _with_torch(wanted, base)


def _usable_nsys(wanted: Wanted, say: Say) -> Nsys | None:
    nsys = nsys_tool.find()
    if nsys is not None and not nsys.obstacle:
        return nsys
    why = (
        "there is no nsys on PATH, nor where Nsight Compute and the CUDA toolkit put one"
        if nsys is None
        else f"{nsys.path} is of no use: {nsys.obstacle}"
    )
    if wanted.profiler == "nsys" or wanted.command:
        raise Inconclusive(
            "nsys is needed for this recording.", seen=why, fix="Install Nsight Systems, or mend what is missing."
        )
    say(f"{why}; recording with torch.profiler instead")
    return None


def base_of(output: Path) -> Path:
    """The path without the suffix of a trace, if it has one."""
    name = output.name
    known = next((suffix for suffix in (*SUFFIXES, ".json") if name.endswith(suffix)), "")
    return output.with_name(name.removesuffix(known)) if known and name != known else output


def _base(output: Path, suffix: str) -> Path:
    """The path without its suffix. Raises UsageError if nothing can be written there, or the suffix is another."""
    base = base_of(output)
    given = output.name.removeprefix(base.name)
    if given and given != suffix and not (given == ".nsys-rep" and suffix == ".sqlite"):
        raise UsageError(f'The trace will be a {suffix} file, not "{output.name}".', fix=f"Say -o {base.name}.")
    output = base
    folder = output.parent
    if not folder.is_dir():
        raise UsageError(f'The folder "{folder}" does not exist.', fix="Create it, or name another output.")
    if output.is_dir() or not output.name or not os.access(folder, os.W_OK):
        raise UsageError(f'"{output}" cannot be written.', fix="Name another output.")
    return output


def _with_nsys(wanted: Wanted, base: Path, nsys: Nsys) -> Recorded:
    report, trace = Path(f"{base}.nsys-rep"), Path(f"{base}.sqlite")
    with tempfile.TemporaryDirectory(prefix="cudagraph-doctor-") as folder:
        code_file = Path(folder) / "exit-code"
        child = [
            nsys.path,
            "profile",
            "--trace=cuda,nvtx",
            f"--cuda-graph-trace={wanted.graph_trace}",
            "--sample=none",
            "--cpuctxsw=none",
            "--force-overwrite=true",
            f"--output={base}",
            "sh",
            "-c",
            _KEEPS_EXIT_CODE,
            str(code_file),
            *(wanted.command or _player(wanted, Job(_settings(wanted), "nsys", ranges=wanted.ranges))),
        ]
        report.unlink(missing_ok=True)
        said, status = _run(child, timeout_s=None if wanted.command else _settings(wanted).timeout_s)
        try:
            code = int(code_file.read_text())
        except (OSError, ValueError):
            code = status
    _raise_for_target(wanted, said, code)
    if not report.exists():
        raise Inconclusive(
            "nsys left no report.",
            seen=(said.strip().splitlines() or [f"it ended with {status}"])[-1][:200],
            fix="See what it printed; `nsys status --environment` tells what this machine allows.",
        )
    nsys_tool.export(report, trace, nsys)
    if wanted.scrub:
        scrub(trace)
        report.unlink()
    return Recorded(trace, f"{nsys.version}, {wanted.graph_trace} mode", code)


def _with_torch(wanted: Wanted, base: Path) -> Recorded:
    trace = Path(f"{base}.json.gz")
    trace.unlink(missing_ok=True)
    job = Job(_settings(wanted), "torch", str(trace.resolve()), wanted.ranges)
    said, status = _run(_player(wanted, job), timeout_s=_settings(wanted).timeout_s)
    _raise_for_target(wanted, said, status)
    if not trace.exists():
        raise Inconclusive("torch.profiler left no trace.", fix="See what it printed.")
    if wanted.scrub:
        scrub(trace)
    return Recorded(trace, "torch.profiler", 0)


def _settings(wanted: Wanted) -> Settings:
    return wanted.settings or Settings("record")


def _player(wanted: Wanted, job: Job) -> list[str]:
    return [sys.executable, "-m", "cudagraph_doctor.recording.play", job.dumps()]


def _raise_for_target(wanted: Wanted, said: str, code: int) -> None:
    """The child's own words, if it could not play the target. A user's command may end as it likes."""
    if wanted.command or code == 0:
        return
    marked = [line.removeprefix(MARK) for line in said.splitlines() if line.startswith(MARK)]
    if marked:
        told = json.loads(marked[-1])
        kind = UsageError if told["exit_code"] == UsageError.exit_code else Inconclusive
        raise kind(told["what"], seen=told["seen"], fix=told["fix"])
    raise Inconclusive(
        f"The target's loop ended with exit code {code}.",
        seen=(said.strip().splitlines() or [""])[-1][:200],
        fix="See what it printed; `cudagraph-doctor diff` on the same target may tell why.",
    )


def _run(command: Sequence[str | Path], timeout_s: float | None) -> tuple[str, int]:
    """(what it wrote to stderr, exit code). Its output is passed on to stderr; an interrupt is its own to handle."""
    child = subprocess.Popen(
        command,
        stdin=None if sys.stdin and sys.stdin.isatty() else subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _has_fileno() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_environment(),
    )
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    said: list[str] = []
    timer = None
    if timeout_s is not None:
        timer = signal.signal(signal.SIGALRM, lambda *_: child.kill())
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        assert child.stderr
        for line in child.stderr:
            said.append(line)
            del said[:-200]
            if not line.startswith(MARK):
                sys.stderr.write(line)
        return "".join(said), child.wait()
    finally:
        signal.signal(signal.SIGINT, kept)
        if timeout_s is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, timer)


def _has_fileno() -> bool:
    try:
        sys.stderr.fileno()
    except (OSError, ValueError):
        return False
    return True


def _environment() -> dict[str, str]:
    """Ours, with the checkout importable for the child as it is for us."""
    here = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, known]))}
