"""The same things done under CUDA and under the emulation: what is refused in a capture, and what a replay gives.

Each case runs emulated everywhere, and on CUDA where there is a GPU; what is expected was measured there. The cases of
what is refused, and how their answers are recorded, are in `capture_cases.py`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.emulation.not_refused import NOT_REFUSED, REFUSED_IN_VAIN
from cudagraph_doctor.graph.recovery import forget_captured_events, free_generators


def beside(name: str) -> ModuleType:
    """A module in this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = beside("capture_cases")
RECORDED = cases.recorded()
NOT_PERMITTED: str = cases.NOT_PERMITTED
Tensors: Any = cases.Tensors


@contextmanager
def emulated() -> Iterator[str]:
    with EmulatedBackend().installed():
        yield "cpu:0"


@contextmanager
def cuda() -> Iterator[str]:
    """With the hooks in: what was measured without them holds with them, and torch survives the failed captures."""
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    before = torch.cuda.current_stream()
    try:
        with CudaBackend().installed():
            yield "cuda"
    finally:
        torch.cuda.set_stream(before)
        torch.cuda.synchronize()
        free_generators()  # the next test may draw, and may pin memory
        forget_captured_events()


def another_stream() -> Any:
    """A stream that neither works now nor captures: torch hands out 32 of them in turn."""
    taken = (torch.cuda.current_stream(), torch.cuda.graph.default_capture_stream)
    return next(stream for stream in iter(torch.cuda.Stream, None) if stream not in taken)


