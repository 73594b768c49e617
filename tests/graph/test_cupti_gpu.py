"""What CUPTI tells while a real graph is captured, and when it does not."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.graph.cupti import Unavailable, failing_calls, kernel_launches, node_creations

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(importlib.util.find_spec("cupti") is None, reason="needs cupti-python"),
]


def test_each_node_once_and_none_after_the_block() -> None:
    x, heard = torch.zeros(4, device="cuda"), list[int]()

    def capture() -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            x.add_(1).mul_(3).sub_(1)
        return graph

    with node_creations(lambda: heard.append(1)):
        graph = capture()
        assert len(heard) == 3
        graph.instantiate()
        graph.replay()
        print(f"{len(heard) - 3} when instantiated and replayed")
    before = len(heard)
    capture()
    assert len(heard) == before and x.eq(2).all()


def test_kernels_by_name_as_they_are_launched() -> None:
    from cudagraph_doctor.reference_models.triton_kernels import scale_rows

    x, out, heard = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda"), list[str]()

    def step() -> None:
        scale_rows[(1,)](out, x, 2.0, 4, BLOCK=16)
        x.add_(1)

    step()
    with kernel_launches(heard.append):
        step()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            step()
    step()
    assert [name for name in heard if "scale_rows" in name] == ["scale_rows"] * 2, heard
    # the runtime's launches: once for the runtime, once for the driver. A capture sets its generator's offsets besides.
    others = [name for name in heard if "CUDAFunctorOnSelf_add" in name]
    assert len(others) == 4, heard
    assert all("scale_rows" in name or "elementwise" in name for name in heard), heard


def test_one_subscriber_a_process() -> None:
    def nothing() -> None:
        pass

    with (
        node_creations(nothing),
        pytest.raises(Unavailable, match="MULTIPLE_SUBSCRIBERS"),
        node_creations(nothing),
    ):
        pytest.fail("entered")
    with node_creations(nothing):
        pass


class Refusing(TorchDispatchMode):
    """An exception that goes from Python through torch's C++ to Python."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise KeyError(str(func))


@pytest.mark.parametrize("index", [lambda x, i, y: x[i], lambda x, i, y: x.__setitem__(i, y), lambda x, i, y: x[:i]])
def test_exceptions_on_their_way_through_torch_are_not_lost(index: Callable[..., object]) -> None:
    """Measured on an H200, torch 2.11: an index's device guard calls cudaGetDevice while the exception passes it."""
    x, y, i = torch.zeros(4, device="cuda"), torch.ones(1, device="cuda"), torch.tensor([2], device="cuda")
    index(x, i, y)
    refusing: Any = Refusing
    with failing_calls(lambda name, code: None), refusing(), pytest.raises(KeyError):
        index(x, i, y)
