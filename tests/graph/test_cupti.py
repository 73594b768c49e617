"""Subscribing to CUPTI, over a stand-in for `cupti.cupti`."""

from __future__ import annotations

import ctypes
import enum
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cudagraph_doctor.graph import cupti
from cudagraph_doctor.graph.cupti import Unavailable, failing_calls, kernel_launches, node_creations, plain_name


class CuptiError(Exception):
    pass


class RuntimeCalls(enum.IntEnum):
    INVALID = 0
    cudaGetLastError_v3020 = 10
    cudaSetDevice_v3020 = 16
    cudaGetDeviceCount_v3020 = 3
    cudaMalloc_v3020 = 20
    cudaStreamGetCaptureInfo_v2_ptsz_v11030 = 30

    cudaLaunchKernel_v7000 = 211
    cudaLaunchHostFunc_v10000 = 346


class DriverCalls(enum.IntEnum):
    cuCtxSynchronize = 1
    cuCtxGetDevice_v2 = 2
    cuLaunchKernelEx_ptsz = 652


class Api:
    """What cupti-python does, as far as `node_creations` leans on it."""

    cuptiError = CuptiError
    CallbackDomain = SimpleNamespace(RESOURCE=3, RUNTIME_API=2, DRIVER_API=1)
    ApiCallbackSite = SimpleNamespace(API_ENTER=0, API_EXIT=1)
    CallbackIdResource = SimpleNamespace(GRAPHNODE_CREATED=13)
    runtime_api_trace_cbid = RuntimeCalls
    driver_api_trace_cbid = DriverCalls

    def __init__(self) -> None:
        self.refuses: Exception | None = None
        self.subscribed: Callable[..., None] | None = None
        self.enabled: list[tuple[int, int, int, int]] = []

    def subscribe(self, callback: Callable[..., None], user_data: object) -> int:
        if self.refuses:
            raise self.refuses
        self.subscribed = callback
        return 77

    def unsubscribe(self, subscriber: int) -> None:
        assert subscriber == 77
        self.subscribed = None

    def enable_callback(self, on: int, subscriber: int, domain: int, callback: int) -> None:
        self.enabled.append((on, subscriber, domain, callback))

    def enable_domain(self, on: int, subscriber: int, domain: int) -> None:
        self.enabled.append((on, subscriber, domain, 0))

    def call(self, name: str, code: int, *inside: tuple[str, int]) -> None:
        """A call, and calls that it makes itself."""
        self.told(0, name, 0)
        for inner in inside:
            self.call(*inner)
        value = ctypes.c_int(code)
        self.told(1, name, ctypes.addressof(value))

    def told(self, site: int, name: str, address: int, kernel: str = "") -> None:
        if self.subscribed:
            data = SimpleNamespace(
                callback_site=site, function_name=name, function_return_value=address, symbol_name=kernel
            )
            self.subscribed(None, 2, 1, data)

    def create(self) -> None:
        if self.subscribed:
            self.subscribed(None, 3, 13, object())


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    made_up = Api()
    monkeypatch.delitem(sys.modules, "cupti.cupti", raising=False)
    monkeypatch.setattr(importlib, "import_module", lambda name: made_up)
    cupti._api.cache_clear()
    yield made_up
    cupti._api.cache_clear()


def test_heard_inside_the_block_only(api: Api) -> None:
    heard: list[int] = []
    with node_creations(lambda: heard.append(1)):
        api.create()
        api.create()
    api.create()
    assert heard == [1, 1] and api.enabled == [(1, 77, 3, 13)]


@pytest.mark.parametrize("refusal", [CuptiError("ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"), RuntimeError("none")])
def test_a_refused_subscription(api: Api, refusal: Exception) -> None:
    api.refuses = refusal
    with pytest.raises(Unavailable) as caught, node_creations(lambda: None):
        pytest.fail("entered")
    assert str(refusal) in str(caught.value)


def test_it_is_given_back_when_the_block_fails(api: Api) -> None:
    with pytest.raises(KeyError), node_creations(lambda: None):
        raise KeyError("in the block")
    assert api.subscribed is None


def test_errors_of_the_listener_come_out_at_the_end(api: Api) -> None:
    reached: list[int] = []

    def fail() -> None:
        raise KeyError("in the listener")

    with pytest.raises(KeyError, match="in the listener"), node_creations(fail):
        api.create()
        reached.append(1)
    assert reached == [1] and api.subscribed is None


