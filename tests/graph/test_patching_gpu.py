"""Changing one parameter in an instantiated graph heals a replay, and is undone."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph import driver
from cudagraph_doctor.graph.backend import Edit
from cudagraph_doctor.graph.driver import call
from cudagraph_doctor.graph.model import CapturedGraph, NodeKind

pytest.importorskip("triton", reason="needs Triton, and with it a GPU")
import triton
import triton.language as tl

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def scale(x, out, factor, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


scale_kernel = triton.jit(scale)


def stream() -> int:
    return torch.cuda.current_stream().cuda_stream


def replace(graph: CapturedGraph, old: bytes, new: bytes) -> Edit:
    """The edit that puts `new` where `old` occurs in the graph's parameters (it has to occur once)."""
    found = [
        Edit(node.index, param.index, param.data.replace(old, new))
        for node in graph.nodes
        for param in node.params
        if old in param.data
    ]
    assert len(found) == 1, f"{old.hex()} occurs in {len(found)} parameters"
    return found[0]


def floats(old: float, new: float) -> tuple[bytes, bytes]:
    return struct.pack("<f", old), struct.pack("<f", new)


def addresses(old: torch.Tensor, new: torch.Tensor) -> tuple[bytes, bytes]:
    return struct.pack("<Q", old.data_ptr()), struct.pack("<Q", new.data_ptr())


def test_triton_scalar(gpu: Any) -> None:
    x, out = torch.ones(300, device="cuda"), torch.empty(300, device="cuda")
    graph, live = gpu.capture(lambda: scale_kernel[(3,)](x, out, 2.5, 300, BLOCK=128))
    edit = replace(gpu.read(live), *floats(2.5, 7.25))
    with gpu.backend.patched(live, [edit]):
        graph.replay()
        assert out.eq(7.25).all()
        assert gpu.read(live).nodes[0].params[edit.param].data == struct.pack("<f", 2.5)
    graph.replay()
    assert out.eq(2.5).all()


