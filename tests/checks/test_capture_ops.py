"""`capture` from a target to an outcome, on tiny targets: the marked lines, and no others, are named."""

from __future__ import annotations

import gc
import inspect
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from cudagraph_doctor.checks import capture_ops, eager_diff
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Outcome, Proof, Severity, Status, outcome_from_json, to_json
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.recovery import free_generators
from cudagraph_doctor.observation import session
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.settings import Settings

MARK = re.compile(r"# (?P<codes>CGD\d{3}(, CGD\d{3})*)$")
SOURCE = Path(__file__).read_text().splitlines()
MARKED = {number: mark["codes"].split(", ") for number, line in enumerate(SOURCE, 1) if (mark := MARK.search(line))}
"""Line of this file -> the codes that it has to be named under."""


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.getfixturevalue(request.param)
    return found


class Loop:
    """A LoopTarget with one row of numbers per request, and things to do wrong with them."""

    buckets: tuple[int, ...] = (4,)

    def __init__(self, device: str) -> None:
        self.device = device
        self.weight = torch.full((4,), 2.0, device=device)
        self.seen = torch.zeros((), device=device)
        self.ones = torch.ones(4, dtype=torch.int64, device=device)
        self.host = torch.ones(4)
        self.pinned = torch.ones(4).pin_memory()
        self.on_device = torch.zeros(4, device=device)
        self.generator = torch.Generator(device=device)
        self.side = torch.cuda.Stream()
        self.event = torch.cuda.Event()
        self.event.record()

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        return torch.arange(n * 4, device=self.device).view(n, 4).float() + step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.aside(x)
        return x * self.weight

    def aside(self, x: torch.Tensor) -> None:
        pass

    def reset(self) -> None:
        self.seen.zero_()


def looked_at(target: Any, backend: Backend, **settings: Any) -> Outcome:
    return capture_ops.run(target, backend, Settings("capture", **settings), Silent())


def outcome(make: Callable[[str], Any], backend: Backend, **settings: Any) -> Outcome:
    with backend.installed():
        return looked_at(make(backend.device), backend, **settings)


def named(found: Outcome) -> list[tuple[str, int]]:
    return [(finding.code, finding.location.line if finding.location else 0) for finding in found.findings]


def marked(make: Callable[..., Any]) -> list[tuple[str, int]]:
    lines, first = inspect.getsourcelines(make)
    within = range(first, first + len(lines))
    return [(code, number) for number, codes in MARKED.items() if number in within for code in codes]


class Item(Loop):
    def aside(self, x: torch.Tensor) -> None:
        if x.sum().item() < 0:  # CGD201
            raise OverflowError


class Kept(Loop):
    """Clean twin: on the device."""

    def aside(self, x: torch.Tensor) -> None:
        self.seen.copy_(torch.where(x.sum() < 0, 1.0, 0.0))


class ReadInAllWays(Loop):
    def aside(self, x: torch.Tensor) -> None:
        if (x < 0).any():  # CGD201
            raise OverflowError
        int(x[0, 0])  # CGD201
        float(x[0, 0])  # CGD201
        list(range(self.ones[0]))  # CGD201
        x.tolist()  # CGD201
        str(x)  # CGD201
        x.cpu()  # CGD201
        x.to("cpu")  # CGD201
        self.host.copy_(x[0])  # CGD201
        torch.equal(x, x + 1)  # CGD201


class HostOnly(Loop):
    """Clean twin: the same of tensors that lie on the host."""

    def aside(self, x: torch.Tensor) -> None:
        h = self.host
        if (h < 0).any():
            raise OverflowError
        int(h[0]), float(h[0]), h.tolist(), str(h), h.cpu(), h.to("cpu"), torch.equal(h, h + 1)
        torch.equal(x, x)
        torch.tensor([1.0, 2.0]), h.new_tensor([1.0])


class ShapesFromValues(Loop):
    def aside(self, x: torch.Tensor) -> None:
        x[x > 1]  # CGD202
        x.nonzero()  # CGD202
        torch.where(x > 1)  # CGD202
        x.masked_select(x > 1)  # CGD202
        x.repeat_interleave(self.ones, 0)  # CGD202
        self.ones.unique()  # CGD202
        self.ones.bincount()  # CGD202


class FixedShapes(Loop):
    """Clean twin."""

    def aside(self, x: torch.Tensor) -> None:
        torch.where(x > 1, x, 0.0)
        x.repeat_interleave(self.ones, 0, output_size=4)
        x[self.ones]
        x[x > 1] = 0.0


