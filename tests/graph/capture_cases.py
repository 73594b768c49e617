"""What may be done in a capture: small cases, each tried under `no_grad`, under `inference_mode`, and some compiled.

`python tests/graph/capture_cases.py [CASE ...]` tries all, or the named ones, on the CUDA device and writes the answers
to `tests/data/capture_conformance.json`: what the emulation is held to on machines without a GPU. With `--list`,
anywhere, it writes where the emulation nevertheless answers otherwise into
`cudagraph_doctor/graph/emulation/not_refused.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.recovery import forget_captured_events, free_generators

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "data" / "capture_conformance.json"
LISTED = ROOT / "cudagraph_doctor" / "graph" / "emulation" / "not_refused.py"
NOT_PERMITTED = "operation not permitted when stream is capturing"
PAGEABLE = "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned"


def attend(x: torch.Tensor, causal: bool) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)


class Tensors:
    """Some tensors for the cases."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.floats = torch.arange(6, dtype=torch.float32, device=device)
        self.ints = torch.tensor([0, 2, 1], device=device)
        self.mask = self.floats > 2
        self.positive = self.floats + 1
        self.square = torch.eye(2, device=device) * 2
        self.host = torch.ones(6)
        self.host_indices = torch.tensor([0, 2])
        self.pinned = torch.ones(6).pin_memory()
        self.generator = torch.Generator(device=device)
        self.event = torch.cuda.Event()
        self.event.record()


Step = Callable[[Tensors], object]

REFUSED: dict[str, tuple[Step, str]] = {
    "item": (lambda t: t.floats.sum().item(), NOT_PERMITTED),
    "int": (lambda t: int(t.ints[0]), NOT_PERMITTED),
    "float": (lambda t: float(t.floats[0]), NOT_PERMITTED),
    "truth": (lambda t: bool(t.floats[0] > 0), NOT_PERMITTED),
    "all": (lambda t: bool((t.floats > 0).all()), NOT_PERMITTED),
    "format": (lambda t: f"{t.floats[0]:.2f}", NOT_PERMITTED),
    "repr": (lambda t: repr(t.floats), NOT_PERMITTED),
    "range over a bound": (lambda t: list(range(t.ints[1])), NOT_PERMITTED),
    "slice with a bound": (lambda t: t.floats[: t.ints[1]] + 1, NOT_PERMITTED),
    "max of elements": (lambda t: max(t.floats), NOT_PERMITTED),
    "tolist": (lambda t: t.floats.tolist(), PAGEABLE),
    "cpu": (lambda t: t.floats.cpu(), PAGEABLE),
    "to cpu": (lambda t: t.floats.to("cpu"), PAGEABLE),
    "host to device": (lambda t: t.host.to(t.device), PAGEABLE),
    "copy_ from the host": (lambda t: t.floats.copy_(t.host), PAGEABLE),
    "copy_ to the host": (lambda t: t.host.copy_(t.floats), PAGEABLE),
    "non-blocking copy_ from pageable memory": (lambda t: t.floats.copy_(t.host, non_blocking=True), PAGEABLE),
    "blocking copy_ from pinned memory": (lambda t: t.floats.copy_(t.pinned), NOT_PERMITTED),
    "tensor from a list": (lambda t: torch.tensor([1, 2], device=t.device), PAGEABLE),
    "index by a list": (lambda t: t.floats[[0, 2]], PAGEABLE),
    "index by host indices": (lambda t: t.floats[t.host_indices], PAGEABLE),
    "store a number at indices": (lambda t: t.floats.__setitem__(t.ints, 1.0), PAGEABLE),
    "nonzero": (lambda t: t.floats.nonzero(), NOT_PERMITTED),
    "where with one argument": (lambda t: torch.where(t.mask), NOT_PERMITTED),
    "masked_select": (lambda t: t.floats.masked_select(t.mask), NOT_PERMITTED),
    "index by a mask": (lambda t: t.floats[t.mask], NOT_PERMITTED),
    "unique": (lambda t: t.ints.unique(), NOT_PERMITTED),
    "repeat_interleave": (lambda t: t.ints.repeat_interleave(t.ints), NOT_PERMITTED),
    "bincount": (lambda t: t.ints.bincount(), PAGEABLE),
    "allclose": (lambda t: torch.allclose(t.floats, t.floats + 1), NOT_PERMITTED),
    "equal": (lambda t: torch.equal(t.floats, t.floats + 1), NOT_PERMITTED),
    "one_hot of unknown width": (lambda t: torch.nn.functional.one_hot(t.ints), NOT_PERMITTED),
    "synchronize": (lambda t: torch.cuda.synchronize(), NOT_PERMITTED),
    "Stream.synchronize": (lambda t: torch.cuda.current_stream().synchronize(), NOT_PERMITTED),
    "Stream.query": (lambda t: torch.cuda.current_stream().query(), NOT_PERMITTED),
    "Event.query": (lambda t: t.event.query(), NOT_PERMITTED),
    "Event.synchronize": (lambda t: t.event.synchronize(), NOT_PERMITTED),
    "nested capture": (lambda t: torch.cuda.graph(torch.cuda.CUDAGraph()).__enter__(), NOT_PERMITTED),
    "an unregistered generator": (
        lambda t: t.floats.uniform_(generator=t.generator),
        "Attempt to increase offset for a CUDA generator not in capture mode",
    ),
}
"""What is refused, and the words of the first error."""

