"""Records the traces in tests/data/traces: the bundled engine, and each fault of its runner with its twin, on a GPU.

    python tests/traces/record_all.py OUTPUT-FOLDER [--workers N]

Three traces each: nsys in graph mode, nsys in node mode, torch.profiler; scrubbed and gzipped. `EXPECTED` says what
each step has to be, from what the fault does: it is not read off any trace.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

STEPS = 24
SIZES = (1, 2, 3, 4, 5, 7, 8, 15, 16)
BUCKETS = (1, 2, 4, 8, 16)
MODES = ("graph", "node", "torch")
Verdict = Callable[[int, int], str]


@dataclass(frozen=True)
class Recorded:
    """One variant of the bundled engine."""

    fault: str
    twin: bool
    verdict: Verdict
    """(step, rows) -> what the step has to be."""
    codes: frozenset[str] = frozenset()
    """Warnings, with no demand made."""
    preset: str = "tiny"

    @property
    def name(self) -> str:
        return f"{self.fault or 'clean'}{'-twin' if self.twin else ''}"

    def verdicts(self) -> list[str]:
        """Of all decode steps, in order."""
        return [self.verdict(i, SIZES[i % len(SIZES)]) for i in range(STEPS)]


def always(word: str) -> Verdict:
    return lambda i, n: word


def when(condition: Callable[[int, int], bool], word: str) -> Verdict:
    return lambda i, n: word if condition(i, n) else "FULL"


def bucket(n: int) -> int:
    return next(size for size in BUCKETS if size >= n)


def first_use(i: int, n: int) -> bool:
    """Nobody of the same bucket above 4 and the same half came before."""
    earlier = [(bucket(SIZES[j % len(SIZES)]), j % 2) for j in range(i)]
    return bucket(n) > 4 and (bucket(n), i % 2) not in earlier


def mode_changes(i: int, n: int) -> bool:
    """The graph of this bucket and half is of the other mode: every fifth step has a penalty."""
    same = [j for j in range(i) if (bucket(SIZES[j % len(SIZES)]), j % 2) == (bucket(n), i % 2)]
    return (i % 5 == 4) != bool(same and same[-1] % 5 == 4)


def _pair(fault: str, code: str, verdict: Verdict, *more: str, preset: str = "tiny") -> Iterator[Recorded]:
    yield Recorded(fault, False, verdict, frozenset({code, *more}), preset)
    yield Recorded(fault, True, always("FULL"), preset=preset)


EXPECTED = (
    Recorded("", False, always("FULL")),
    *_pair("batch-above-largest", "CGD401", when(lambda i, n: n > 8, "EAGER")),
    *_pair("bucket-missing", "CGD402", when(lambda i, n: 4 < n <= 8, "EAGER")),
    *_pair("exact-sizes-only", "CGD403", when(lambda i, n: n not in BUCKETS, "EAGER")),
    *_pair("dummy-request-fails", "CGD408", when(lambda i, n: i >= 11, "EAGER")),  # 11: the first to pad from 9 on
    *_pair("prefill-mixed-in", "CGD404", when(lambda i, n: i % 3 == 2, "EAGER")),
    *_pair("drafts-not-uniform", "CGD405", when(lambda i, n: n % 2 == 1, "EAGER")),
    *_pair("graphs-silently-off", "CGD406", always("EAGER")),
    *_pair("captured-in-step", "CGD409", when(first_use, "CAPTURE")),
    *_pair("updated-each-step", "CGD410", always("FULL")),
    *_pair("key-without-mode", "CGD411", when(mode_changes, "CAPTURE"), "CGD409"),
    *_pair("attention-outside", "CGD412", always("PIECEWISE"), preset="default"),
    *_pair("replayed-twice", "CGD413", when(lambda i, n: i % 7 == 6, "PIECEWISE")),
    *_pair("range-on-other-thread", "CGD414", always("FULL")),
)


def record(recorded: Recorded, mode: str, folder: Path) -> str:
    """One trace; returns a line about it."""
    base = folder / f"{recorded.name}.{mode}"
    command = [sys.executable, "-m", "cudagraph_doctor", "record", "reference:engine", "-o", str(base), "--scrub"]
    command += ["--steps", str(STEPS), "--batch-sizes", ",".join(map(str, SIZES)), "-a", f"preset={recorded.preset}"]
    command += ["--profiler", "torch"] if mode == "torch" else ["--profiler", "nsys", "--graph-trace", mode]
    if recorded.fault:
        command += ["--fault", recorded.fault, *(["--twin"] if recorded.twin else [])]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        return f"{base.name}: FAILED {done.returncode}\n{done.stderr[-2000:]}"
    export = Path(f"{base}.sqlite")
    trace = Path(f"{base}.json.gz")
    if export.exists():
        trace = Path(f"{export}.gz")
        with gzip.GzipFile(trace, "wb", mtime=0) as out:
            out.write(export.read_bytes())
        export.unlink()
    return f"{trace.name}: {trace.stat().st_size // 1024} KiB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--only", default="", help="only names that contain this")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    jobs = [(recorded, mode) for recorded in EXPECTED for mode in MODES if arguments.only in recorded.name]
    with ThreadPoolExecutor(arguments.workers) as pool:
        lines = list(pool.map(lambda job: record(job[0], job[1], arguments.folder), jobs))
    print("\n".join(lines))
    return int(any("FAILED" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