@pytest.fixture(params=[emulated, pytest.param(cuda, marks=pytest.mark.gpu)], ids=["emulated", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a target would be called with."""
    with request.param() as name:
        yield name


@pytest.mark.parametrize("case", cases.REFUSED)
def test_refused_in_a_capture(device: str, case: str) -> None:
    step, message = cases.REFUSED[case]
    if case not in cases.ALONE:
        step(Tensors(device))
    torch.cuda.synchronize()
    error = cases.first_error(Tensors(device), step)
    assert error is not None and message in str(error), error


@pytest.mark.parametrize("case", cases.ALLOWED)
def test_allowed_in_a_capture(device: str, case: str) -> None:
    step = cases.ALLOWED[case]
    step(Tensors(device))
    torch.cuda.synchronize()
    error = cases.first_error(Tensors(device), step)
    assert error is None, error


@pytest.mark.skipif(not RECORDED, reason="nothing recorded yet: run `python tests/graph/capture_cases.py` on a GPU")
def test_everything_was_recorded() -> None:
    assert set(RECORDED) == set(cases.tried())


@pytest.mark.parametrize(("case", "mode"), RECORDED)
def test_the_emulation_answers_as_cuda_did(case: str, mode: str) -> None:
    found, wanted = cases.emulated(case, mode), RECORDED[case, mode]
    if {case, f"{case} ({mode})"} & set(NOT_REFUSED):
        assert (found.outcome, wanted.outcome) == ("passes", "refused")
    elif {case, f"{case} ({mode})"} & set(REFUSED_IN_VAIN):
        assert (found.outcome, wanted.outcome) == ("refused", "passes")
    elif "fails eagerly" not in (found.outcome, wanted.outcome):
        assert found == wanted


def test_where_the_emulation_differs_is_listed() -> None:
    listed = list(NOT_REFUSED), list(REFUSED_IN_VAIN)
    assert listed == (cases.not_refused(), cases.refused_in_vain()), "run `python tests/graph/capture_cases.py --list`"


def test_the_list_is_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "not_refused", lambda: ["inv", 'a "quoted" one'])
    monkeypatch.setattr(cases, "refused_in_vain", lambda: [])
    namespace: dict[str, Any] = {}
    exec(cases.listed(), namespace)
    assert namespace["NOT_REFUSED"] == ("inv", 'a "quoted" one')
    assert namespace["REFUSED_IN_VAIN"] == ()


def test_a_difference_in_one_mode_is_listed_with_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, passed = cases.Answer("refused", 900, "AcceleratorError", NOT_PERMITTED), cases.Answer("passes")
    on_cuda = {
        **{("inv", mode): refused for mode in ("no_grad", "inference_mode")},
        **{("det", mode): refused if mode == "no_grad" else passed for mode in ("no_grad", "inference_mode")},
        ("item", "no_grad"): refused,
    }
    monkeypatch.setattr(cases, "recorded", lambda: on_cuda)
    assert cases.not_refused() == ["inv", "det (no_grad)"]


def test_what_the_emulation_alone_refuses_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = cases.Answer("passes")
    monkeypatch.setattr(cases, "recorded", lambda: {("item", "compiled"): passed, ("sort", "no_grad"): passed})
    assert cases.refused_in_vain() == ["item (compiled)"] and cases.not_refused() == []


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "mode"), RECORDED)
def test_cuda_answers_as_it_was_recorded(case: str, mode: str) -> None:
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    found = cases.on_cuda(case, mode)
    assert found == RECORDED[case, mode], f"torch {torch.__version__}: if that is right, record anew"


def test_a_case_that_fails_eagerly_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "_within", lambda case, mode: cases.Answer("fails eagerly", 0, "RuntimeError", "gone"))
    with pytest.raises(RuntimeError, match=r"item \(no_grad\) fails eagerly, before any capture: RuntimeError: gone"):
        cases.on_cuda("item", "no_grad")


@pytest.mark.parametrize(("case", "mode"), [("qr", "no_grad"), ("item", "compiled")])
def test_what_keeps_something_of_earlier_cases_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, case: str, mode: str
) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], **_: Any) -> Any:
        asked.append(words[2:])
        return subprocess.CompletedProcess(words, 0, 'noise\n{"outcome": "passes"}\n', "")

    monkeypatch.setattr(subprocess, "run", run)
    assert cases.on_cuda(case, mode) == cases.Answer("passes")
    assert asked == [["--within", mode, case]]


def test_a_process_that_dies_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    died = subprocess.CompletedProcess([], -11, "", "a segmentation fault")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: died)
    with pytest.raises(RuntimeError, match=r"qr \(no_grad\): exit -11: a segmentation fault"):
        cases.on_cuda("qr", "no_grad")


def test_a_process_that_hangs_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(words: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(words, 300, stderr=b"compiling")

    monkeypatch.setattr(subprocess, "run", hanging)
    with pytest.raises(RuntimeError, match=r"qr \(no_grad\): not done after 300 s; so far it said: b'compiling'"):
        cases.on_cuda("qr", "no_grad")


def test_named_cases_are_recorded_beside_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cases, "RECORDED", tmp_path / "answers.json")
    monkeypatch.setattr(cases, "on_cuda", lambda case, mode: cases.Answer("passes"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    old = {"outcome": "refused", "code": 0, "error": "RuntimeError", "message": "no"}
    before = {
        "torch": torch.__version__,
        "device": "a GPU",
        "answers": {"qr": {"no_grad": old}, "svd": {"no_grad": old}},
    }
    cases.RECORDED.write_text(json.dumps(before))
    told = cases.record(["qr"], 1)["answers"]
    assert {mode: found["outcome"] for mode, found in told["qr"].items()} == dict.fromkeys(
        ("no_grad", "inference_mode"), "passes"
    )
    assert told["svd"] == {"no_grad": old}
    cases.RECORDED.write_text(json.dumps({**before, "device": "another GPU"}))
    with pytest.raises(ValueError, match="record all cases anew"):
        cases.record(["qr"], 1)


def test_a_failed_capture_is_masked_and_leaves_its_stream_current(device: str) -> None:
    t = Tensors(device)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match="operation failed due to a previous error during capture") as caught,
        torch.cuda.graph(graph, stream=stream),
    ):
        t.floats.sum().item()
    assert NOT_PERMITTED in str(caught.value.__context__)
    assert torch.cuda.current_stream() == stream
    torch.cuda.set_stream(torch.cuda.default_stream())
    again = torch.cuda.CUDAGraph()
    with torch.cuda.graph(again):
        out = t.floats + 1
    again.replay()
    assert out.cpu().tolist() == [1, 2, 3, 4, 5, 6]


def test_a_pageable_copy_is_refused_without_harm_to_the_stream(device: str) -> None:
    t = Tensors(device)
    before = torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match="unless the CPU tensor is pinned"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        t.floats.copy_(t.host)
    assert torch.cuda.current_stream() == before


def test_a_stream_that_is_forked_and_not_joined(device: str) -> None:
    t = Tensors(device)
    side = another_stream()
    with (
        pytest.raises(RuntimeError, match="unjoined work"),
        torch.cuda.graph(torch.cuda.CUDAGraph(), stream=another_stream()),
    ):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            t.floats.add_(1)


def test_a_stream_that_is_forked_and_joined(device: str) -> None:
    t = Tensors(device)
    side = another_stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            a = t.floats * 2
        main.wait_stream(side)
        b = a + 1
    t.floats.fill_(10)
    graph.replay()
    assert b.cpu().tolist() == [21] * 6


def test_waiting_for_an_event_from_outside(device: str) -> None:
    t = Tensors(device)
    outside = another_stream()
    event = torch.cuda.Event()
    with torch.cuda.stream(outside):
        t.floats.add_(1)
        event.record()
    error = cases.first_error(t, lambda t: torch.cuda.current_stream().wait_event(event))
    assert error is not None and "dependency created on uncaptured work in another stream" in str(error)


def test_work_on_a_stream_that_takes_no_part_runs_at_once_and_is_not_in_the_graph(device: str) -> None:
    t = Tensors(device)
    counter = torch.zeros(1, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    other = another_stream()
    with torch.cuda.graph(graph):
        out = t.floats + 1
        with torch.cuda.stream(other):
            counter.add_(1)
    torch.cuda.synchronize()
    assert counter.item() == 1
    graph.replay()
    torch.cuda.synchronize()
    assert counter.item() == 1 and out[0].item() == 1


def test_capture_on_the_default_stream(device: str) -> None:
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_replay_without_a_capture_and_after_reset(device: str) -> None:
    t = Tensors(device)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with torch.cuda.graph(graph):
        t.floats.add_(1)
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()


def test_a_scalar_is_frozen_and_contents_are_not(device: str) -> None:
    t = Tensors(device)
    position = 3
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = t.floats * position
    position = 100
    t.floats.fill_(2)
    graph.replay()
    assert out.cpu().tolist() == [6] * 6


def test_a_host_scalar_tensor_is_frozen(device: str) -> None:
    t = Tensors(device)
    scale = torch.tensor(3.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = t.floats * scale
    scale.fill_(100)
    graph.replay()
    assert out.cpu().tolist() == [0, 3, 6, 9, 12, 15]


def test_pinned_memory_is_read_at_replay(device: str) -> None:
    t = Tensors(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.floats.copy_(t.pinned, non_blocking=True)
    t.pinned.fill_(42)
    graph.replay()
    assert t.floats.cpu().tolist() == [42] * 6


def test_pinned_memory_is_written_at_replay(device: str) -> None:
    t = Tensors(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.pinned.copy_(t.floats, non_blocking=True)
    assert t.pinned.tolist() == [1] * 6
    graph.replay()
    torch.cuda.synchronize()
    assert t.pinned.tolist() == [0, 1, 2, 3, 4, 5]


def test_draws_advance_with_each_replay_as_eager_draws_do(device: str) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.rand(4, device=device)
    torch.manual_seed(7)
    eager = [torch.rand(4, device=device).cpu() for _ in range(3)]
    torch.manual_seed(7)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(out.cpu())
    assert all(torch.equal(a, b) for a, b in zip(eager, replayed, strict=True))
    assert not torch.equal(replayed[0], replayed[1])


def test_a_capture_does_not_advance_the_generator(device: str) -> None:
    torch.manual_seed(7)
    expected = torch.rand(4, device=device).cpu()
    torch.manual_seed(7)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.rand(4, device=device)
    assert torch.equal(torch.rand(4, device=device).cpu(), expected)


def test_a_registered_generator(device: str) -> None:
    generator = torch.Generator(device=device)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    generator.manual_seed(5)
    x = torch.zeros(4, device=device)
    with torch.cuda.graph(graph):
        x.uniform_(generator=generator)
    graph.replay()
    first = x.cpu()
    graph.replay()
    second = x.cpu()
    generator.manual_seed(5)
    graph.replay()
    assert torch.equal(x.cpu(), first) and not torch.equal(first, second)


def test_host_draws_and_device_draws_are_apart(device: str) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    torch.rand(2, device=device)
    assert torch.equal(torch.rand(2), expected)


def test_a_copy_to_the_host_is_a_copy(device: str) -> None:
    x = torch.zeros(3, device=device)
    kept = x.cpu()
    x.fill_(1)
    assert kept.tolist() == [0, 0, 0] and x.to(device).data_ptr() == x.data_ptr()


def test_a_device_tensor_gives_no_numpy_array(device: str) -> None:
    x = torch.zeros(3, device=device)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [0, 0, 0]


def test_a_hosts_generator_for_the_device(device: str) -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.zeros(3, device=device).uniform_(generator=torch.Generator())


def test_is_current_stream_capturing(device: str) -> None:
    seen = []
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        seen.append(torch.cuda.is_current_stream_capturing())
        with torch.cuda.stream(another_stream()):
            seen.append(torch.cuda.is_current_stream_capturing())
    seen.append(torch.cuda.is_current_stream_capturing())
    assert seen == [True, False, False]


def test_graphs_of_one_pool(device: str) -> None:
    x = torch.ones(4, device=device)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        b = x * 5
    assert first.pool() == second.pool()
    second.replay()
    first.replay()
    assert a.cpu().tolist() == [2] * 4 and b.cpu().tolist() == [5] * 4


def test_make_graphed_callables(device: str) -> None:
    layer = torch.nn.Linear(3, 2, device=device).requires_grad_(False)
    sample = torch.zeros(1, 3, device=device)
    graphed: Any = torch.cuda.make_graphed_callables(layer.forward, (sample,))
    x = torch.ones(1, 3, device=device)
    assert torch.equal(graphed(x), layer(x))
