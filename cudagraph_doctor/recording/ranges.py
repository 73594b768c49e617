"""Labels of steps and captures in the child: NVTX ranges for nsys, and the same as torch.profiler annotations.

torch.profiler does not see NVTX, so while `Ranges` is installed every NVTX range of Python code is annotated as well.
It also notices whether the target labels its steps itself; then nothing is added.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import nvtx
import torch

from cudagraph_doctor.traces import labels


class Ranges:
    """Opens ranges, and watches those that the target opens.

    Args:
        annotate: also open torch.profiler annotations.
        add: label steps and captures that have no label of their own.
    """

    def __init__(self, annotate: bool, add: bool) -> None:
        self._annotate = annotate
        self._add = add
        self._open: list[str] = []
        self._plain = nvtx.annotate
        self.target_labels_steps = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """See what the target opens through `nvtx` and `torch.cuda.nvtx`; label captures that have no label."""
        ranges = self
        kept: tuple[Any, Any, Any] = (nvtx.annotate, torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop)
        begin, end = torch.cuda.CUDAGraph.capture_begin, torch.cuda.CUDAGraph.capture_end
        pushed: list[contextlib.AbstractContextManager[None]] = []
        captures: list[contextlib.AbstractContextManager[None]] = []

        class Annotate(kept[0]):  # type: ignore[misc, valid-type]
            """`nvtx.annotate`, watched."""

            def __init__(self, message: Any = None, *args: Any, **options: Any) -> None:
                super().__init__(message, *args, **options)
                self.watched = str(message)

            def __enter__(self) -> Any:
                self.watching = ranges.opened(self.watched)
                self.watching.__enter__()
                return super().__enter__()

            def __exit__(self, *error: Any) -> Any:
                answer = super().__exit__(*error)
                self.watching.__exit__(*error)
                return answer

            def __call__(self, function: Any) -> Any:
                plain = super().__call__(function)
                label = function.__name__ if self.watched == "None" else self.watched

                @functools.wraps(function)
                def watched(*args: Any, **options: Any) -> Any:
                    with ranges.opened(label):
                        return plain(*args, **options)

                return watched

        def range_push(message: str) -> Any:
            pushed.append(ranges.opened(message))
            pushed[-1].__enter__()
            return kept[1](message)

        def range_pop() -> Any:
            if pushed:
                pushed.pop().__exit__(None, None, None)
            return kept[2]()

        def capture_begin(graph: torch.cuda.CUDAGraph, *args: Any, **options: Any) -> Any:
            named = not ranges._add or any(labels.capture_bucket(text) for text in ranges._open)
            captures.append(contextlib.nullcontext() if named else ranges.range("capture"))
            captures[-1].__enter__()
            return begin(graph, *args, **options)

        def capture_end(graph: torch.cuda.CUDAGraph) -> Any:
            answer = end(graph)
            if captures:
                captures.pop().__exit__(None, None, None)
            return answer

        nvtx.annotate = Annotate
        torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop = range_push, range_pop
        torch.cuda.CUDAGraph.capture_begin = capture_begin  # type: ignore[method-assign, assignment]
        torch.cuda.CUDAGraph.capture_end = capture_end  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            nvtx.annotate, torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop = kept
            torch.cuda.CUDAGraph.capture_begin = begin  # type: ignore[method-assign]
            torch.cuda.CUDAGraph.capture_end = end  # type: ignore[method-assign]

    @contextlib.contextmanager
    def opened(self, label: str) -> Iterator[None]:
        """A range that the target opened."""
        self.target_labels_steps = self.target_labels_steps or labels.read(label) is not None
        self._open.append(label)
        try:
            with torch.profiler.record_function(label) if self._annotate else contextlib.nullcontext():
                yield
        finally:
            self._open.remove(label)

    @contextlib.contextmanager
    def range(self, label: str) -> Iterator[None]:
        """A range of ours, as NVTX and as annotation."""
        self._open.append(label)
        try:
            with (
                torch.profiler.record_function(label) if self._annotate else contextlib.nullcontext(),
                self._plain(label),
            ):
                yield
        finally:
            self._open.remove(label)

    @contextlib.contextmanager
    def step(self, number: int, batch: int, bucket: int | None) -> Iterator[None]:
        """Around a step, unless the target labels its steps."""
        if self.target_labels_steps or not self._add:
            yield
            return
        named = "" if bucket is None else f" bucket={bucket}"
        with self.range(f"decode step={number} bs={batch}{named}"):
            yield