class Copies(Loop):
    def aside(self, x: torch.Tensor) -> None:
        torch.tensor([1.0, 2.0], device=x.device)  # CGD203
        x.new_tensor([1.0, 2.0])  # CGD203
        torch.as_tensor([1.0, 2.0], device=x.device)  # CGD203
        self.on_device.copy_(self.host, non_blocking=True)  # CGD203
        self.on_device.copy_(self.pinned)  # CGD203
        self.pinned.copy_(self.on_device)  # CGD203
        x[[0, 2]]  # CGD203
        x[:, [0, 2]]  # CGD203


class PinnedCopies(Loop):
    """Clean twin."""

    def aside(self, x: torch.Tensor) -> None:
        self.on_device.copy_(self.pinned, non_blocking=True)
        self.pinned.copy_(self.on_device, non_blocking=True)
        torch.full((2,), 1.0, device=x.device)
        x[0:3:2]


class Waits(Loop):
    def aside(self, x: torch.Tensor) -> None:
        torch.cuda.synchronize()  # CGD204
        torch.cuda.current_stream().synchronize()  # CGD204
        self.event.synchronize()  # CGD204
        torch.cuda.current_stream().query()  # CGD205
        self.event.query()  # CGD205


class WaitsEagerly(Loop):
    """Clean twin."""

    def aside(self, x: torch.Tensor) -> None:
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
            self.event.query()
        torch.cuda.Event().record()  # not the one that is polled: measured, polling one that was captured is invalid


class Seeds(Loop):
    def aside(self, x: torch.Tensor) -> None:
        torch.manual_seed(time.monotonic_ns())  # CGD206
        torch.cuda.manual_seed(time.monotonic_ns())  # CGD206
        torch.empty_like(x).uniform_(generator=self.generator)  # CGD206


class Registered(Loop):
    """Clean twin."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.generators = [self.generator]

    def aside(self, x: torch.Tensor) -> None:
        torch.empty_like(x).uniform_(generator=self.generator)
        torch.rand_like(x)


class Unjoined(Loop):
    def aside(self, x: torch.Tensor) -> None:
        self.side.wait_stream(torch.cuda.current_stream())  # CGD208
        with torch.cuda.stream(self.side):
            self.seen.add_(1)


class UnjoinedByEvent(Loop):
    def aside(self, x: torch.Tensor) -> None:
        forked = torch.cuda.Event()
        forked.record()
        forked.wait(self.side)  # CGD208
        with torch.cuda.stream(self.side):
            self.seen.add_(1)


class Joined(Loop):
    """Clean twin."""

    def aside(self, x: torch.Tensor) -> None:
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.seen.add_(1)
            done = self.side.record_event()
        torch.cuda.current_stream().wait_event(done)


class ForeignEvent(Loop):
    def aside(self, x: torch.Tensor) -> None:
        torch.cuda.current_stream().wait_event(self.event)  # CGD209


class Nested(Loop):
    def aside(self, x: torch.Tensor) -> None:
        if torch.cuda.is_current_stream_capturing():
            with torch.cuda.graph(torch.cuda.CUDAGraph()):  # CGD210
                self.seen.add_(1)


class Stray(Loop):
    def aside(self, x: torch.Tensor) -> None:
        with torch.cuda.stream(torch.cuda.default_stream()):
            self.seen.add_(1)  # CGD214


class StrayConstant(Loop):
    """Clean twin: made from nothing, it is a constant, and the graph need not make it again."""

    def aside(self, x: torch.Tensor) -> None:
        with torch.cuda.stream(torch.cuda.default_stream()):
            constant = torch.empty(4, device=self.device)
            constant.fill_(3)
            constant = constant * 2 + 1
        self.seen.copy_(constant.sum())


class Elsewhere(Loop):
    def __init__(self, device: str) -> None:
        super().__init__(device)
        with torch.cuda.stream(self.side):
            self.there = torch.ones(4, device=device)  # keeps torch's allocator from asking CUDA for memory in captures

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(self.side):
            return super().forward(x)  # CGD215


class Dying(Loop):
    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.sources = [torch.ones(4).pin_memory() for _ in range(64)]

    def aside(self, x: torch.Tensor) -> None:
        self.on_device.copy_(self.sources.pop(), non_blocking=True)  # CGD216


class PinnedInside(Loop):
    """Clean with torch 2.11 and newer, where what is pinned inside is the graph's."""

    def aside(self, x: torch.Tensor) -> None:
        self.on_device.copy_(torch.ones(4).pin_memory(), non_blocking=True)


class PinnedStatic(Loop):
    """Clean twin: what the step copies from is a static input, which the runner holds."""

    def static_inputs(self, bucket: int) -> torch.Tensor:
        return torch.zeros(bucket, 4).pin_memory()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here = torch.empty(len(x), 4, device=self.device)
        return here.copy_(x, non_blocking=True) * self.weight


