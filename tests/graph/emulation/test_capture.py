"""Recording: what goes into a graph, what is put back, who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.emulation.recording import Node

DEVICE = "cpu:0"
Capture = Callable[[Callable[[], object]], Any]


def names(graph: Any) -> list[str]:
    return [node.operator.name for node in graph.recording.nodes]


def nodes(graph: Any) -> list[Node]:
    found: list[Node] = graph.recording.nodes
    return found


def test_views_and_bare_allocations_are_no_nodes(capture: Capture) -> None:
    x = torch.zeros(6, device=DEVICE)
    graph = capture(lambda: (torch.empty(3, device=DEVICE), x.view(2, 3).t()[1:].unbind(), x.split(2)))
    assert names(graph) == []


def test_host_operators_run_and_are_not_recorded(capture: Capture) -> None:
    host, x = torch.zeros(2), torch.zeros(2, device=DEVICE)
    graph = capture(lambda: (host.add_(1), x.add_(int(host.sum()))))
    assert host.tolist() == [1, 1] and names(graph) == ["aten.add_.Tensor"]
    graph.replay()
    assert host.tolist() == [1, 1] and x.tolist() == [2, 2]


def test_temporaries_of_composite_operators_are_the_devices(capture: Capture) -> None:
    x = torch.ones(2, 3, device=DEVICE)
    kept: list[torch.Tensor] = []
    # vander makes its matrix "where x is", which C++ takes for the host.
    graph = capture(lambda: kept.append(torch.vander(x[0], 3)))
    x.copy_(torch.tensor([2.0, 3.0, 4.0]))
    graph.replay()
    assert kept[0].device == torch.device(DEVICE)
    assert kept[0].tolist() == [[4, 2, 1], [9, 3, 1], [16, 4, 1]]


def test_a_failed_capture_puts_memory_back(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)
        x.sum().item()
    assert x.tolist() == [0, 0]


def test_an_error_of_the_step_itself_puts_memory_back_and_passes_through(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    stream = torch.cuda.current_stream()
    with pytest.raises(KeyError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)
        raise KeyError("the step's own")
    assert x.tolist() == [0, 0] and torch.cuda.current_stream() == stream
    assert backend.log.graphs == [], "a part of a step is no graph to look at"


def test_overlapping_views_of_one_storage_are_put_back_once(capture: Capture) -> None:
    x = torch.arange(4.0, device=DEVICE)
    capture(lambda: (x[:3].add_(1), x[1:].mul_(2), x.zero_()))
    assert x.tolist() == [0, 1, 2, 3]


def test_memory_allocated_in_the_capture_is_the_pools_and_numbered(capture: Capture) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph = capture(lambda: (x + 1) * 2)
    allocated = graph.recording.allocated
    assert [memory.ordinal for memory in allocated] == [0, 1]
    assert {memory.pool for memory in allocated} == {graph.recording.pool}


def test_a_cache_made_in_the_capture_is_cleared_by_each_replay(capture: Capture) -> None:
    caches: list[torch.Tensor] = []

    def step() -> None:
        caches.append(torch.zeros(2, device=DEVICE))
        caches[0].add_(1)

    graph = capture(step)
    graph.replay()
    graph.replay()
    assert caches[0].tolist() == [1, 1]


def test_nodes_wait_for_the_one_before_on_their_stream(capture: Capture) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph = capture(lambda: x.add_(1).mul_(2).sub_(3))
    assert [sorted(node.after) for node in nodes(graph)] == [[], [0], [1]]


def test_a_fork_and_its_join_in_the_edges(capture: Capture) -> None:
    x, y = torch.zeros(2, device=DEVICE), torch.zeros(2, device=DEVICE)
    side = torch.cuda.Stream()

    def step() -> None:
        main = torch.cuda.current_stream()
        x.add_(1)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            y.add_(1)
        x.mul_(2)
        main.wait_stream(side)
        x.add_(y)

    assert [sorted(node.after) for node in nodes(capture(step))] == [[], [0], [0], [1, 2]]


def test_edges_pass_over_host_operators(capture: Capture) -> None:
    x, host = torch.zeros(2, device=DEVICE), torch.zeros(2)
    graph = capture(lambda: (x.add_(1), host.add_(1).mul_(2), x.mul_(2)))
    assert [sorted(node.after) for node in nodes(graph)] == [[], [0]]


def test_the_fork_is_named_when_it_is_not_joined(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    side = torch.cuda.Stream()
    with (
        pytest.raises(RuntimeError, match=r"unjoined work\nstream .*, forked at .*test_capture.py:"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
    torch.cuda.set_stream(torch.cuda.default_stream())
    assert x.tolist() == [0, 0]


def test_a_join_that_came_too_early(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    side = torch.cuda.Stream()
    with pytest.raises(RuntimeError, match="unjoined work"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        main.wait_stream(side)
        with torch.cuda.stream(side):
            x.add_(1)
    torch.cuda.set_stream(torch.cuda.default_stream())


def test_work_after_the_first_error_is_refused_as_well(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    seen: list[str] = []
    with pytest.raises(RuntimeError, match="previous error"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        for step in (lambda: x.sum().item(), lambda: x.add_(1)):
            try:
                step()
            except RuntimeError as error:
                seen.append(str(error))
    torch.cuda.set_stream(torch.cuda.default_stream())
    assert "not permitted" in seen[0] and "previous error" in seen[1]


def test_origins_have_line_module_and_operator(backend: EmulatedBackend) -> None:
    class Block(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3

    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(Block()))
    x = torch.zeros(2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
        y += 1
    first, second = (node.origin for node in nodes(graph))
    assert (first.module, first.operator) == ("1.0", "aten.mul.Tensor")
    assert first.location is not None and first.location.code == "return x * 3"
    assert second.module == "" and second.location is not None and second.location.code == "y += 1"


def test_module_hooks_are_there_only_during_a_capture(backend: EmulatedBackend) -> None:
    registered = torch.nn.modules.module._global_forward_hooks
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert len(registered) == 1
    assert not registered


def test_the_doctors_own_captures_have_no_line(backend: EmulatedBackend) -> None:
    space: dict[str, object] = {"__name__": "cudagraph_doctor.proof.arms", "torch": torch}
    source = "def capture():\n    with torch.cuda.graph(torch.cuda.CUDAGraph()):\n        pass"
    exec(compile(source, "/somewhere/arms.py", "exec"), space)
    space["capture"]()  # type: ignore[operator]
    assert backend.log.graphs[0].captured_at is None
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass
    assert backend.log.graphs[1].captured_at is not None


def test_the_doctors_own_memory_in_a_capture_is_recorded_too(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        with backend.own_memory():
            probe = y.clone()
        y.mul_(2)
    graph.replay()
    assert probe.tolist() == [1, 1]
    assert probe.data_ptr() not in {block.address for block in backend.blocks()}
