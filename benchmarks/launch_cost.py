"""What a launch costs: the `large` reference step, and as many tiny kernels by each launcher, eagerly and as a graph.

    python benchmarks/launch_cost.py [--rows 4] [--repeats 20]

Submit is the host's time until the call returns; end to end also waits for the device. Medians. Needs a CUDA GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from cuda.bindings import driver

from cudagraph_doctor.reference_models import operators as ops
from cudagraph_doctor.reference_models.decode import PRESETS
from cudagraph_doctor.reference_models.loop import ReferenceLoop
from cudagraph_doctor.reference_models.nvrtc import kernel

HIDDEN = 256


@dataclass(frozen=True)
class Cost:
    """Medians, in milliseconds, for one call."""

    submit: float
    end_to_end: float


def measure(call: Callable[[], object], repeats: int) -> Cost:
    """Time `call` after three calls to warm up, starting from an idle device each time."""
    submits, totals = [], []
    for repeat in range(repeats + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        submitted = time.perf_counter()
        torch.cuda.synchronize()
        if repeat >= 3:
            submits.append((submitted - start) * 1e3)
            totals.append((time.perf_counter() - start) * 1e3)
    return Cost(statistics.median(submits), statistics.median(totals))


def captured(call: Callable[[], object]) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of `call`, and its number of nodes."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    graph.instantiate()
    return graph, driver.cuGraphGetNodes(driver.CUgraph(graph.raw_cuda_graph()), 0)[-1]


def launchers(rows: int) -> dict[str, Callable[[], object]]:
    """One tiny kernel each, on `rows` rows of 256 numbers."""
    x = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.bfloat16)
    weight, out = torch.ones_like(x[0]), torch.empty_like(x)
    rms_norm = kernel("rms_norm")
    found: dict[str, Callable[[], object]] = {
        "torch operator (add, out=)": lambda: torch.add(x, x, out=out),
        "cuda-core launch (rms_norm)": lambda: rms_norm((rows,), 32, out, x, weight, HIDDEN, HIDDEN, 1e-6),
        "custom operator (rms_norm)": lambda: ops.rms_norm(x, weight, 1e-6),
    }
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return found

    @triton.jit
    def double(source, target, numbers, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(target + at, tl.load(source + at, mask=at < numbers) * 2, mask=at < numbers)

    found["Triton (x * 2)"] = lambda: double[(rows,)](x, out, rows * HIDDEN, BLOCK=HIDDEN)
    return found


def row(name: str, call: Callable[[], object], repeats: int) -> int:
    """Measure and print one line of the table; returns the number of nodes."""
    eager = measure(call, repeats)
    graph, nodes = captured(call)
    replay = measure(graph.replay, repeats)
    print(
        f"{name:32} {nodes:6d} {eager.submit:10.3f} {eager.end_to_end:10.3f} {eager.submit / nodes * 1e3:9.2f}"
        f" {replay.submit:10.3f} {replay.end_to_end:10.3f} {replay.end_to_end / nodes * 1e3:9.2f}",
        flush=True,
    )
    return nodes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4, help="batch size (default 4)")
    parser.add_argument("--repeats", type=int, default=20, help="measured calls of each kind (default 20)")
    chosen = parser.parse_args()

    loop = ReferenceLoop(PRESETS["large"], "cuda", torch.bfloat16, 0)
    inputs = loop.next_inputs(0, chosen.rows)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {chosen.rows} rows, median of {chosen.repeats}")
    print(f"{'':39} {'eager, ms':^21} {'us a':>9} {'graph, ms':^21} {'us a':>9}")
    half = f"{'submit':>10} {'end to end':>10}"
    print(f"{'':32} {'nodes':>6} {half} {'launch':>9} {half} {'node':>9}")
    nodes = row("large, one decode step", lambda: loop.forward(inputs), chosen.repeats)
    for name, launch in launchers(chosen.rows).items():
        row(name, lambda: [launch() for _ in range(nodes)], chosen.repeats)  # noqa: B023


if __name__ == "__main__":
    main()