BAD = [
    *(Item, ReadInAllWays, ShapesFromValues, Copies, Waits, Seeds, Unjoined, UnjoinedByEvent, ForeignEvent, Nested),
    *(Stray, Elsewhere, Dying),
]
SOUND = [Loop, Kept, HostOnly, FixedShapes, PinnedCopies, WaitsEagerly, Registered, Joined, StrayConstant, PinnedStatic]


@pytest.mark.parametrize("make", BAD)
def test_the_marked_lines_are_named_in_order(make: Callable[[str], Any], backend: Backend) -> None:
    found = outcome(make, backend)
    assert named(found) == marked(make), [finding.message for finding in found.findings]
    assert found.status is Status.FOUND
    for finding in found.findings:
        assert finding.location and finding.location.file == __file__ and finding.fix
        assert finding.severity is Severity.ERROR and finding.proof is not Proof.SUSPECTED
        to_json(finding)


@pytest.mark.parametrize("make", SOUND)
def test_sound_steps_draw_nothing(make: Callable[[str], Any], backend: Backend) -> None:
    found = outcome(make, backend)
    assert (found.status, named(found)) == (Status.PASSED, [])
    assert found.checked["captures"] == 1


@pytest.mark.parametrize(("keeps", "told"), [(True, []), (False, ["CGD216"])])
def test_what_is_pinned_inside_of_the_capture(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, keeps: bool, told: list[str]
) -> None:
    monkeypatch.setattr(session, "_GRAPHS_KEEP_PINNED", keeps)
    assert [finding.code for finding in outcome(PinnedInside, backend).findings] == told


class Skips(Loop):
    """Adds to what it gives, and counts, unless it is captured."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.weight
        if not torch.cuda.is_current_stream_capturing():
            x = x + 1  # CGD220
            self.seen.add_(1)  # CGD220
        return x - 2


class SkipsWhatDoesNothing(Loop):
    """Clean twin: what is left out looks, adds nothing, or writes what is there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.weight
        if not torch.cuda.is_current_stream_capturing():
            if not x.isfinite().all():
                raise OverflowError
            x = x + self.seen
            self.on_device.copy_(torch.zeros_like(self.on_device))
        return x - 2


class DoesItAnotherWay(Loop):
    """Clean twin: no less is done."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            self.on_device.add_(1)
        else:
            self.on_device.sub_(-1)
        return x * self.weight


class MakesOnce(Loop):
    """Clean twin: a table is made by the first eager step, and kept."""

    table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None and not torch.cuda.is_current_stream_capturing():
            self.table = torch.arange(4, device=self.device).float()
        return x * self.table if self.table is not None else x


def test_what_is_left_out_of_the_capture_and_matters(backend: Backend) -> None:
    found = outcome(Skips, backend)
    assert named(found) == marked(Skips)
    assert all(finding.fix and finding.proof is Proof.MEASURED for finding in found.findings)


@pytest.mark.parametrize("make", [SkipsWhatDoesNothing, DoesItAnotherWay])
def test_what_is_left_out_and_does_no_harm_is_told_aside(make: type[Loop], backend: Backend) -> None:
    found = outcome(make, backend)
    assert named(found) == [] and found.checked["left out when captured, no harm shown"]


def test_what_is_made_once_is_not_left_out(backend: Backend) -> None:
    found = outcome(MakesOnce, backend)
    assert named(found) == [] and "left out when captured, no harm shown" not in found.checked


class RaisesEagerly(Loop):
    """Told that nothing captures, it fails: it never is, while a capture is open."""

    opened = False

    def aside(self, x: torch.Tensor) -> None:
        if self.opened and not torch.cuda.is_current_stream_capturing():
            raise KeyError("no graph")

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        graph, static = torch.cuda.CUDAGraph(), torch.ones(4, 4, device=self.device)
        with torch.cuda.graph(graph):
            self.opened = True
            out = self.forward(static)
            self.opened = False
        self.opened = False

        def run(x: torch.Tensor) -> torch.Tensor:
            static[: len(x)].copy_(x)
            graph.replay()
            return out[: len(x)]

        return run


def test_a_step_that_cannot_be_told_the_truth_is_not_compared(backend: Backend) -> None:
    found = outcome(RaisesEagerly, backend)
    assert named(found) == [] and any("KeyError" in sentence for sentence in found.not_checked)


class Checkpointed(Loop):
    """Keeps the generator's state, to recompute with the same draws."""

    keeps = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            keeps = self.keeps
            y = checkpoint(self.scaled, x, use_reentrant=False, preserve_rng_state=keeps)  # CGD206
        kept: torch.Tensor = y.detach()
        return kept

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class CheckpointedWithoutDraws(Checkpointed):
    """Clean twin: there are none."""

    keeps = False


