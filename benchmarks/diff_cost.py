"""What `diff` costs against the plain steps that it runs, side by side in one process.

Plain: the same plan, each step eagerly and through its graph as often as `diff` runs a clean step, waiting for the
device after each, without saving, restoring or comparing anything. Captures are measured apart: both need them.

    python benchmarks/diff_cost.py [--preset default] [--steps 8] [--backend auto]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from cudagraph_doctor.checks import eager_diff
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.settings import Settings


def backend_named(name: str) -> Backend:
    """The backend; "auto" as the command line has it."""
    if name == "cuda" or (name == "auto" and not CudaBackend.why_unusable()):
        return CudaBackend()
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    return EmulatedBackend()


def timed(action: Callable[[], Any], backend: Backend) -> float:
    """Seconds until the device is done."""
    backend.synchronize()
    started = time.perf_counter()
    action()
    backend.synchronize()
    return time.perf_counter() - started


def plain_seconds(subject: LoopSubject, backend: Backend, settings: Settings) -> tuple[float, float, int]:
    """(seconds of the plain steps, seconds of the captures, number of runs)."""
    plan = subject.plan(settings.steps, (), (), False)
    subject.capture_all(plan)  # cold: kernels are compiled and loaded
    captures = timed(lambda: subject.capture_all(plan), backend)
    calls = [(run, at) for at in plan for run in (subject.eager, subject.eager, subject.replayed, subject.replayed)]
    subject.reset()
    for run, at in calls[:8]:  # warm
        run(at)

    def play() -> None:
        for run, at in calls:
            run(at)
            backend.synchronize()

    return timed(play, backend), captures, len(calls)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--backend", default="auto", choices=["auto", "cuda", "emulated"])
    options = parser.parse_args()
    settings = Settings(check="diff", steps=options.steps)
    backend = backend_named(options.backend)
    with backend.installed():
        from cudagraph_doctor import reference_models

        target: Any = reference_models.load("loop", device=backend.device, preset=options.preset)
        plain, captures, runs = plain_seconds(LoopSubject(target, backend), backend, settings)
        whole = timed(lambda: eager_diff.run(target, backend, settings, Silent()), backend)
    print(f"backend {backend.name}, preset {options.preset}, {runs} plain runs")
    print(f"{'plain steps':28} {plain:8.2f} s  {1000 * plain / runs:8.2f} ms a run")
    print(f"{'captures':28} {captures:8.2f} s")
    print(f"{'diff, captures included':28} {whole:8.2f} s")
    print(f"{'diff without captures':28} {whole - captures:8.2f} s  {(whole - captures) / plain:8.2f} times plain")


if __name__ == "__main__":
    main()