ALLOWED: dict[str, Step] = {
    "arithmetic": lambda t: t.floats * 2 + 1,
    "matmul": lambda t: t.floats.view(2, 3) @ t.floats.view(3, 2),
    "linear": lambda t: torch.nn.functional.linear(t.floats.view(2, 3), t.floats.view(2, 3), t.floats[:2]),
    "softmax": lambda t: t.floats.softmax(0),
    "softmax in another type": lambda t: t.floats.half().softmax(0, dtype=torch.float32),
    "attention": lambda t: attend(t.floats.view(1, 1, 3, 2), False),
    "causal attention": lambda t: attend(t.floats.view(1, 1, 3, 2), True),
    "embedding": lambda t: torch.nn.functional.embedding(t.ints, t.floats.view(3, 2)),
    "layer_norm": lambda t: torch.nn.functional.layer_norm(t.floats, (6,)),
    "index by device indices": lambda t: t.floats[t.ints],
    "store a tensor at indices": lambda t: t.floats.__setitem__(t.ints, t.floats[:3] + 1),
    "store a number in a slice": lambda t: t.floats.__setitem__(slice(1, 3), 5.0),
    "store a number behind a mask": lambda t: t.floats.__setitem__(t.mask, 0.0),
    "masked_fill": lambda t: t.floats.masked_fill(t.mask, -1.0),
    "where": lambda t: torch.where(t.mask, t.floats, 0.0),
    "scalar tensor of the host": lambda t: t.floats * torch.tensor(2.0),
    "one_hot": lambda t: torch.nn.functional.one_hot(t.ints, 5),
    "topk": lambda t: t.floats.topk(2),
    "sort": lambda t: t.floats.sort(descending=True),
    "argmax": lambda t: t.floats.argmax(),
    "cumsum": lambda t: t.floats.cumsum(0),
    "multinomial": lambda t: t.floats.softmax(0).multinomial(2),
    "rand": lambda t: torch.rand(3, device=t.device),
    "dropout": lambda t: torch.nn.functional.dropout(t.floats),
    "arange": lambda t: torch.arange(4, device=t.device) + t.ints[:1],
    "full": lambda t: torch.full((3,), 7.0, device=t.device),
    "equal to itself": lambda t: torch.equal(t.floats, t.floats),
    "repeat_interleave with output_size": lambda t: t.ints.repeat_interleave(t.ints, output_size=3),
    "non-blocking copy_ from pinned memory": lambda t: t.floats.copy_(t.pinned, non_blocking=True),
    "non-blocking copy_ to pinned memory": lambda t: t.pinned.copy_(t.floats, non_blocking=True),
    "host work": lambda t: t.host.add_(1).sum().item(),
    "host nonzero": lambda t: t.host.nonzero().tolist(),
    "views": lambda t: t.floats.view(2, 3).transpose(0, 1).reshape(6).split(2)[1].unsqueeze(0).expand(3, 2) + 1,
    "foreach": lambda t: torch._foreach_add([t.floats, t.floats], 1.0),
    "cat": lambda t: torch.cat([t.floats, t.floats]),
    "mem_get_info": lambda t: torch.cuda.mem_get_info(),
    "device to device": lambda t: t.floats.to(t.device),
    "to another type": lambda t: t.floats.to(torch.float64),
    "an event recorded and waited for": lambda t: torch.cuda.current_stream().wait_event(
        torch.cuda.current_stream().record_event()
    ),
}
"""What goes through."""

