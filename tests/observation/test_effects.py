"""What operators are seen to do in an eager run of a captured body."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.origins import ModulePath
from cudagraph_doctor.observation.effects import Done, Effects, EffectWatch
from cudagraph_doctor.observation.session import Session
from cudagraph_doctor.observation.values import Kept
from cudagraph_doctor.observation.windows import Windows

DEVICE = "cpu:0"


@pytest.fixture
def backend() -> Iterator[EmulatedBackend]:
    made = EmulatedBackend()
    with made.installed():
        yield made


def effects(
    backend: EmulatedBackend, body: Callable[[], Any], looked_at: Collection[Done] = (), captures: int = 1
) -> Effects:
    session = Session(True, False, Kept(), ModulePath({}), backend.capture_status, pretends=False)
    with Windows(session, backend).installed(), EffectWatch(session, backend, looked_at) as watch:
        for _ in range(captures):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                body()
    found: Effects = watch.effects
    return found


def looked_at_closely(backend: EmulatedBackend, body: Callable[[], Any], *names: str) -> tuple[set[str], set[str]]:
    """Names of what changes older memory, and of what is read, of all with these names."""
    looked_at: set[Done] = set()
    for _ in range(2):  # from one line: what calls the body is part of where it is
        found = effects(backend, body, looked_at)
        looked_at = {done for done in found.operations if done.site.name.split(".")[1] in names}
    changed, read = ({done.site.name.split(".")[1] for done in some} for some in (found.changed, found.read))
    return changed, read


def test_operators_in_order_with_what_they_give(backend: EmulatedBackend) -> None:
    x = torch.ones(4, device=DEVICE)
    found = effects(backend, lambda: (x + 1).view(2, 2).mul_(3))
    assert [operation.name for operation in found.operations.values()] == ["aten.add.Tensor", "aten.mul_.Tensor"]
    assert [found.result(done) for done in found.operations] == ["8.0", "24.0"]
    assert all(operation.location for operation in found.operations.values())


def test_each_capture_counts_by_itself(backend: EmulatedBackend) -> None:
    x = torch.ones(4, device=DEVICE)
    found = effects(backend, lambda: [x + 1 for _ in range(2)], captures=2)
    assert [(done.capture, done.ordinal) for done in found.operations] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_work_of_the_host_does_not_count(backend: EmulatedBackend) -> None:
    host = torch.ones(4)
    assert effects(backend, lambda: host + 1).operations == {}


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64, torch.float8_e4m3fn, torch.bfloat16, torch.int8])
def test_results_of_all_types(backend: EmulatedBackend, dtype: torch.dtype) -> None:
    x = torch.ones(4, device=DEVICE).to(dtype)
    found = effects(backend, x.clone)
    assert [found.result(done) for done in found.operations] == ["4.0"]


def test_older_memory_that_is_changed(backend: EmulatedBackend) -> None:
    x, seen = torch.ones(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    assert looked_at_closely(backend, lambda: seen.add_(x), "add_") == ({"add_"}, set())


def test_older_memory_that_gets_what_it_has(backend: EmulatedBackend) -> None:
    x, seen = torch.full((4,), float("nan"), device=DEVICE), torch.full((4,), float("nan"), device=DEVICE)
    assert looked_at_closely(backend, lambda: seen.copy_(x), "copy_") == (set(), set())


def test_memory_that_the_step_makes_is_no_older_memory(backend: EmulatedBackend) -> None:
    x = torch.ones(4, device=DEVICE)
    assert looked_at_closely(backend, lambda: torch.empty(4, device=DEVICE).copy_(x).add_(1), "add_") == (set(), set())


def test_results_that_others_read_through_each_other(backend: EmulatedBackend) -> None:
    x = torch.ones(4, device=DEVICE)
    assert looked_at_closely(backend, lambda: ((x + 1) * 2).sum(), "add", "mul") == (set(), {"add", "mul"})
    assert looked_at_closely(backend, lambda: ((x + 1) * 2, x.sum()), "add", "mul") == (set(), set())


def test_kernels_that_no_operator_launches_count_as_operators(backend: EmulatedBackend) -> None:
    """CUPTI tells of them; here the step does."""
    x = torch.ones(4, device=DEVICE)
    session = Session(True, False, Kept(), ModulePath({}), backend.capture_status, pretends=False)
    looked_at: set[Done] = set()
    for _ in range(2):  # from one line
        watch = EffectWatch(session, backend, looked_at)

        def step(watch: EffectWatch = watch) -> None:
            watch.launched("scale_rows")
            x.add_(1)

        with Windows(session, backend).installed(), watch:
            step()
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                step()
                with session.quiet():
                    watch.launched("the doctor's own")
        assert [one.name for one in watch.effects.operations.values()] == ["scale_rows", "aten.add_.Tensor"]
        assert watch.effects.read == looked_at and not watch.effects.changed
        session = Session(True, False, Kept(), ModulePath({}), backend.capture_status, pretends=False)
        looked_at = {done for done in watch.effects.operations if done.site.name == "scale_rows"}
    assert len(looked_at) == 1


def test_what_an_operator_launches_is_its_own(backend: EmulatedBackend) -> None:
    library = torch.library.Library("effects_test", "FRAGMENT")
    library.define("tells(Tensor x) -> Tensor")
    watches: list[EffectWatch] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        watches[0].launched("inside")
        return x.clone()

    library.impl("tells", run, "CPU")
    session = Session(True, False, Kept(), ModulePath({}), backend.capture_status, pretends=False)
    x = torch.ones(4, device=DEVICE)
    with Windows(session, backend).installed(), EffectWatch(session, backend) as watch:
        watches.append(watch)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.ops.effects_test.tells(x)
    library._destroy()
    assert [one.name for one in watch.effects.operations.values()] == ["effects_test.tells.default"]