def test_scalar_in_a_functor(gpu: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    graph, live = gpu.capture(lambda: torch.mul(x, 3.0, out=out))
    with gpu.backend.patched(live, [replace(gpu.read(live), *floats(3.0, 5.0))]):
        graph.replay()
        assert out.eq(5).all()
    graph.replay()
    assert out.eq(3).all()


def test_pointer_in_a_functor(gpu: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    moved = torch.full((64,), 4.0, device="cuda")
    graph, live = gpu.capture(lambda: torch.mul(x, 3.0, out=out))
    with gpu.backend.patched(live, [replace(gpu.read(live), *addresses(x, moved))]):
        graph.replay()
        assert out.eq(12).all()
    graph.replay()
    assert out.eq(3).all()


def test_pointer_in_packed_parameters(gpu: Any) -> None:
    a, b, moved = (torch.randn(256, 256, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty(256, 256, device="cuda", dtype=torch.bfloat16)
    graph, live = gpu.capture(lambda: torch.matmul(a, b, out=out))
    with gpu.backend.patched(live, [replace(gpu.read(live), *addresses(b, moved))]):
        graph.replay()
        assert torch.equal(out, a @ moved)
    graph.replay()
    assert torch.equal(out, a @ b)


def test_source_of_a_copy(gpu: Any) -> None:
    x, y = torch.ones(64, device="cuda"), torch.full((64,), 2.0, device="cuda")
    out = torch.empty(64, device="cuda")
    graph, live = gpu.capture(lambda: out.copy_(x))
    read = gpu.read(live)
    assert read.nodes[0].kind is NodeKind.MEMCPY
    with gpu.backend.patched(live, [replace(read, *addresses(x, y))]):
        graph.replay()
        assert out.eq(2).all()
    graph.replay()
    assert out.eq(1).all()


def test_pinned_source_of_a_copy(gpu: Any) -> None:
    first, second = torch.ones(64).pin_memory(), torch.full((64,), 2.0).pin_memory()
    out = torch.empty(64, device="cuda")
    graph, live = gpu.capture(lambda: out.copy_(first, non_blocking=True))
    with gpu.backend.patched(live, [replace(gpu.read(live), *addresses(first, second))]):
        graph.replay()
        assert out.eq(2).all()
    graph.replay()
    assert out.eq(1).all()


def test_value_of_a_fill(gpu: Any) -> None:
    x = torch.zeros(64, device="cuda", dtype=torch.uint8)
    graph, live = gpu.capture(lambda: call("cuMemsetD8Async", x.data_ptr(), 7, 64, stream()))
    (node,) = gpu.read(live).nodes
    value = next(param for param in node.params if param.name == "value")
    with gpu.backend.patched(live, [Edit(node.index, value.index, (9).to_bytes(8, "little"))]):
        graph.replay()
        assert x.eq(9).all()
    graph.replay()
    assert x.eq(7).all()


def test_edits_nest_and_come_back_one_by_one(gpu: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    moved = torch.full((64,), 4.0, device="cuda")
    graph, live = gpu.capture(lambda: torch.mul(x, 3.0, out=out))
    read = gpu.read(live)
    with gpu.backend.patched(live, [replace(read, *floats(3.0, 5.0))]):
        with gpu.backend.patched(live, [replace(read, *addresses(x, moved))]):
            graph.replay()
            assert out.eq(20).all()
        graph.replay()
        assert out.eq(5).all()
    graph.replay()
    assert out.eq(3).all()


def test_an_edit_that_does_not_fit_changes_nothing(gpu: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    graph, live = gpu.capture(lambda: torch.mul(x, 3.0, out=out))
    good = replace(gpu.read(live), *floats(3.0, 5.0))
    for bad, words in [
        (Edit(0, 0, b"\0"), "bytes, not 1"),
        (Edit(0, 99, b"\0"), "none with index 99"),
        (Edit(5, 0, b"\0"), "no node 5"),
    ]:
        with pytest.raises(Inconclusive, match=words), gpu.backend.patched(live, [good, bad]):
            pytest.fail("patched")
    graph.replay()
    assert out.eq(3).all()


def test_nodes_that_are_not_patched_say_so(gpu: Any) -> None:
    x = torch.zeros(8, device="cuda")
    inner, _ = gpu.capture(lambda: x.add_(1.0))
    event = torch.cuda.Event(external=True)
    event.record()

    def step() -> None:
        gpu.add_child(inner)
        event.record()

    _, live = gpu.capture(step, warm=False)
    for node in gpu.read(live).nodes:
        with pytest.raises(Inconclusive, match="not patched"), gpu.backend.patched(live, [Edit(node.index, 0, b"")]):
            pytest.fail("patched")


def test_setting_a_node_of_a_child_graph_directly(gpu: Any) -> None:
    """What the driver does with it: `patching` refuses as long as this does not show a change."""
    from cudagraph_doctor.graph.arguments import Rebuilt
    from cudagraph_doctor.graph.functions import Kernels, kernel_arguments
    from cudagraph_doctor.graph.nodes import place

    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    inner, inner_live = gpu.capture(lambda: torch.mul(x, 3.0, out=out))
    edit = replace(gpu.read(inner_live), *floats(3.0, 5.0))
    outer, _ = gpu.capture(lambda: gpu.add_child(inner), warm=False)
    placed, _ = place(torch._C._CUDAGraph.raw_cuda_graph(outer))
    (node,) = (node for node in placed if node.parent is not None)
    params = call("cuGraphKernelNodeGetParams", node.handle)
    arguments, packed = kernel_arguments(params, Kernels())
    rebuilt = Rebuilt(arguments, {edit.param: edit.data}, packed)
    params.kernelParams = rebuilt.address
    executable = driver.bindings().CUgraphExec(outer.raw_cuda_graph_exec())
    outcome = "set"
    try:
        call("cuGraphExecKernelNodeSetParams", executable, node.handle, params)
    except driver.DriverError as error:
        outcome = str(error)
    outer.replay()
    torch.cuda.synchronize()
    print("CHILD NODE SET DIRECTLY:", outcome, "result", out[0].item())
    assert outcome != "set" or out[0].item() == 5.0


def test_a_graph_dropped_inside_the_block_is_left_alone(gpu: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    graph, live = gpu.capture(lambda: torch.mul(x, 3.0, out=out))
    with gpu.backend.patched(live, [replace(gpu.read(live), *floats(3.0, 5.0))]):
        graph.replay()
        torch.cuda.synchronize()
        graph.reset()
    with pytest.raises(Inconclusive, match="gone"), gpu.backend.patched(live, []):
        pytest.fail("patched")


def test_a_graph_not_yet_instantiated_cannot_be_patched(gpu: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        torch.mul(x, 3.0, out=out)
    live = gpu.backend.log.graphs[-1]
    edit = replace(gpu.read(live), *floats(3.0, 5.0))
    with pytest.raises(Inconclusive, match="not instantiated"), gpu.backend.patched(live, [edit]):
        pytest.fail("patched")
    graph.instantiate()
    with gpu.backend.patched(live, [edit]):
        graph.replay()
        assert out.eq(5).all()