ASKED: dict[str, Step] = {
    "argwhere": lambda t: t.floats.argwhere(),
    "batch_norm": lambda t: torch.nn.functional.batch_norm(t.square, t.floats[:2] + 1, t.floats[:2] + 1),
    "bernoulli": lambda t: t.positive.softmax(0).bernoulli(),
    "bucketize": lambda t: torch.bucketize(t.floats, t.floats),
    "checkpoint": lambda t: checkpoint(torch.sin, t.floats, use_reentrant=False),
    "cholesky": lambda t: torch.linalg.cholesky(t.square),
    "cholesky_ex": lambda t: torch.linalg.cholesky_ex(t.square),
    "conv1d": lambda t: torch.nn.functional.conv1d(t.floats.view(1, 1, 6), t.floats[:2].view(1, 1, 2)),
    "count_nonzero": lambda t: t.floats.count_nonzero(),
    "cross_entropy": lambda t: torch.nn.functional.cross_entropy(t.square, t.ints[1:].clamp(max=1)),
    "det": lambda t: torch.linalg.det(t.square),
    "eigh": lambda t: torch.linalg.eigh(t.square),
    "embedding_bag": lambda t: torch.nn.functional.embedding_bag(t.ints.view(1, 3), t.floats.view(3, 2)),
    "fft": lambda t: torch.fft.fft(t.floats),
    "gather": lambda t: t.floats.gather(0, t.ints),
    "histc": lambda t: t.floats.histc(4),
    "histc between bounds": lambda t: t.floats.histc(4, 0.0, 5.0),
    "index_add_": lambda t: t.floats.index_add_(0, t.ints, t.positive[:3]),
    "inv": lambda t: torch.linalg.inv(t.square),
    "inv_ex": lambda t: torch.linalg.inv_ex(t.square),
    "isin": lambda t: torch.isin(t.ints, t.ints[:2]),
    "kthvalue": lambda t: t.floats.kthvalue(2),
    "lu_factor": lambda t: torch.linalg.lu_factor(t.square),
    "masked_scatter": lambda t: t.floats.masked_scatter(t.mask, t.floats),
    "median": lambda t: t.floats.median(),
    "mode": lambda t: t.floats.mode(),
    "multinomial with replacement": lambda t: t.floats.softmax(0).multinomial(2, replacement=True),
    "nonzero_static": lambda t: t.floats.nonzero_static(size=4),
    "normal": lambda t: torch.normal(t.floats, 1.0),
    "poisson": lambda t: torch.poisson(t.positive),
    "qr": lambda t: torch.linalg.qr(t.square),
    "randint": lambda t: torch.randint(5, (3,), device=t.device),
    "randperm": lambda t: torch.randperm(6, device=t.device),
    "scatter_reduce": lambda t: t.floats.scatter_reduce(0, t.ints, t.floats[:3], "sum"),
    "searchsorted": lambda t: torch.searchsorted(t.floats, t.floats),
    "solve": lambda t: torch.linalg.solve(t.square, t.square),
    "svd": lambda t: torch.linalg.svd(t.square),
    "tensor_split by a host tensor": lambda t: t.floats.tensor_split(t.host_indices),
    "to_sparse": lambda t: t.floats.to_sparse(),
    "tril_indices": lambda t: torch.tril_indices(3, 3, device=t.device),
    "unique_consecutive": lambda t: t.ints.unique_consecutive(),
}
"""What only a recording knows the answer to."""

ALONE = {"nested capture"}
"""Not to be tried outside of a capture first."""

CASES: dict[str, Step] = {**{name: step for name, (step, _) in REFUSED.items()}, **ALLOWED, **ASKED}
"""All steps by name."""

