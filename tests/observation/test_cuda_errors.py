"""What a call is about, and what is shown of an exception."""

from __future__ import annotations

import pytest

from cudagraph_doctor.graph.emulation import faults
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.cuda_errors import kind_of_call, message, shown


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("cudaStreamSynchronize", Kind.SYNCHRONISATION),
        ("cudaEventQuery", Kind.QUERY),
        ("cudaMalloc", Kind.ALLOCATION),
        ("cuMemAlloc", Kind.ALLOCATION),
        ("cudaFree", Kind.ALLOCATION),
        ("cudaHostAlloc", Kind.PINNED_ALLOCATION),
        ("cudaMallocHost", Kind.PINNED_ALLOCATION),
        ("cudaMemcpyAsync", Kind.BLOCKING_COPY),
        ("cudaGraphExecDestroy", Kind.DESTROYED_GRAPH),
        ("cudaStreamBeginCapture", Kind.NESTED_CAPTURE),
        ("cudaStreamWaitEvent", Kind.UNCAPTURED_WORK),
        ("cudaStreamEndCapture", Kind.UNKNOWN),
        ("cudaDeviceGetAttribute", Kind.LIBRARY_CALL),
    ],
)
def test_what_a_call_is_about(call: str, kind: Kind) -> None:
    assert kind_of_call(call) is kind


def test_what_is_shown_of_an_error() -> None:
    def fails() -> None:
        raise faults.cuda_error(900, "in a second line")

    with pytest.raises(RuntimeError) as caught:
        fails()
    assert message(caught.value) == "CUDA error: operation not permitted when stream is capturing"
    assert shown(caught.value).endswith('raise faults.cuda_error(900, "in a second line")')
    assert shown(RuntimeError("never raised")) == "RuntimeError: never raised"
