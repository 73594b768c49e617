"""Records captures of one step, again and again, interleaved, as small JSON: what the judge of dumps is tested on.

    python tests/record_captures.py --output tests/data/captures            # on a GPU, also emulated
    python tests/record_captures.py --output tests/data/captures --emulated # what has a CPU form

Two steps are recorded, which launch the same kinds of kernels: in "sound" all that a capture freezes is constant, in
"faulty" a length, two counters and two draws of the host are baked in. Run from the repository's root.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import platform
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cudagraph_doctor.checks.eager_diff import subject_of
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.model import GraphNode
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.replays.model import Dump
from cudagraph_doctor.replays.plain import from_plain, to_plain
from cudagraph_doctor.replays.recapture import captures, interleaved

ROOT = Path(__file__).resolve().parents[1]
ROWS, HEADS, WIDTH, LONGEST = 4, 4, 64, 64
FIRST_LENGTH = 14
"""Of step 0; it grows by one a step."""
THRESHOLD = 17
"""From this length on the faulty step scales its result once more."""
STEPS = ((1, ROWS), (2, ROWS), (3, ROWS), (1, ROWS - 1))
"""(step, rows): the next step; over a block of 16; over the threshold; another batch size under the same key."""
TIMES = 5


def scale(x, out, factor, length, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Triton: out = x * factor + length, with `factor` and `length` by value."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < count) * factor + length, mask=at < count)


try:
    import triton
    import triton.language as tl

    scale_kernel = triton.jit(scale)
except ImportError:  # emulated: an operator of torch instead
    triton = None

Inputs = dict[str, Any]


class Recorded:
    """A LoopTarget with one attention layer and a sampler.

    Args:
        device: where it runs.
        faulty: whether the host values that change are used by value; else what is baked is constant.
    """

    buckets = (ROWS,)

    def __init__(self, device: str, faulty: bool) -> None:
        self.faulty = faulty
        self.device = device
        self.compiles = device.startswith("cuda") and triton is not None
        self.rounds = 0
        """A counter that reset() restores."""
        self.total = 0
        """A counter that it does not."""
        self.own = random.Random(3)
        """A generator that nobody knows of."""
        width = HEADS * WIDTH
        kind = torch.bfloat16 if self.compiles else torch.float32
        generator = torch.Generator("cpu").manual_seed(0)
        weights = [torch.randn(width, width, generator=generator) / width**0.5 for _ in range(3)]
        self.query, self.key, self.out = (weight.to(device, kind) for weight in weights)
        self.head = torch.randn(width, 96, generator=generator).to(device, kind)
        shape = (ROWS, HEADS, LONGEST, WIDTH)
        self.keys = torch.zeros(shape, device=device, dtype=kind)
        self.values = torch.zeros(shape, device=device, dtype=kind)
        self.rows = torch.arange(ROWS, device=device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        """Rows, where they are written, and how long their contexts are: a tensor, and the longest as a number."""
        generator = torch.Generator("cpu").manual_seed(step)
        x = torch.randn(n, HEADS * WIDTH, generator=generator)
        longest = FIRST_LENGTH + step
        return {
            "x": x.to(self.device, self.keys.dtype),
            "positions": torch.full((n,), longest - 1, device=self.device),
            "longest": longest,
        }

    def static_inputs(self, bucket: int) -> Inputs:
        """Zeros."""
        return {
            "x": torch.zeros(bucket, HEADS * WIDTH, device=self.device, dtype=self.keys.dtype),
            "positions": torch.zeros(bucket, device=self.device, dtype=torch.int64),
            "longest": 0,
        }

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Copy the tensors; the number is set."""
        n = len(fresh["x"])
        for name in ("x", "positions"):
            static[name][:n].copy_(fresh[name])
            static[name][n:].copy_(fresh[name][:1].expand_as(static[name][n:]))
        static["longest"] = fresh["longest"]

    def forward(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """The step."""
        longest = inputs["longest"] if self.faulty else LONGEST
        x, rows = inputs["x"], self.rows[: len(inputs["x"])]
        query, new = x @ self.query, x @ self.key  # cuBLAS, packed into `extra`
        heads = new.view(-1, HEADS, WIDTH)
        self.keys[rows, :, inputs["positions"]] = heads
        self.values[rows, :, inputs["positions"]] = heads + 1
        seen = -(-longest // 16) * 16
        attended = torch.nn.functional.scaled_dot_product_attention(
            query.view(-1, HEADS, 1, WIDTH), self.keys[: len(x), :, :seen], self.values[: len(x), :, :seen]
        )
        hidden = attended.reshape(len(x), -1) @ self.out
        hidden = self._scaled(hidden, 0.5 * longest, longest)
        hidden = hidden * float(self._by_value())
        if longest >= THRESHOLD and self.faulty:
            hidden = torch.relu(hidden)
        logits = (hidden @ self.head).float()
        best, where = logits.topk(5)
        ordered, _ = logits.sort(dim=-1, descending=True)
        return {
            "best": best,
            "where": where,
            "ordered": ordered,
            "mean": torch.softmax(logits, -1).mean(-1),
            "token": logits.argmax(-1),
        }

    def _scaled(self, x: torch.Tensor, factor: float, length: int) -> torch.Tensor:
        if not self.compiles:
            return x * factor + length
        out = torch.empty_like(x)
        count = x.numel()
        # the grid follows the length: surplus programs are masked
        grid = (-(-count // 256) + (length // 16 if self.faulty else 0),)
        scale_kernel[grid](x, out, factor, length, count, BLOCK=256)
        return out

    def _by_value(self) -> float:
        """Uses both counters and both draws, in operations of their own; what it returns is constant."""
        if not self.faulty:
            return 1.5
        self.rounds += 1
        self.total += 1
        self._touch(self.rounds + 100)
        self._touch(self.total + 1000)
        self._touch(random.random())
        self._touch(self.own.random() + 2)
        return 1.5

    def _touch(self, number: float) -> None:
        """One functor with the number in it; the state stays as it is."""
        self.keys[:1, :1, :1, :1].mul(number)

    def reset(self) -> None:
        """Empty caches, and one of the counters."""
        self.keys.zero_()
        self.values.zero_()
        self.rounds = 0


def record(backend: Backend, faulty: bool) -> list[Dump]:
    """All dumps of one of the steps."""
    with backend.installed(), torch.no_grad():
        subject = subject_of(Recorded(backend.device, faulty), backend)
        arms = Arms(subject, backend)
        plan = subject.plan(0, (), [rows for _, rows in STEPS], False)
        arms.discover(plan)
        arms.capture_all(plan)
        steps = [Planned(step, step, rows, ROWS) for step, rows in STEPS]
        return captures(arms, interleaved(steps, TIMES, plan))


def without_names(dump: Dump) -> Dump:
    """Files below the repository's root, as everybody has them."""

    def moved(node: GraphNode) -> GraphNode:
        place = node.origin.location if node.origin else None
        if node.origin is None or place is None:
            return node
        inside = Path(place.file).resolve().relative_to(ROOT).as_posix()
        return dataclasses.replace(node, origin=dataclasses.replace(node.origin, location=_at(place, inside)))

    return dataclasses.replace(dump, nodes=tuple(moved(node) for node in dump.nodes))


def _at(place: Location, file: str) -> Location:
    return dataclasses.replace(place, file=file)


def save(file: Path, about: dict[str, str], dumps: Sequence[Dump]) -> None:
    """Compressed, the same bytes for the same contents."""
    plain = {"about": about, "dumps": [to_plain(without_names(dump)) for dump in dumps]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps(plain, separators=(",", ":")).encode(), mtime=0))


def load(file: Path) -> list[Dump]:
    """Inverse of `save`."""
    return [from_plain(Dump, dump) for dump in json.loads(gzip.decompress(file.read_bytes()))["dumps"]]


def main() -> None:
    """Record what this machine can."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "tests" / "data" / "captures")
    parser.add_argument("--emulated", action="store_true", help="without the GPU")
    options = parser.parse_args()
    about = {
        "command": "python tests/record_captures.py",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    backend: Backend
    if options.emulated:
        name = "emulated"
    else:
        from cudagraph_doctor.graph.cuda import CudaBackend

        name = "cuda"
        about["device"] = torch.cuda.get_device_name()
        about["triton"] = triton.__version__ if triton else ""
    for faulty in (False, True):
        backend = EmulatedBackend() if name == "emulated" else CudaBackend()
        dumps = record(backend, faulty)
        file = options.output / f"{name}_{'faulty' if faulty else 'sound'}.json.gz"
        save(file, about, dumps)
        nodes = sorted({len(dump.nodes) for dump in dumps})
        print(f"{file}: {len(dumps)} captures of {nodes} nodes, {file.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