def test_a_checkpoint_reads_the_generator(backend: Backend) -> None:
    """Emulated it does not: it asks for the type of its tensors' device."""
    found = outcome(Checkpointed, backend)
    refused = backend.name == "cuda" and refuses_to_tell_the_generators_state(backend)
    assert named(found) == (marked(Checkpointed) if refused else []), found
    assert named(outcome(CheckpointedWithoutDraws, backend)) == []


def refuses_to_tell_the_generators_state(backend: Backend) -> bool:
    """Whether this torch does, in a capture. 2.11 does not: see the micro-case `checkpoint`."""
    before, cell = torch.cuda.current_stream(), torch.zeros(1, device=backend.device)
    with backend.installed():
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                cell.zero_()  # torch warns of empty graphs
                torch.cuda.get_rng_state()
        except RuntimeError:
            return True
        finally:
            torch.cuda.set_stream(before)
            free_generators()
    return False


class Memo(Loop):
    """A warm-up computes what the capture then finds; staging drops it."""

    total: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.total is None:
            self.total = x.sum()  # not in the graph
        return x * self.total

    def update(self, static: torch.Tensor, fresh: torch.Tensor) -> None:
        static.zero_()[: len(fresh)].copy_(fresh)
        self.total = None


def test_what_python_keeps_from_a_warm_up_is_found_by_diff(backend: Backend) -> None:
    found = outcome(Memo, backend)
    assert named(found) == [] and any("Python kept" in sentence for sentence in found.not_checked)
    with backend.installed():
        stale = eager_diff.run(Memo(backend.device), backend, Settings("diff"), Silent())
    [finding] = [finding for finding in stale.findings if finding.severity is not Severity.NOTE]
    assert finding.code == "CGD101" and finding.proof is not Proof.SUSPECTED
    if backend.name == "emulated":
        assert finding.location and finding.location.code == "self.total = x.sum()  # not in the graph"


