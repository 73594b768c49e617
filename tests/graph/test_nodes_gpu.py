"""Reading real graphs: every kind of node, and what their addresses mean."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph import driver
from cudagraph_doctor.graph.addresses import Addresses
from cudagraph_doctor.graph.driver import call
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, NodeKind, Param
from cudagraph_doctor.graph.nodes import Reader, place
from cudagraph_doctor.graph.regions import Regions

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


def only(graph: CapturedGraph, kind: NodeKind) -> GraphNode:
    found = [node for node in graph.nodes if node.kind is kind]
    assert len(found) == 1, f"{len(found)} {kind} nodes in {[node.kind for node in graph.nodes]}"
    return found[0]


def named(node: GraphNode) -> dict[str, Param]:
    return {param.name: param for param in node.params}


def regions(node: GraphNode) -> list[str]:
    return [str(pointer.region) for param in node.params for pointer in param.pointers]


def test_triton_scalar_is_a_parameter_of_its_own(gpu: Any) -> None:
    x, out = torch.ones(300, device="cuda"), torch.empty(300, device="cuda")
    graph, live = gpu.capture(lambda: scale_kernel[(3,)](x, out, 2.5, 300, BLOCK=128))
    node = only(gpu.read(live, x=x, out=out), NodeKind.KERNEL)
    assert node.name == "scale" and node.grid == (3, 1, 1) and not node.unreadable
    assert regions(node)[:2] == ['input "x"', 'input "out"']
    assert struct.pack("<f", 2.5) in [param.data for param in node.params]
    assert live.nodes == 1
    graph.replay()
    assert out.eq(2.5).all()


def test_torch_scalar_lies_in_the_functor(gpu: Any) -> None:
    x, out = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    _, live = gpu.capture(lambda: torch.mul(x, 3.0, out=out))
    node = only(gpu.read(live, x=x, out=out), NodeKind.KERNEL)
    assert struct.pack("<f", 3.0) in node.params[1].data
    assert set(regions(node)) == {'input "x"', 'input "out"'}


def test_cublas_packs_its_parameters(gpu: Any) -> None:
    a, b = (torch.randn(256, 256, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty(256, 256, device="cuda", dtype=torch.bfloat16)
    _, live = gpu.capture(lambda: torch.matmul(a, b, out=out))
    read = gpu.read(live, a=a, b=b, out=out)
    assert not read.not_read
    assert {'input "a"', 'input "b"', 'input "out"'} <= {text for node in read.nodes for text in regions(node)}


def test_copies_on_the_device_and_from_pinned_memory(gpu: Any) -> None:
    x, y = torch.ones(100, device="cuda"), torch.empty(100, device="cuda")
    host = torch.ones(100).pin_memory()

    def step() -> None:
        y[:50].copy_(x[:50])
        x.copy_(host, non_blocking=True)

    _, live = gpu.capture(step)
    read = gpu.read(live, x=x, y=y)
    device, upload = (node for node in read.nodes if node.kind is NodeKind.MEMCPY)
    assert regions(device) == ['input "y"', 'input "x"']
    assert int.from_bytes(named(device)["width_bytes"].data, "little") == 200
    assert regions(upload)[0] == 'input "x"' and regions(upload)[1].startswith("pinned")
    assert (device.index, upload.index) in read.edges
    again = gpu.read(live, x=x, y=y, staging=host)
    assert regions(again.nodes[upload.index])[1] == 'input "staging"'


def test_fill(gpu: Any) -> None:
    x = torch.empty(64, device="cuda", dtype=torch.uint8)
    _, live = gpu.capture(lambda: call("cuMemsetD8Async", x.data_ptr(), 7, 64, stream()))
    node = only(gpu.read(live, x=x), NodeKind.MEMSET)
    assert regions(node) == ['input "x"']
    assert {name: int.from_bytes(param.data, "little") for name, param in named(node).items() if name != "dst"} == {
        "value": 7,
        "element_bytes": 1,
        "width": 64,
        "height": 1,
    }


def test_host_callback(gpu: Any) -> None:
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
    address = ctypes.cast(called, ctypes.c_void_p).value
    # Not through cuda-bindings: it puts a function of its own before the user's.
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
    x = torch.zeros(1, device="cuda")

    def step() -> None:
        x.add_(1)
        assert launch(ctypes.c_void_p(stream()), called, ctypes.c_void_p(0x5EED)) == 0

    _, live = gpu.capture(step, warm=False)
    node = only(gpu.read(live, x=x), NodeKind.HOST)
    assert {name: int.from_bytes(param.data, "little") for name, param in named(node).items()} == {
        "function": address,
        "user_data": 0x5EED,
    }


def test_external_events_are_nodes(gpu: Any) -> None:
    x = torch.zeros(1, device="cuda")
    recorded, awaited = (torch.cuda.Event(external=True) for _ in range(2))

    def step() -> None:
        awaited.wait()
        x.add_(1)
        recorded.record()

    recorded.record(), awaited.record()
    _, live = gpu.capture(step, warm=False)
    read = gpu.read(live, x=x)
    assert only(read, NodeKind.EVENT_WAIT).params[0].name == "event"
    assert int.from_bytes(only(read, NodeKind.EVENT_RECORD).params[0].data, "little") == recorded.cuda_event


def test_child_graph_is_descended_into(gpu: Any) -> None:
    x, y = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    inner, _ = gpu.capture(lambda: x.add_(1.0))

    def step() -> None:
        y.add_(2.0)
        gpu.add_child(inner)
        y.mul_(3.0)

    graph, live = gpu.capture(step, warm=False)
    read = gpu.read(live, x=x, y=y)
    child = only(read, NodeKind.CHILD)
    inside = [node for node in read.nodes if node.parent == child.index]
    assert [node.index for node in inside] == [child.index + 1]
    assert set(regions(inside[0])) == {'input "x"'}
    assert live.nodes == 3 and len(read.nodes) == 4
    assert set(read.edges) == {(0, 1), (1, 3)}
    x.zero_(), y.zero_()
    graph.replay()
    assert x.eq(1).all() and y.eq(6).all()


def test_memory_that_the_graph_allocates(gpu: Any) -> None:
    def step() -> None:
        address = call("cuMemAllocAsync", 4096, stream())
        call("cuMemsetD8Async", int(address) + 16, 1, 64, stream())
        call("cuMemFreeAsync", address, stream())

    _, live = gpu.capture(step, warm=False)
    read = gpu.read(live)
    assert regions(only(read, NodeKind.MEM_ALLOC)) == ['pool "alloc 0"']
    assert regions(only(read, NodeKind.MEMSET)) == ['pool "alloc 0" + 16']
    assert regions(only(read, NodeKind.MEM_FREE)) == ['pool "alloc 0"']


def test_conditional_node_is_descended_into_or_says_why_not(gpu: Any) -> None:
    api = driver.bindings()
    if not hasattr(api, "cuGraphNodeGetParams"):
        pytest.skip("these cuda-bindings add conditional nodes in another way")
    x = torch.zeros(64, device="cuda", dtype=torch.uint8)
    graph, context = call("cuGraphCreate", 0), call("cuCtxGetCurrent")
    params = api.CUgraphNodeParams()
    params.type = api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = call("cuGraphConditionalHandleCreate", graph, context, 1, 1)
    params.conditional.type = api.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
    params.conditional.size = 1
    params.conditional.ctx = context
    call("cuGraphAddNode", graph, [], [], 0, params)
    (body,) = params.conditional.phGraph_out
    fill = api.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.value, fill.elementSize, fill.width, fill.height = x.data_ptr(), 1, 1, 64, 1
    call("cuGraphAddMemsetNode", body, [], 0, fill, context)
    try:
        placed, _ = place(graph)
        nodes = Reader(Addresses(Regions(), [], "", [], driver.allocation_at), 9).read(placed)
        print(nodes)
        assert nodes[0].kind is NodeKind.CONDITIONAL
        if nodes[0].unreadable:
            assert "cuGraphNodeGetParams" in nodes[0].unreadable
        else:
            assert [(node.kind, node.parent) for node in nodes[1:]] == [(NodeKind.MEMSET, 0)]
    finally:
        call("cuGraphDestroy", graph)


def test_temporaries_lie_in_the_graphs_pool(gpu: Any) -> None:
    x = torch.ones(1024, device="cuda")
    _, live = gpu.capture(lambda: (x * 2).sum())
    read = gpu.read(live, x=x)
    assert live.pool and read.pool == live.pool
    assert any(text.startswith('pool "0"') for node in read.nodes for text in regions(node))


def test_two_captures_of_one_step_read_alike(gpu: Any) -> None:
    x = torch.ones(1024, device="cuda")
    kept = [gpu.capture(lambda: (x * 2).relu().sum()) for _ in range(2)]
    first, second = (gpu.read(live, x=x) for _, live in kept)
    assert [regions(node) for node in first.nodes] == [regions(node) for node in second.nodes]


def test_an_input_freed_after_capture_is_freed(gpu: Any) -> None:
    inputs = [torch.ones(1 << 23, device="cuda")]  # large enough for a segment of its own
    out = torch.empty(1 << 23, device="cuda")
    _, live = gpu.capture(lambda: torch.mul(inputs[0], 3.0, out=out))
    assert 'input "x"' in regions(gpu.read(live, x=inputs[0], out=out).nodes[0])
    address = inputs.pop().data_ptr()
    for moment in ("in the allocator's cache", "given back to the driver"):
        node = gpu.read(live, out=out).nodes[0]
        found = [p.region.kind for param in node.params for p in param.pointers if p.address == address]
        assert found == ["freed"], moment
        torch.cuda.empty_cache()
    assert driver.allocation_at(address) is None


def test_other_memory_of_torch_is_unnamed(gpu: Any) -> None:
    x, out = torch.ones(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    _, live = gpu.capture(lambda: torch.mul(x[256:], 3.0, out=out[256:]))
    node = gpu.read(live, out=out).nodes[0]
    assert "unnamed + 1024" in regions(node) and 'input "out" + 1024' in regions(node)


def test_memory_of_the_driver_is_unnamed(gpu: Any) -> None:
    address = int(call("cuMemAlloc", 1 << 16))
    try:
        _, live = gpu.capture(lambda: call("cuMemsetD8Async", address + 256, 0, 64, stream()), warm=False)
        assert regions(only(gpu.read(live), NodeKind.MEMSET)) == ["unnamed + 256"]
    finally:
        call("cuMemFree", address)


def test_random_numbers_are_read_and_reading_changes_nothing(gpu: Any) -> None:
    out = torch.empty(256, device="cuda")
    graph, live = gpu.capture(lambda: out.normal_())
    torch.manual_seed(1)
    graph.replay()
    before = out.clone()
    gpu.read(live, out=out)
    torch.manual_seed(1)
    graph.replay()
    assert torch.equal(out, before)


def test_many_kernels_of_torch_are_all_readable(gpu: Any) -> None:
    x = torch.randn(64, 512, device="cuda")
    index = torch.randint(0, 64, (32,), device="cuda")
    q = torch.randn(2, 4, 16, 64, device="cuda", dtype=torch.bfloat16)

    kept: list[torch.Tensor] = []

    def step() -> None:
        picked = x[index].softmax(-1)
        values, _ = picked.topk(5)
        order = values.sort(-1).values.cumsum(-1)
        attended = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        kept[:] = order.to(torch.float16), attended, x.index_copy(0, index, picked), x.argmax(-1)

    _, live = gpu.capture(step)
    begin = time.perf_counter()
    read = gpu.read(live, x=x, index=index, q=q)
    print(f"{(time.perf_counter() - begin) / len(read.nodes) * 1e6:.0f} microseconds a node")
    assert not read.not_read and len(read.nodes) > 8
    assert all(node.params for node in read.nodes if node.kind is NodeKind.KERNEL)


def test_cost_of_a_large_graph(gpu: Any) -> None:
    x = torch.zeros(1, device="cuda")

    def step() -> None:
        for _ in range(1000):
            x.add_(1)

    _, live = gpu.capture(step)
    begin = time.perf_counter()
    read = gpu.backend.read(live, Regions())
    seconds = time.perf_counter() - begin
    print(f"1000 nodes read in {seconds * 1e3:.0f} ms")
    assert len(read.nodes) == 1000 and seconds < 2
    assert set(read.edges) == {(at, at + 1) for at in range(999)}
