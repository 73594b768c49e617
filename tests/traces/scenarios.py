"""Decode loops with one fault each, and a clean twin beside it: what has to be found, and where there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp

BUCKETS = (1, 2, 4, 8, 16)
Build = Callable[["MadeUp"], None]


@dataclass(frozen=True)
class Scenario:
    """One made-up trace and what is to be found in it."""

    name: str
    build: Build
    codes: frozenset[str] = frozenset()
    """Warnings; empty: clean."""
    demands: dict[str, Any] = field(default_factory=dict)


def fitting(batch: int) -> int:
    return next(bucket for bucket in BUCKETS if bucket >= batch)


def captured(loop: MadeUp, buckets: tuple[int, ...] = BUCKETS, kernels: int = 40) -> dict[int, int]:
    """Graphs by bucket, the largest first."""
    return {bucket: loop.capture(kernels, bucket) for bucket in reversed(buckets)}


def serve(loop: MadeUp, batches: tuple[int, ...] = (3, 4, 16, 7, 1, 12, 2, 8)) -> dict[int, int]:
    """A sound loop: every batch padded to its bucket."""
    graphs = captured(loop)
    for i, batch in enumerate(batches):
        loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])
    return graphs


def above_largest(loop: MadeUp) -> None:
    graphs = serve(loop)
    for i, batch in enumerate((17, 20, 16), start=8):
        if batch > 16:
            loop.eager(i, batch)
        else:
            loop.decode(i, batch, 16, graphs[16])


def at_the_largest(loop: MadeUp) -> None:
    graphs = serve(loop)
    for i in (8, 9):
        loop.decode(i, 16, 16, graphs[16])


def hole(loop: MadeUp) -> None:
    graphs = captured(loop, (1, 2, 4, 16))
    for i, batch in enumerate((3, 6, 1, 8, 12, 5, 16, 2, 7, 13, 3)):
        if 4 < batch <= 8:
            loop.eager(i, batch, 8)
        else:
            loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])


def padded_over_the_hole(loop: MadeUp) -> None:
    graphs = captured(loop, (1, 2, 4, 16))
    for i, batch in enumerate((3, 6, 1, 8, 12, 5, 16, 2, 7, 13, 3)):
        bucket = next(b for b in graphs if b >= batch and b == min(g for g in graphs if g >= batch))
        loop.decode(i, batch, bucket, graphs[bucket])


def exact_only(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((4, 3, 8, 5, 16, 2, 12, 1)):
        if batch in graphs:
            loop.decode(i, batch, None, graphs[batch])
        else:
            loop.eager(i, batch)


def padding_lost(loop: MadeUp) -> None:
    """The dummy request for padding fails once: padded batches are eager from then on, exact ones are not."""
    graphs = captured(loop)
    for i, batch in enumerate((4, 3, 8, 5, 16, 3, 12, 4, 7, 8, 3)):
        if batch in graphs or i < 4:
            loop.decode(i, batch, None, graphs[fitting(batch)])
        else:
            loop.eager(i, batch)


def lost_for_good(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((4, 3, 8, 5, 16, 3, 12, 4, 7, 8, 3)):
        if i < 5:
            loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])
        else:
            loop.eager(i, batch)


def speculation(loop: MadeUp) -> None:
    """Three tokens a request, buckets in tokens; the fifth step drops a draft."""
    graphs = captured(loop, (3, 6, 12, 24))
    for requests in (1, 2, 4, 3, 8):
        bucket = min(b for b in graphs if b >= 3 * requests)
        loop.step(f"execute_context_0(0)_generation_{requests}({3 * requests})", graphs[bucket])
    loop.step("execute_context_0(0)_generation_4(11)", loose=45)
    loop.step("execute_context_0(0)_generation_2(5)", loose=45)


def whole_drafts(loop: MadeUp) -> None:
    graphs = captured(loop, (3, 6, 12, 24))
    for requests in (1, 2, 4, 3, 8, 4, 2):
        bucket = min(b for b in graphs if b >= 3 * requests)
        loop.step(f"execute_context_0(0)_generation_{requests}({3 * requests})", graphs[bucket])


def mixed_prefill(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((3, 4, 8, 2, 7, 1)):
        loop.step(f"execute_context_0(0)_generation_{batch}({batch})", graphs[fitting(batch)])
        if i % 2:
            loop.step(f"execute_context_1(7)_generation_{batch}({batch})", loose=45)


def prefill_apart(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((3, 4, 8, 2, 7, 1)):
        loop.step(f"execute_context_0(0)_generation_{batch}({batch})", graphs[fitting(batch)])
        if i % 2:
            loop.step("execute_context_1(7)_generation_0(0)", loose=45)


def silently_off(loop: MadeUp) -> None:
    captured(loop)
    for i, batch in enumerate((3, 4, 16, 7)):
        loop.eager(i, batch)


def no_graphs_at_all(loop: MadeUp) -> None:
    for i, batch in enumerate((3, 4, 16, 7)):
        loop.eager(i, batch)


def bypassed(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((3, 4, 8, 4, 7, 3, 4, 16)):
        if i in (3, 5):
            loop.eager(i, batch)
        else:
            loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])


def capture_in_step(loop: MadeUp) -> None:
    graphs = captured(loop, (1, 2, 4))
    for i, batch in enumerate((3, 4, 1, 8, 7, 2)):
        start = loop.now
        bucket = fitting(batch)
        if bucket not in graphs:
            graphs[bucket] = loop.capture(40)
        loop.step(None, graphs[bucket])
        loop.range_since(start, f"decode step={i} bs={batch} bucket={bucket}")


def captured_between_steps(loop: MadeUp) -> None:
    graphs = captured(loop, (1, 2, 4))
    for i, batch in enumerate((3, 4, 1)):
        loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])
    graphs[8] = loop.capture(40, 8)
    for i, batch in enumerate((8, 7, 2), start=3):
        loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])


def exec_update(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((3, 4, 8, 7)):
        start = loop.now
        loop.call("cudaGraphExecUpdate_v10020", 30_000)
        loop.step(None, graphs[fitting(batch)])
        loop.range_since(start, f"decode step={i} bs={batch} bucket={fitting(batch)}")


def updated_before_serving(loop: MadeUp) -> None:
    loop.call("cudaGraphExecUpdate_v10020", 30_000)
    serve(loop)


def piecewise(loop: MadeUp) -> None:
    """Twenty pieces with eager attention in between."""
    pieces = [loop.capture(6) for _ in range(20)]
    for i in range(5):
        start = loop.now
        for piece in pieces:
            loop.replay(piece)
            loop.launch(kernel="paged_attention_decode")
        loop.wait()
        loop.range_since(start, f"decode step={i} bs=4 bucket=4")


def launched_twice(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((3, 4, 8, 2, 7, 1)):
        graph = graphs[fitting(batch)]
        loop.decode(i, batch, fitting(batch), *([graph, graph] if i == 3 else [graph]))


def always_twice(loop: MadeUp) -> None:
    """Draft and verify: two launches in every step."""
    draft, verify = captured(loop, kernels=8), captured(loop)
    for i, batch in enumerate((3, 4, 8, 2, 7, 1)):
        loop.decode(i, batch, fitting(batch), draft[fitting(batch)], verify[fitting(batch)])


def side_thread(loop: MadeUp) -> None:
    graphs = captured(loop)
    for i, batch in enumerate((3, 4, 8, 7)):
        start = loop.now
        own, loop.thread = loop.thread, 4800
        loop.step(None, graphs[fitting(batch)])
        loop.thread = own
        loop.range_since(start, f"decode step={i} bs={batch} bucket={fitting(batch)}")


def range_on_the_launching_thread(loop: MadeUp) -> None:
    graphs = captured(loop)
    loop.thread = 4800
    for i, batch in enumerate((3, 4, 8, 7)):
        loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])


def weak_key(loop: MadeUp) -> None:
    """Two kinds of steps share a key: the graph is captured again whenever the kind changes."""
    graphs = captured(loop)
    for i, kind in enumerate("aabbabbb"):
        start = loop.now
        if i and kind != "aabbabbb"[i - 1]:
            graphs[4] = loop.capture(40 if kind == "a" else 48)
        loop.step(None, graphs[4])
        loop.range_since(start, f"decode step={i} bs=3 bucket=4")


def double_buffer(loop: MadeUp) -> None:
    """Two graphs a bucket, used in turn, as sound engines have them."""
    even, odd = captured(loop), captured(loop)
    for i, batch in enumerate((3, 4, 4, 3, 8, 7, 8, 1)):
        loop.decode(i, batch, fitting(batch), (odd if i % 2 else even)[fitting(batch)])


def failed_capture(loop: MadeUp) -> None:
    graphs = captured(loop)
    loop.call("cudaStreamBeginCapture_v10000")
    loop.call("cudaStreamSynchronize_v3020", result=900)
    loop.call("cudaStreamEndCapture_v10000", result=901)
    for i, batch in enumerate((3, 4, 8)):
        loop.decode(i, batch, fitting(batch), graphs[fitting(batch)])


def without_labels(loop: MadeUp) -> None:
    graphs = captured(loop)
    for batch in (3, 4, 16, 7, 1, 12):
        loop.step(None, graphs[fitting(batch)], copies=2)


def _scenario(name: str, build: Build, *codes: str, **demands: Any) -> Scenario:
    return Scenario(name, build, frozenset(codes), demands)


PAIRS = {
    "batch above the largest bucket": (
        _scenario("above", above_largest, "CGD401"),
        _scenario("at the largest", at_the_largest),
    ),
    "hole in the list": (_scenario("hole", hole, "CGD402"), _scenario("padded over it", padded_over_the_hole)),
    "padding off": (
        _scenario("exact only", exact_only, "CGD403"),
        _scenario("padded", lambda loop: _none(serve(loop))),
    ),
    "dummy request fails once": (
        _scenario("padding lost", padding_lost, "CGD403"),
        _scenario("padded", lambda loop: _none(serve(loop))),
    ),
    "everything eager from some step on": (
        _scenario("lost", lost_for_good, "CGD408"),
        _scenario("kept", lambda loop: _none(serve(loop))),
    ),
    "mixed prefill": (_scenario("mixed", mixed_prefill, "CGD404"), _scenario("apart", prefill_apart)),
    "spec-decode token counts": (_scenario("11 of 4", speculation, "CGD405"), _scenario("whole drafts", whole_drafts)),
    "graphs disabled silently": (
        _scenario("off", silently_off, "CGD406"),
        _scenario("on", lambda loop: _none(serve(loop))),
    ),
    "bypassed": (_scenario("bypassed", bypassed, "CGD407"), _scenario("used", lambda loop: _none(serve(loop)))),
    "capture inside a step": (
        _scenario("inside", capture_in_step, "CGD409"),
        _scenario("between", captured_between_steps),
    ),
    "exec update each step": (_scenario("update", exec_update, "CGD410"), _scenario("before", updated_before_serving)),
    "key too weak": (_scenario("weak", weak_key, "CGD411"), _scenario("double buffer", double_buffer)),
    "piecewise with eager attention": (
        _scenario("full meant", piecewise, "CGD412"),
        _scenario("piecewise meant", piecewise, expect="piecewise"),
    ),
    "two graphs against the usual one": (
        _scenario("once", launched_twice, "CGD413"),
        _scenario("always", always_twice),
    ),
    "launches of a side thread": (
        _scenario("side", side_thread, "CGD414"),
        _scenario("own", range_on_the_launching_thread),
    ),
    "a capture fails": (
        _scenario("failed", failed_capture, "CGD415"),
        _scenario("none", lambda loop: _none(serve(loop))),
    ),
    "steps without labels": (
        _scenario("unlabelled", without_labels, "CGD416"),
        _scenario("labelled", lambda loop: _none(serve(loop))),
    ),
}
"""Fault -> (the trace with it, its clean twin)."""


def _none(_: object) -> None:
    """For scenarios whose builder returns something."""