class Mixed(Loop):
    """Runs a layer under autocast, and captures two buckets by itself."""

    buckets = (2, 4)

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.layer = torch.nn.Linear(4, 4, device=device)
        self.on: dict[str, Any] = {"device_type": torch.device(device).type, "dtype": torch.bfloat16}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(**self.on):
            y: torch.Tensor = self.layer(x)  # CGD221
            return y

    def around(self) -> AbstractContextManager[Any]:
        """What each warm-up and capture is in."""
        return torch.autocast(**self.on)

    def captured(self, bucket: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
        graph, static = torch.cuda.CUDAGraph(), torch.ones(bucket, 4, device=self.device)
        self.forward(static)
        with torch.cuda.graph(graph):
            out = self.forward(static)
        return graph, static, out

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        runs = {}
        for bucket in reversed(self.buckets):
            with self.around():
                runs[bucket] = self.captured(bucket)

        def run(x: torch.Tensor) -> torch.Tensor:
            graph, static, out = runs[min(bucket for bucket in self.buckets if bucket >= len(x))]
            static[: len(x)].copy_(x)
            graph.replay()
            return out[: len(x)]

        return run


class MixedAroundOff(Mixed):
    """An autocast that is off keeps for those inside of it all the same."""

    def around(self) -> AbstractContextManager[Any]:
        return torch.autocast(**self.on, enabled=False)


@pytest.mark.parametrize("make", [Mixed, MixedAroundOff])
def test_weights_that_autocast_cast_before_a_capture(make: type[Mixed], backend: Backend) -> None:
    [finding] = outcome(make, backend).findings
    assert [(finding.code, finding.location and finding.location.line)] == marked(Mixed)
    assert finding.proof is Proof.MEASURED and "their memory is free" in finding.message
    assert finding.evidence == {"weights": 4, "captures": 2, "modules": ["layer"]}  # two for each block of autocast
    opened, cast = finding.related
    assert opened.code == "with torch.cuda.graph(graph):" and finding.location and cast.line == finding.location.line


class MixedInside(Mixed):
    """Clean twin: each step enters autocast and leaves it."""

    def around(self) -> AbstractContextManager[Any]:
        return nullcontext()


class MixedUncached(Mixed):
    """Clean twin: nothing is kept."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.on["cache_enabled"] = False


class MixedFrozen(Mixed):
    """Clean twin: autocast keeps nothing of weights that need no gradients."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.layer.requires_grad_(False)


class MixedWarmedApart(Mixed):
    """Clean twin: the graph casts for itself, inside of an autocast that keeps."""

    def captured(self, bucket: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
        graph, static = torch.cuda.CUDAGraph(), torch.ones(bucket, 4, device=self.device)
        with torch.cuda.graph(graph):
            out = self.forward(static)
        return graph, static, out


@pytest.mark.parametrize("make", [MixedInside, MixedUncached, MixedFrozen, MixedWarmedApart])
def test_casts_that_each_graph_makes_for_itself(make: type[Mixed], backend: Backend) -> None:
    found = outcome(make, backend)
    assert named(found) == [] and "autocast" not in " ".join(found.not_checked)


class MixedInference(Mixed):
    """A finding where torch keeps casts under inference_mode; newer ones do not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return super().forward(x)


def test_casts_under_inference_mode(backend: Backend) -> None:
    class Casts(TorchDispatchMode):
        of_weight = 0

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call, unused-ignore]

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.of_weight += func in (torch.ops.aten.to.dtype, torch.ops.aten._to_copy.default) and args[0] is weight
            return func(*args, **(kwargs or {}))

    kind = torch.device(backend.device).type
    weight = torch.nn.Parameter(torch.ones(4, 4, device=kind))
    with torch.inference_mode(), Casts() as casts, torch.autocast(kind, dtype=torch.bfloat16):
        for _ in range(2):
            torch.nn.functional.linear(torch.ones(4, device=kind), weight)
    assert casts.of_weight in (1, 2)
    assert named(outcome(MixedInference, backend)) == (marked(Mixed) if casts.of_weight == 1 else [])


class MixedAroundAll(MixedWarmedApart):
    """All captures in one autocast: the second graph has no cast of its own."""

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        with torch.autocast(**self.on):
            return super().graphed()

    def captured(self, bucket: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
        graph, static = torch.cuda.CUDAGraph(), torch.ones(bucket, 4, device=self.device)
        with torch.cuda.graph(graph):
            out = self.forward(static)
        return graph, static, out


def test_weights_that_were_cast_in_another_capture(backend: Backend) -> None:
    [finding] = outcome(MixedAroundAll, backend).findings
    assert [(finding.code, finding.location and finding.location.line)] == marked(Mixed)
    assert finding.proof is Proof.MEASURED and "in an earlier capture" in finding.message
    assert finding.evidence["captures"] == 1


class MixedLazily(MixedAroundAll):
    """The step keeps a cast of its own from when it first ran: in the first capture."""

    def reset(self) -> None:
        super().reset()
        self.weight16: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(**self.on):
            if self.weight16 is None:
                self.weight16 = self.layer.weight.to(torch.bfloat16)
            return x @ self.weight16.T  # CGD221


def test_a_cast_of_an_earlier_capture_that_is_still_there_is_a_suspicion(backend: Backend) -> None:
    torch.ones(2, 2, device=backend.device).mm(torch.ones(2, 2, device=backend.device))  # cuBLAS makes its handle
    [finding] = outcome(MixedLazily, backend).findings
    assert [(finding.code, finding.location and finding.location.line)] == marked(MixedLazily)
    assert finding.proof is Proof.SUSPECTED and "Only replays of the graph" in finding.message


class MixedKept(MixedLazily):
    """Clean twin: from before the captures, and it stays."""

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        with torch.autocast(**self.on):
            self.forward(torch.ones(1, 4, device=self.device))
            return super().graphed()


def test_a_cast_from_before_the_captures_that_stays_is_no_finding_but_said(backend: Backend) -> None:
    found = outcome(MixedKept, backend)
    assert named(found) == [] and any("updates of weights" in sentence for sentence in found.not_checked)


class MixedEagerAfter(MixedWarmedApart):
    """Falls back to an eager step inside of the autocast that its first capture was in."""

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        with torch.autocast(**self.on):
            self.captured(4)
            self.layer(torch.ones(2, 4, device=self.device))  # CGD221
        return super().graphed()


def test_eager_code_that_reads_what_a_capture_cast(backend: Backend) -> None:
    [finding] = outcome(MixedEagerAfter, backend).findings
    assert [(finding.code, finding.location and finding.location.line)] == marked(MixedEagerAfter)
    assert finding.message.startswith("Eager code reads") and finding.proof is Proof.MEASURED


class MixedReplayedBefore(MixedEagerAfter):
    """Clean twin: the graph is replayed first."""

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        with torch.autocast(**self.on):
            graph, *_ = self.captured(4)
            graph.replay()
            self.layer(torch.ones(2, 4, device=self.device))
        return MixedWarmedApart.graphed(self)


def test_a_replay_computes_what_a_capture_cast(backend: Backend) -> None:
    assert named(outcome(MixedReplayedBefore, backend)) == []


def test_what_autocast_kept_from_before_all_captures_is_said(backend: Backend) -> None:
    class Stays(Mixed):
        def around(self) -> AbstractContextManager[Any]:
            torch.autocast(**self.on).__enter__()
            return nullcontext()

    with backend.installed(), ExitStack() as stack:
        target = Stays(backend.device)
        stack.callback(_leave_autocast)
        found = looked_at(target, backend)
    assert named(found) == []
    assert any("it was entered already" in sentence for sentence in found.not_checked)


def _leave_autocast() -> None:
    """As leaving what was entered for good does."""
    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, False)
    while torch.autocast_decrement_nesting() > 0:
        pass
    torch.clear_autocast_cache()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, nullcontext])
def test_the_same_under_each_mode(mode: Callable[[], AbstractContextManager[Any]], backend: Backend) -> None:
    def within(make: Callable[[str], Loop]) -> Callable[[str], Any]:
        class InMode(make):  # type: ignore[misc,valid-type]
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                with mode():
                    result: torch.Tensor = super().forward(x)
                    return result

        return InMode

    bad: list[type[Loop]] = [ReadInAllWays, ShapesFromValues, Copies]
    for make in bad:
        assert named(outcome(within(make), backend)) == marked(make)
    sound: list[type[Loop]] = [FixedShapes, PinnedCopies]
    for make in sound:
        assert named(outcome(within(make), backend)) == []


class InModule(Loop):
    """The operation is in a module, in a helper, called in a loop over layers from two places."""

    def __init__(self, device: str) -> None:
        super().__init__(device)

        class Layer(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * largest(x)

        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * largest(x)


def largest(x: torch.Tensor) -> float:
    return float(x.max())  # CGD201


def test_modules_callers_and_repetitions_are_told(emulated: Backend) -> None:
    in_layer, at_the_end = outcome(InModule, emulated).findings
    assert in_layer.evidence["module"] == "layers.0" and "3 times" in in_layer.message
    assert "module" not in at_the_end.evidence and "times" not in at_the_end.message
    assert [place.code for place in in_layer.related] == ["return x * largest(x)", "x = layer(x)"]
    assert [place.code for place in at_the_end.related] == ["return x * largest(x)"]
    assert in_layer.location == at_the_end.location


def test_the_value_of_the_dry_run_leads_the_way(emulated: Backend) -> None:
    class Branches(Loop):
        def aside(self, x: torch.Tensor) -> None:
            if x.sum().item() > 0:  # only in the true branch is there more
                x.nonzero()
            else:
                torch.cuda.synchronize()

    assert [finding.code for finding in outcome(Branches, emulated).findings] == ["CGD201", "CGD202"]


def test_the_error_is_told_with_what_plain_torch_shows(emulated: Backend) -> None:
    [finding] = outcome(Item, emulated).findings
    assert "CUDA error 900 (cudaErrorStreamCaptureUnsupported)" in finding.message
    assert "previous error during capture" in finding.evidence["plain_torch_shows"]
    assert "not permitted when stream is capturing" in finding.evidence["first_error"]
    assert finding.evidence["told_by"] == "the call that raised"


def test_a_refusal_that_the_step_catches_is_none(emulated: Backend) -> None:
    class Tries(Loop):
        def aside(self, x: torch.Tensor) -> None:
            try:
                self.on_device.copy_(self.host)
            except RuntimeError:
                self.on_device.zero_()
            x.sum().item()

    assert [finding.code for finding in outcome(Tries, emulated).findings] == ["CGD201"]


class Polled(Loop):
    """Another thread asks an event in the middle of the step; it always hits."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.threads = ThreadPoolExecutor(1, thread_name_prefix="poller")

    def poll(self) -> bool:
        return bool(self.event.query())  # CGD211

    def aside(self, x: torch.Tensor) -> None:
        self.threads.submit(self.poll).exception()


def test_another_thread_is_named_with_what_it_called(backend: Backend) -> None:
    [finding] = outcome(Polled, backend).findings
    assert (finding.code, finding.location and finding.location.line) == marked(Polled)[0]
    assert finding.evidence["thread"].startswith("poller") and 'In mode "thread_local"' in finding.message
    assert finding.culprit and finding.culprit.name == "Event.query"


def test_other_threads_may_do_as_they_like_in_thread_local_mode(backend: Backend) -> None:
    class ThreadLocal(Polled):
        def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
            graph, static = torch.cuda.CUDAGraph(), torch.zeros(4, 4, device=self.device)
            self.forward(static)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                out = self.forward(static)

            def run(x: torch.Tensor) -> torch.Tensor:
                static[: len(x)].copy_(x)
                graph.replay()
                return out[: len(x)].clone()

            return run

    assert named(outcome(ThreadLocal, backend)) == []


class FirstTime(Loop):
    """A runner of its own without a warm-up; the step looks at its inputs only once."""

    ready = False

    def aside(self, x: torch.Tensor) -> None:
        if not self.ready:
            self.scale = float(x.abs().max())  # CGD213
            self.ready = True

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        graph, static = torch.cuda.CUDAGraph(), torch.ones(4, 4, device=self.device)
        self.warm(static)
        with torch.cuda.graph(graph):
            out = self.forward(static)

        def run(x: torch.Tensor) -> torch.Tensor:
            graph.replay()
            return out[: len(x)]

        return run

    def warm(self, static: torch.Tensor) -> None:
        pass


class WarmedUp(FirstTime):
    """Clean twin."""

    def warm(self, static: torch.Tensor) -> None:
        self.forward(static)


def test_a_first_use_is_told_from_what_is_illegal_always(backend: Backend) -> None:
    [finding] = outcome(FirstTime, backend).findings
    assert [(finding.code, finding.location and finding.location.line)] == marked(FirstTime)
    attempts = finding.evidence["after_eager_runs"]
    assert len(attempts) == 3 and "not permitted" in attempts[0] and attempts[1].startswith("passes, 1 nodes")
    assert named(outcome(WarmedUp, backend)) == []


class Both(FirstTime):
    def aside(self, x: torch.Tensor) -> None:
        if not self.ready:
            self.scale = float(x.abs().max())  # CGD213
            self.ready = True
        x.nonzero()  # CGD202


def test_a_first_use_before_an_illegal_operation(backend: Backend) -> None:
    assert sorted(named(outcome(Both, backend))) == sorted(marked(Both))


class Engine:
    """An EngineTarget that captures when it is made; `lazy` ones in their first steps."""

    batch_sizes = (2,)
    lazy = False

    def __init__(self, device: str) -> None:
        self.device = device
        self.static = torch.zeros(2, 4, device=device)
        self.seen = torch.zeros((), device=device)
        self.on = True
        self.graph: Any = None
        if not self.lazy:
            self.capture()

    def capture(self) -> None:
        self.body()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.body()

    def body(self) -> torch.Tensor:
        self.aside()
        return self.static * 2

    def aside(self) -> None:
        with torch.cuda.stream(torch.cuda.default_stream()):
            self.seen.add_(1)  # CGD214

    def reset(self) -> None:
        self.seen.zero_()

    def graphs(self, on: bool) -> None:
        self.on = on

    def step(self, i: int, n: int) -> torch.Tensor:
        self.static.fill_(i)
        if not self.on:
            return self.body()
        if self.graph is None:
            self.capture()
        self.graph.replay()
        return self.out.clone()


class LazyEngine(Engine):
    lazy = True


class RecapturingEngine(Engine):
    def recapture(self) -> None:
        self.capture()


class CountsInside(Loop):
    """Staging looks at a number that the step advances."""

    count = 0

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.count = 0
        self.calls = 0

    def aside(self, x: torch.Tensor) -> None:
        self.count += 1  # CGD217
        self.calls += 1  # nobody reads this

    def update(self, static: torch.Tensor, fresh: torch.Tensor) -> None:
        static[: len(fresh)].copy_(fresh + self.count % 2)


class CountsOutside(CountsInside):
    """Clean twin: staging advances it."""

    def aside(self, x: torch.Tensor) -> None:
        self.calls += 1

    def update(self, static: torch.Tensor, fresh: torch.Tensor) -> None:
        self.count += 1
        static[: len(fresh)].copy_(fresh + self.count % 2)


class CountingEngine(Engine):
    """An engine whose steps read what its captured body advances."""

    lazy = True

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.position = 0

    def aside(self) -> None:
        self.position += 1  # CGD217

    def step(self, i: int, n: int) -> torch.Tensor:
        return super().step(self.position, n)

    def recapture(self) -> None:
        self.capture()


@pytest.mark.parametrize("make", [CountsInside, CountingEngine])
def test_a_host_value_that_only_eager_steps_move(make: Callable[[str], Any], backend: Backend) -> None:
    [finding] = outcome(make, backend).findings
    assert [(finding.code, finding.location and finding.location.line)] == marked(make)
    assert finding.severity is Severity.WARNING
    assert finding.culprit and finding.culprit.name in ("count", "position")
    assert "self.count % 2" in finding.related[0].code or "self.position" in finding.related[0].code


def test_a_host_value_that_nobody_reads_is_listed_only(emulated: Backend) -> None:
    found = outcome(CountsOutside, emulated)
    assert named(found) == [] and found.checked["host values that captures moved"] == ["calls"]
    assert "count" not in vars(CountsOutside) and type(vars(CountsInside)["count"]) is int


SPEC = f"{__file__}:"


@pytest.mark.parametrize("name", ["Engine", "LazyEngine", "RecapturingEngine"])
def test_an_engine_is_watched_capturing_by_itself(name: str, emulated: Backend) -> None:
    from cudagraph_doctor import loader

    settings = Settings("capture", spec=SPEC + name)
    with emulated.installed():
        found = capture_ops.run(loader.load(settings, emulated.device).target, emulated, settings, Silent())
    assert named(found) == marked(Engine), found


class StillbornEngine(Engine):
    """Its captures fail when it is made, so it never is."""

    def aside(self) -> None:
        if self.static.sum().item() < 0:  # CGD201
            raise OverflowError
        self.static.nonzero()  # CGD202


def test_an_engine_that_cannot_be_made_for_its_captures(emulated: Backend) -> None:
    from cudagraph_doctor import worker

    events: list[dict[str, Any]] = []
    settings = Settings("capture", spec=SPEC + "StillbornEngine", backend="emulated")
    worker.perform(settings, ("capture",), events.append)
    [found] = [outcome_from_json(event["outcome"]) for event in events if event["event"] == "outcome"]
    assert named(found) == marked(StillbornEngine)
    worker.perform(replace(settings, spec=SPEC + "Broken"), ("capture",), events.append)
    assert events[-1]["event"] == "refused" and "raised an exception" in events[-1]["what"]


class Broken:
    def __init__(self, device: str) -> None:
        raise KeyError("not a matter of captures")


def test_an_engine_that_cannot_be_made_anew(emulated: Backend) -> None:
    with pytest.raises(Inconclusive, match="cannot be made anew"):
        outcome(Engine, emulated, spec="reference:engine")


def test_a_step_that_fails_eagerly_is_the_targets_affair(emulated: Backend) -> None:
    class Broken(Loop):
        def aside(self, x: torch.Tensor) -> None:
            raise KeyError("not mine")

    with pytest.raises(KeyError, match="not mine"):
        outcome(Broken, emulated)


def test_what_cannot_be_got_out_of_the_way_leaves_suspicions(emulated: Backend) -> None:
    class ClosedRoad(Loop):
        def aside(self, x: torch.Tensor) -> None:
            if not torch.cuda.is_current_stream_capturing() or torch.cuda.current_stream() == self.side:
                return
            if emulated.capture_status(torch.cuda.current_stream().cuda_stream).value == "active":
                raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
            x.nonzero()

    first, second = outcome(ClosedRoad, emulated).findings
    assert (first.code, first.proof, second.code, second.proof) == (
        "CGD219",
        Proof.CONFIRMED,
        "CGD202",
        Proof.SUSPECTED,
    )


@pytest.fixture
def everything() -> Iterator[Callable[[], dict[str, Any]]]:
    """What may not be different afterwards."""

    def look() -> dict[str, Any]:
        owners = {
            "cuda": torch.cuda,
            "graphs": torch.cuda.graphs,
            "graph": torch.cuda.graph,
            "CUDAGraph": torch.cuda.CUDAGraph,
            "Stream": torch.cuda.Stream,
            "Event": torch.cuda.Event,
            "context": torch.cuda.StreamContext,
            "Tensor": torch.Tensor,
            "torch": torch,
        }
        module = torch.nn.modules.module
        # by torch itself, once it has captured, and once it has warned
        torchs = ("default_capture_stream", "__warningregistry__")
        return {
            **{name: {k: v for k, v in vars(owner).items() if k not in torchs} for name, owner in owners.items()},
            "modes": list(_get_current_dispatch_mode_stack()),
            "stream": torch.cuda.current_stream(),
            "hooks": (dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks)),
            "warnings": list(warnings.filters),
            "random": torch.get_rng_state().tolist(),
            "grad": torch.is_grad_enabled(),
            "gc": (gc.isenabled(), list(gc.callbacks)),
            "threads": threading.active_count(),
        }

    yield look


@pytest.mark.parametrize("make", [Loop, Item, Unjoined, Nested, Elsewhere])
def test_nothing_stays_installed(
    make: Callable[[str], Any], backend: Backend, everything: Callable[[], dict[str, Any]]
) -> None:
    with backend.installed():
        target = make(backend.device)
        before = everything()
        looked_at(target, backend)
        after = everything()
        for name, value in before.items():
            assert after[name] == value, name


def test_nothing_stays_installed_when_the_target_raises(
    emulated: Backend, everything: Callable[[], dict[str, Any]]
) -> None:
    class Leaves(Loop):
        """Begins a capture by hand and never ends it."""

        def graphed(self) -> Any:
            torch.cuda.set_stream(self.side)
            torch.cuda.CUDAGraph().capture_begin()
            raise KeyError("gone")

    with emulated.installed():
        target = Leaves(emulated.device)
        before = everything()
        for _ in range(2):
            with pytest.raises(KeyError, match="gone"):
                looked_at(target, emulated)
        after = everything()
        for name, value in before.items():
            assert after[name] == value, name
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.weight * 2
        graph.replay()  # another capture can begin, and end well


def test_only_codes_of_the_check_are_found(emulated: Backend) -> None:
    found = [finding for make in BAD for finding in outcome(make, emulated).findings]
    assert {finding.code for finding in found} <= set(capture_ops.RULES)