def test_without_cupti_python(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'cupti'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(Unavailable, match="No module named 'cupti'"), node_creations(lambda: None):
        pytest.fail("entered")


def test_a_target_that_uses_it_itself_is_left_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti.cupti", SimpleNamespace())
    with pytest.raises(Unavailable, match="uses cupti-python itself"), node_creations(lambda: None):
        pytest.fail("entered")
    assert api.enabled == []


def test_calls_that_a_capture_refuses_are_heard_at_their_end(api: Api) -> None:
    heard: list[tuple[str, int]] = []
    with failing_calls(lambda name, code: heard.append((name, code))):
        api.call("cudaStreamSynchronize_v3020", 900)
        api.call("cudaLaunchKernel_v7000", 0)
        api.call("cudaMalloc_v3020", 2)  # out of memory is no matter of captures
        api.call("cuMemAlloc_v2_ptsz", 908)
    api.call("cudaFree_v3020", 900)
    assert heard == [("cudaStreamSynchronize", 900), ("cuMemAlloc", 908)]


def test_what_torch_calls_in_destructors_is_not_told_of(api: Api) -> None:
    with failing_calls(lambda name, code: None):
        on, *off = api.enabled[:4]
        assert on == (1, 77, 2, 0) and [entry[:3] for entry in off] == [(0, 77, 2)] * 3
        assert [entry[3] for entry in off] == [10, 16, 30]
        assert api.enabled[4:] == [(1, 77, 1, 0), (0, 77, 1, 2)]


@pytest.mark.parametrize(
    ("name", "address"), [("cudaGetErrorString_v3020", 1), ("cudaGetErrorName_v6050", 1), ("cudaLaunchKernel_v7000", 0)]
)
def test_a_return_value_that_is_no_status_is_not_read(api: Api, name: str, address: int) -> None:
    """Measured on an H200: with CUPTI on, processes died reading one whenever a capture failed, none while all held.

    torch then asks for the error's text, `const char* cudaGetErrorString`, the only call of it that returns no status.
    """
    heard: list[tuple[str, int]] = []
    with failing_calls(lambda name, code: heard.append((name, code))):
        api.told(0, name, 0)
        api.told(1, name, address)
        api.call("cudaMalloc_v3020", 900)
    assert heard == [("cudaMalloc", 900)]


@pytest.mark.parametrize(
    ("code", "inside", "told"),
    [
        (900, [("cuMemAlloc_v2", 900)], ("cudaMalloc", 900)),
        (900, [("cuMemAlloc_v2", 901)], ("cudaMalloc", 900)),
        (999, [("cuMemAlloc_v2", 900), ("cuCtxSynchronize", 901)], ("cuMemAlloc", 900)),
        (0, [("cuCtxSynchronize", 0), ("cuMemAlloc_v2", 900)], ("cuMemAlloc", 900)),
    ],
)
def test_of_calls_inside_of_one_another_the_outermost_that_fails_is_told(
    api: Api, code: int, inside: list[tuple[str, int]], told: tuple[str, int]
) -> None:
    """Measured on an H200: the driver's call in a call of the runtime is told of too, and ends first."""
    heard: list[tuple[str, int]] = []
    with failing_calls(lambda name, code: heard.append((name, code))):
        api.call("cudaMalloc_v3020", code, *inside)
        assert heard == [told]
        api.call("cuStreamSynchronize", 901)
    assert heard == [told, ("cuStreamSynchronize", 901)]


def test_a_call_that_began_before_the_block(api: Api) -> None:
    heard: list[tuple[str, int]] = []
    with failing_calls(lambda name, code: heard.append((name, code))):
        value = ctypes.c_int(900)
        api.told(1, "cudaFree_v3020", ctypes.addressof(value))
    assert heard == [("cudaFree", 900)]


def test_threads_are_told_apart(api: Api) -> None:
    heard: list[tuple[str, int]] = []
    with failing_calls(lambda name, code: heard.append((name, code))):
        api.told(0, "cudaStreamSynchronize_v3020", 0)
        other = threading.Thread(target=api.call, args=("cudaEventQuery_v3020", 900))
        other.start()
        other.join()
        assert heard == [("cudaEventQuery", 900)]


def test_launches_of_kernels_are_heard_as_they_begin(api: Api) -> None:
    heard: list[str] = []
    with kernel_launches(heard.append):
        assert api.enabled == [(1, 77, 2, 211), (1, 77, 1, 652)]
        api.told(1, "cuLaunchKernelEx", 0, "began_before")
        api.told(0, "cudaLaunchKernel_v7000", 0, "first")
        api.told(0, "cuLaunchKernelEx", 0, "first")
        api.told(1, "cuLaunchKernelEx", 0, "first")
        api.told(1, "cudaLaunchKernel_v7000", 0, "first")
        api.told(0, "cuLaunchKernelEx", 0, "second")
        api.told(1, "cuLaunchKernelEx", 0, "second")
    assert heard == ["first", "first", "second"]


def test_names_of_calls_without_their_versions() -> None:
    assert (
        plain_name("cudaEventQuery_v3020") == "cudaEventQuery" and plain_name("cuCtxSynchronize") == "cuCtxSynchronize"
    )