COMPILED = (
    "item",
    "truth",
    "tolist",
    "cpu",
    "tensor from a list",
    "index by a list",
    "nonzero",
    "index by a mask",
    "repeat_interleave",
    "synchronize",
    "arithmetic",
    "softmax",
    "where",
    "topk",
    "rand",
)
"""Cases that are tried compiled as well: each takes seconds."""

SOLVERS = {"cholesky", "cholesky_ex", "det", "eigh", "inv", "inv_ex", "lu_factor", "qr", "solve", "svd"}
"""Cases that use a solver library, whose handle a failed capture may leave broken for the next case."""


@contextmanager
def compiled() -> Iterator[None]:
    """As compiled decode steps run."""
    torch._dynamo.reset()
    with torch.no_grad():
        yield


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "compiled": compiled,
}


@dataclass(frozen=True)
class Answer:
    """What became of a capture."""

    outcome: str
    """"passes", "refused", or "fails eagerly": then it says nothing about captures."""
    code: int = field(default=0, compare=False)
    """CUDA's, 0 if the refusal is torch's own, or the exception does not tell; the message does in any case."""
    error: str = ""
    """Type of the first exception of the chain."""
    message: str = ""
    """Its first line, without "CUDA error: "."""


def tried() -> list[tuple[str, str]]:
    """All (case, mode)."""
    return [(case, mode) for mode in MODES for case in CASES if mode != "compiled" or case in COMPILED]


def first_error(t: Tensors, step: Step) -> BaseException | None:
    """What a capture of the step raised first, at its line; None if it went through."""
    caught: BaseException | None = None
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            step(t)
    except Exception as error:
        caught = error
        while caught.__context__ is not None:
            caught = caught.__context__
    return caught


def answer(case: str, mode: str, device: str) -> Answer:
    """Run the case once, then capture it. The current stream is as before afterwards."""
    step = CASES[case]
    before = torch.cuda.current_stream()
    with warnings.catch_warnings(), MODES[mode]():
        warnings.simplefilter("ignore")
        if mode == "compiled":
            step = torch.compile(step, dynamic=False)
        try:
            if case not in ALONE:
                step(Tensors(device))
                torch.cuda.synchronize()
        except Exception as error:
            return Answer("fails eagerly", 0, type(error).__name__, _first_line(error))
        try:
            first = first_error(Tensors(device), step)
        finally:
            torch.cuda.set_stream(before)
            if device == "cuda":  # the next case may draw, and may pin memory
                free_generators()
                forget_captured_events()
    if first is None:
        return Answer("passes")
    return Answer("refused", int(getattr(first, "error_code", 0)), type(first).__name__, _first_line(first))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0].removeprefix("CUDA error: ")


def on_cuda(case: str, mode: str) -> Answer:
    """The CUDA device's answer, whatever was tried before.

    Solvers and compiled code keep something of earlier cases, so these have a process of their own.

    Raises RuntimeError if the case fails eagerly: that says nothing about captures.
    """
    found = _in_own_process(case, mode) if _keeps_something(case, mode) else _within(case, mode)
    if found.outcome == "fails eagerly":
        raise RuntimeError(f"{case} ({mode}) fails eagerly, before any capture: {found.error}: {found.message}")
    return found


def _keeps_something(case: str, mode: str) -> bool:
    return mode == "compiled" or case in SOLVERS


def _within(case: str, mode: str) -> Answer:
    with CudaBackend().installed():  # torch survives failed captures with the hooks in
        found = answer(case, mode, "cuda")
        torch.cuda.synchronize()
    return found


def _in_own_process(case: str, mode: str) -> Answer:
    """Nothing compiled is taken from caches: it may have been made under other circumstances.

    It is compiled in the one process: a few small kernels are not worth others, many of which may run side by side.
    """
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--within", mode, case],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
                "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        told = (error.stderr or b"")[-2000:]
        raise RuntimeError(f"{case} ({mode}): not done after {error.timeout:.0f} s; so far it said: {told!r}") from None
    if done.returncode:
        raise RuntimeError(f"{case} ({mode}): exit {done.returncode}: {done.stderr[-2000:]}")
    return Answer(**json.loads(done.stdout.splitlines()[-1]))


