"""What the dry run of `capture` costs against the plain eager step that it observes: the host's time, in one process.

The dry run is repeated as `capture` makes it, with all hooks in; its step is timed inside of the capture that is none.
Plain eager steps run before and after, so that a machine that gets slower meanwhile does not look like a cost.

    python benchmarks/capture_cost.py [--preset default] [--rows 4] [--repeats 5] [--backend auto]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from cudagraph_doctor import reference_models
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.observation.players import LoopPlayer
from cudagraph_doctor.observation.runs import Runs
from cudagraph_doctor.settings import Settings

MOST = 10
"""How many times as long as the plain step the observed one may take."""


def backend_named(name: str) -> Backend:
    """The backend; "auto" as the command line has it."""
    if name == "cuda" or (name == "auto" and not CudaBackend.why_unusable()):
        return CudaBackend()
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    return EmulatedBackend()


def timed(forward: Callable[[Any], Any], seconds: list[float]) -> Callable[[Any], Any]:
    """The same step, which notes how long the host took."""

    def step(inputs: Any) -> Any:
        started = time.perf_counter()
        outputs = forward(inputs)
        seconds.append(time.perf_counter() - started)
        return outputs

    return step


def told(seconds: list[float]) -> str:
    """Median and range."""
    middle, least, most = (1e3 * f(seconds) for f in (statistics.median, min, max))
    return f"{middle:.2f} ms (median of {len(seconds)}, {least:.2f} to {most:.2f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backend", choices=("auto", "cuda", "emulated"), default="auto")
    options = parser.parse_args()
    backend = backend_named(options.backend)
    with backend.installed(), torch.no_grad():
        target: Any = reference_models.load(device=backend.device, preset=options.preset)
        plain, observed, forward = list[float](), list[float](), target.forward
        runs = Runs(lambda opened: LoopPlayer(target, backend, Settings("capture", buckets=(options.rows,))), backend)
        inputs = target.next_inputs(3, options.rows)

        def eager() -> None:
            backend.synchronize()
            timed(forward, plain)(inputs)
            backend.synchronize()

        for _ in range(3):  # kernels are compiled and loaded, operators are learned
            forward(inputs)
        operations = sum(window.position + window.launches for window in runs.dry().session.windows)
        for _ in range(options.repeats):
            eager()
            seconds: list[float] = []
            target.forward = timed(forward, seconds)
            runs.dry()
            target.forward = forward
            observed.append(seconds[-1])  # warm-ups come before it
            eager()
    print(
        f"backend {backend.name}, preset {options.preset}, {options.rows} rows, {operations} operations in the capture"
    )
    print(f"plain eager step: {told(plain)}")
    print(f"in the dry run:   {told(observed)}")
    times = statistics.median(observed) / statistics.median(plain)
    print(f"{times:.1f} times as long; allowed are {MOST}")
    raise SystemExit(0 if times <= MOST else 1)


if __name__ == "__main__":
    main()
