"""Names of calls, as nsys and torch.profiler write them, and what they do."""

from __future__ import annotations

import pytest

from cudagraph_doctor.traces.calls import Kind, base_name, describe_error, is_api_name, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaGraphLaunch_v10000", Kind.GRAPH_LAUNCH),
        ("cudaGraphLaunch_ptsz_v10000", Kind.GRAPH_LAUNCH),
        ("cuGraphLaunch_ptsz", Kind.GRAPH_LAUNCH),
        ("hipGraphLaunch", Kind.GRAPH_LAUNCH),
        ("cudaLaunchKernelExC_v11060", Kind.LAUNCH),
        ("cuLaunchKernelEx", Kind.LAUNCH),
        ("hipExtModuleLaunchKernel", Kind.LAUNCH),
        ("cuStreamBeginCapture_v2_ptsz", Kind.BEGIN_CAPTURE),
        ("cudaStreamEndCapture_v10000", Kind.END_CAPTURE),
        ("cudaGraphInstantiateWithFlags_v11040", Kind.INSTANTIATE),
        ("cudaGraphExecUpdate_v10020", Kind.EXEC_UPDATE),
        ("cudaGraphExecKernelNodeSetParams_v10010", Kind.EXEC_UPDATE),
        ("cudaMemcpyAsync_ptsz_v7000", Kind.COPY),
        ("cuMemsetD8Async", Kind.COPY),
        ("cudaMallocAsync_v11020", Kind.ALLOCATE),
        ("cuMemAlloc_v2", Kind.ALLOCATE),
        ("cudaStreamSynchronize_v3020", Kind.SYNCHRONIZE),
        ("cuEventSynchronize", Kind.SYNCHRONIZE),
        ("cudaProfilerStart_v4000", Kind.PROFILER_START),
        # questions are no captures, and a template's parameters no update of an executable graph
        ("cudaStreamIsCapturing_v10000", Kind.OTHER),
        ("cudaStreamGetCaptureInfo_v2_v11030", Kind.OTHER),
        ("cudaThreadExchangeStreamCaptureMode_v10010", Kind.OTHER),
        ("cudaGraphKernelNodeSetParams_v10000", Kind.OTHER),
        ("cudaGraphUpload_v10000", Kind.OTHER),
        ("cudaLaunchHostFunc_v10000", Kind.OTHER),
    ],
)
def test_kind(name: str, kind: Kind) -> None:
    assert kind_of(name) is kind


def test_suffixes_are_stripped_in_any_order() -> None:
    assert base_name("cudaGraphLaunch_ptsz_v10000") == base_name("cudaGraphLaunch_v10000_ptsz") == "cudaGraphLaunch"


def test_kernels_are_no_calls() -> None:
    assert is_api_name("cudaFree_v3020") and is_api_name("cuInit") and is_api_name("hipFree")
    assert not is_api_name("cutlass::gemm") and not is_api_name("custom_kernel")


def test_errors_are_told_with_their_meaning() -> None:
    assert describe_error("cudaStreamSynchronize_v3020", 900).endswith(
        "900 (not permitted while a stream is capturing)"
    )
    assert describe_error("cuGraphLaunch", 1) == "cuGraphLaunch returned 1 (an argument is not valid)"
    assert describe_error("", 4711) == "a call returned 4711"