def record(names: list[str], jobs: int) -> dict[str, object]:
    """The answers of the CUDA device to the named cases, beside what was recorded of the others.

    Args:
        names: cases; all, if none is named.
        jobs: processes at a time, for the cases that have one of their own.

    Raises ValueError if the others were recorded on another device or with another torch.
    """
    facts = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    asked = [(case, mode) for case, mode in tried() if not names or case in names]
    alone = [pair for pair in asked if _keeps_something(*pair)]
    with ThreadPoolExecutor(jobs) as pool:
        running = {pair: pool.submit(on_cuda, *pair) for pair in alone}
        found = {pair: running[pair].result() if pair in running else on_cuda(*pair) for pair in asked}
    before: dict[str, Any] = (
        json.loads(RECORDED.read_text()) if names and RECORDED.exists() else {**facts, "answers": {}}
    )
    if {fact: before[fact] for fact in facts} != facts:
        raise ValueError(f"{RECORDED.name} was not recorded with {facts}: record all cases anew")
    answers = before["answers"]
    for (case, mode), told in found.items():
        answers.setdefault(case, {})[mode] = asdict(told)
    return {**facts, "answers": {case: answers[case] for case in CASES if case in answers}}


def recorded() -> dict[tuple[str, str], Answer]:
    """The recorded answers by (case, mode); none if nothing was recorded yet."""
    if not RECORDED.exists():
        return {}
    answers = json.loads(RECORDED.read_text())["answers"]
    return {(case, mode): Answer(**found) for case, modes in answers.items() for mode, found in modes.items()}


def emulated(case: str, mode: str) -> Answer:
    """The emulation's answer."""
    backend = EmulatedBackend()
    with backend.installed():
        return answer(case, mode, backend.device)


def not_refused() -> list[str]:
    """Cases that CUDA refuses and the emulation lets pass, in order; with the mode where it is not all modes."""
    return _apart("refused", "passes")


def refused_in_vain() -> list[str]:
    """Cases that CUDA takes and the emulation refuses, likewise."""
    return _apart("passes", "refused")


def _apart(on_cuda: str, here: str) -> list[str]:
    apart = [
        (case, mode)
        for (case, mode), found in recorded().items()
        if found.outcome == on_cuda and emulated(case, mode).outcome == here
    ]
    names: dict[str, None] = {}
    for case, mode in apart:
        everywhere = all((case, other) in apart for other in MODES if (case, other) in tried())
        names[case if everywhere else f"{case} ({mode})"] = None
    return list(names)


def listed() -> str:
    """The module that says so."""

    def names(cases: list[str]) -> str:
        rows = "".join(f"    {json.dumps(name)},\n" for name in cases)
        return f"tuple[str, ...] = ({chr(10) + rows if rows else ''})\n"

    return (
        '"""Where CUDA and the emulation differ on what a capture takes. Made by `capture_cases.py --list`."""\n'
        "\nfrom __future__ import annotations\n\n"
        f"NOT_REFUSED: {names(not_refused())}"
        '"""What CUDA refuses and the emulation lets pass, by the names of the cases there."""\n\n'
        f"REFUSED_IN_VAIN: {names(refused_in_vain())}"
        '"""What CUDA takes and the emulation refuses."""\n'
    )


def main() -> None:
    """Record, or list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="default: all")
    parser.add_argument("--list", action="store_true", help="write the list, from what was recorded")
    parser.add_argument("--output", type=Path, default=RECORDED, help="where to record")
    parser.add_argument("--jobs", type=int, default=4, help="processes at a time")
    parser.add_argument("--within", choices=MODES, help="one case in this mode, in this process; prints JSON")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such cases: {', '.join(sorted(unknown))}")
    if options.list:
        LISTED.write_text(listed())
    elif options.within:
        print(json.dumps(asdict(_within(options.cases[0], options.within))))
    else:
        options.output.write_text(json.dumps(record(options.cases, options.jobs), indent=1) + "\n")
        print(f"{len(options.cases or CASES)} cases written to {options.output}")


if __name__ == "__main__":
    main()
