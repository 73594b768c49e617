"""What all hooks report to while a target's capturing code runs once: the open capture, what is done in it, what fails.

In the dry run nothing is captured: the body runs eagerly, and what looks illegal is kept with its values. In a capture
operations that are already known to be illegal are given those values, and the first other one that fails is noted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cudagraph_doctor.graph.callsite import Line, callsites
from cudagraph_doctor.graph.capture_errors import code_of
from cudagraph_doctor.graph.illegal import CaptureStatus, Kind
from cudagraph_doctor.graph.legality import Illegal
from cudagraph_doctor.graph.operators import tensors_in
from cudagraph_doctor.observation.cuda_errors import only_asks
from cudagraph_doctor.observation.host_values import HostValues
from cudagraph_doctor.observation.ledger import Ledger
from cudagraph_doctor.observation.model import Operation, ToldBy
from cudagraph_doctor.observation.records import FailedCall, Failure, HostSource, Site, Window
from cudagraph_doctor.observation.values import Kept

_GRAPH_ENDS = "CUDAGraph.__del__"
_NO_MEMORY = "most likely because torch's allocator asks CUDA for new memory for that stream"
"""Why an operator is refused on a stream that does not capture: not much else of what it does is forbidden there."""
_GRAPHS_KEEP_PINNED = torch.__version__ >= (2, 11)  # type: ignore[operator, unused-ignore]
"""Whether page-locked memory that is allocated inside a capture lives as long as the graph, as device memory does."""
_DEEP = 64
"""Lines to be noted where the one that changed streams is looked for."""


class Modules(Protocol):
    """Tells which nn.Module is running (`graph.origins.ModulePath`)."""

    @property
    def current(self) -> str:
        """The innermost running module's path."""


class Session:
    """One run of the capturing code.

    Args:
        dry: whether this is the dry run.
        watched: whether operators are told of.
        kept: values of operations, filled by the dry run.
        modules: who is running.
        status: whether a stream captures.
        served: what is given its value instead of being done.
        host: looks at host values before and after captures.
        pretends: in the dry run, whoever asks is told that the stream captures.
    """

    def __init__(
        self,
        dry: bool,
        watched: bool,
        kept: Kept,
        modules: Modules,
        status: Callable[[int], CaptureStatus],
        served: Collection[Site] = (),
        host: HostValues | None = None,
        pretends: bool = True,
    ) -> None:
        self.dry = dry
        self.pretends = pretends
        self.asked = False
        """Whether the dry run asked if it is captured, while it was to think so."""
        self._watched = watched
        self.window: Window | None = None
        self.windows: list[Window] = []
        self.candidates: dict[Site, list[Operation]] = {}
        """What looked illegal, in the dry run."""
        self.done: Counter[Site] = Counter()
        """What was done and did not fail."""
        self.gave = 0
        """How often a value was given instead."""
        self.failures: list[Failure] = []
        self.failed_calls: list[FailedCall] = []
        """As CUPTI told them."""
        self.autocast_around = False
        """Whether a capture was opened inside of an autocast, which may keep the weights that it casts."""
        self.replays = 0
        """How often graphs were replayed, or would have been."""
        self.outside: list[Operation] = []
        """What was issued to streams that are not captured, at the line below the one that made the stream current."""
        self.host_sources: list[HostSource] = []
        self._kept = kept
        self._modules = modules
        self._status = status
        self._served = served
        self._host = host
        self._threads = threading.local()
        self._generators: set[int] = set()
        self._ended: Site | None = None
        """Where a graph ended since the capture was last seen to stand."""
        self._before: Line | None = None
        """Where the last operation was done."""
        self._switches: dict[int, Line] = {}
        """Stream -> the line that made it current last."""

    # what hooks ask

    @property
    def busy(self) -> bool:
        """Whether this thread is inside an operation that is dealt with as a whole."""
        return getattr(self._threads, "busy", False)

    @property
    def keeps_graphs(self) -> bool:
        """Whether the end of an older graph is got out of the way, by keeping all of them."""
        return any(site.name == _GRAPH_ENDS for site in self._served)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What this thread does inside the block is part of something that is dealt with as a whole."""
        before = self.busy
        self._threads.busy = True
        try:
            yield
        finally:
            self._threads.busy = before

    def current_stream(self) -> int:
        """Handle of the stream that work is issued to."""
        return int(torch.cuda.current_stream().cuda_stream)

    @property
    def module(self) -> str:
        """Path of the nn.Module that is running."""
        return self._modules.current

    def operation(self, site: Site, kind: Kind, ordinal: int = 0, detail: str = "") -> Operation:
        """A record of what is being done now."""
        window = self.window
        assert window is not None
        places = [line.location() for line in site.lines]
        foreign = threading.get_ident() != window.thread
        return Operation(
            name=site.name,
            kind=Kind.OTHER_THREAD if foreign else kind,
            location=places[0] if places else None,
            callers=tuple(places[1:]),
            capture=window.index,
            position=window.position,
            ordinal=ordinal,
            module="" if foreign else self._modules.current,
            thread=threading.current_thread().name if foreign else "",
            detail=f"{kind}" if foreign else detail,
        )

    # captures

    def open(self, stream: int, error_mode: str) -> Window:
        """A capture begins."""
        lines = callsites(1)
        place = lines[0].location() if lines else None
        self.window = Window(len(self.windows), Ledger(stream, self._watched), error_mode, place)
        self.windows.append(self.window)
        if self._host:
            self._host.opened()
        return self.window

    def close(self) -> None:
        """The capture ended, well or not."""
        if self._host and self.window:
            self._host.closed()
        self.window = None

    def is_captured(self, stream: int) -> bool:
        """Whether what is issued to the stream goes into the open capture; in a dry run, whether it would."""
        window = self.window
        if window is None:
            return False
        if self.dry:
            return window.ledger.captures(stream)
        status = self._status(stream)
        if status is CaptureStatus.INVALIDATED:
            self.look(None)
        return status is not CaptureStatus.NONE

    def switch(self, stream: int) -> None:
        """The user makes this stream the current one."""
        if self.window is not None and (lines := callsites(1)):
            self._switches[stream] = lines[0]

    def ended_badly(self, error: BaseException) -> None:
        """The end of the capture raised."""
        if self.failures or self.window is None:
            return
        forks = self.window.ledger.unjoined() if code_of(error) == 904 else []
        for fork in forks:
            operation = self.operation(Site(fork.call, fork.lines), Kind.UNJOINED_FORK)
            operation = replace(operation, position=fork.position, module=fork.module)
            self.failures.append(Failure(operation, None, ToldBy.LEDGER, error))
        if not forks:
            self.failures.append(Failure(None, None, ToldBy.NOBODY, error))

    # generators

    def register(self, generator: Any) -> None:
        """A generator was registered on a graph."""
        self._generators.add(generator._cdata)

    def is_registered(self, generator: Any) -> bool:
        """Whether a capture may draw from the generator; an operator gets it in a new Python object."""
        defaults: set[int] = {default._cdata for default in torch.cuda.default_generators}  # type: ignore[attr-defined]
        return generator._cdata in self._generators | defaults

    # operations

    def perform(
        self,
        name: str,
        call: Callable[[], Any],
        judge: Callable[[Any], Illegal | None],
        written: Sequence[torch.Tensor] = (),
        returns_nothing: bool = False,
    ) -> Any:
        """Do something that may be illegal while a capture is open; its result.

        Args:
            name: what it is called in reports.
            call: does it.
            judge: why it cannot be captured, from its result; from None, as far as that is known without.
            written: the tensors that it writes.
            returns_nothing: what it does can be left out.
        """
        window = self.window
        if window is None or self.busy or not (lines := callsites()):
            return call()
        foreign = threading.get_ident() != window.thread
        if foreign and window.error_mode != "global":
            return call()
        site = Site(name, lines)
        ordinal = window.counts[site]
        window.counts[site] += 1
        window.position += 1
        key = (window.index, site, ordinal)
        if self.dry:
            with self.quiet():
                result = call()
                found = judge(result)
                if found is not None and self.window is window:
                    self.candidates.setdefault(site, []).append(self.operation(site, found.kind, ordinal, found.detail))
                    self._kept.keep(key, result, written)
                    if found.kind is Kind.PINNED_ALLOCATION:
                        window.made_pinned.update(_address(tensor) for tensor in tensors_in(result))
            return result
        if site in self._served and (returns_nothing or key in self._kept):
            self.gave += 1
            with self.quiet():
                return None if returns_nothing else self._kept.give(key, written)
        self._find_broken(lines)
        try:
            with self.quiet():
                result = call()
        except Exception as error:
            with self.quiet():
                why = judge(None)
            self.failed(site, why, ordinal, error, returns_nothing)
            raise
        self.look(site, ordinal)
        return result

    def forget_errors(self) -> None:
        """Let go of the exceptions, once `culprit` was asked."""
        self.failures.clear()

    def issue(self, name: str, call: Callable[[], Any]) -> Any:
        """Run an operator that nothing is known against; its result."""
        if self.dry:
            return call()
        lines = callsites()
        self._find_broken(lines)
        try:
            return call()
        except Exception as error:
            if lines:
                self.failed(Site(name, lines), None, 0, error)
            raise

    def _find_broken(self, lines: tuple[Line, ...]) -> None:
        """Before an operation is done: does the capture still stand? What breaks it without torch lies in between."""
        window, before = self.window, self._before
        self._before = lines[0] if lines else before
        if window is None or self.failures:
            return
        if self._status(window.ledger.origin) is not CaptureStatus.INVALIDATED:
            self._ended = None
            return
        if self._ended is not None:
            operation = self.operation(self._ended, Kind.DESTROYED_GRAPH)
            self.failures.append(Failure(operation, self._ended, ToldBy.STATUS, None, returns_nothing=True))
            return
        since = f"after line {before.number} and before this one" if before else "before this line"
        operation = self.operation(Site("", lines), Kind.UNKNOWN, detail=since)
        self.failures.append(Failure(operation, None, ToldBy.STATUS, None))

    def graph_ends(self) -> None:
        """A graph is being destroyed, by the garbage collector or because nothing holds it any more."""
        if self.window is None or not (lines := callsites()):
            return
        self._ended = Site(_GRAPH_ENDS, lines)
        if self.dry:
            self.candidates.setdefault(self._ended, []).append(self.operation(self._ended, Kind.DESTROYED_GRAPH))

    def failed(
        self, site: Site, why: Illegal | None, ordinal: int, error: BaseException, returns_nothing: bool = False
    ) -> None:
        """Note what raised. The user's code may catch it, and then it did no harm: see `culprit`."""
        if self.window is None:
            return
        kind, detail, place = Kind.UNKNOWN, "", site
        if why is not None:
            kind, detail = why.kind, why.detail
        elif code_of(error) == 900 and self._status(stream := self.current_stream()) is CaptureStatus.NONE:
            kind, detail, place = Kind.OUTSIDE_CAPTURE, _NO_MEMORY, Site(site.name, self._below_switch(stream))
        operation = self.operation(place, kind, ordinal, detail)
        self.failures.append(Failure(operation, site, ToldBy.CALL, error, returns_nothing))

    def look(self, site: Site | None, ordinal: int = 0) -> None:
        """Ask whether the capture still stands; if it does not, what was done last broke it without a word."""
        window = self.window
        if window is None:
            return
        if not self.failures and self._status(window.ledger.origin) is CaptureStatus.INVALIDATED:
            operation = self.operation(site, Kind.UNKNOWN, ordinal) if site else None
            self.failures.append(Failure(operation, site, ToldBy.STATUS, None))
        elif site is not None:
            self.done[site] += 1

    def call_failed(self, name: str, code: int) -> None:
        """CUPTI tells of a call that failed, from inside of CUDA: only what is at hand is noted."""
        window = self.window
        if window is not None and not only_asks(name):
            thread = "" if threading.get_ident() == window.thread else threading.current_thread().name
            call = FailedCall(
                name, code, callsites(), window.index, window.position, "" if thread else self._modules.current, thread
            )
            self.failed_calls.append(call)

    def culprit(self, first: BaseException | None) -> Failure | None:
        """The failure that a run died of: the one that raised its first error, else the first that was noted.

        An operation that only found the capture broken (901) is no culprit if something was noted before it.
        """
        raised = [f for f in self.failures if first is not None and f.error is first and code_of(first) != 901]
        return next(iter(raised or self.failures), None)

    # what succeeds and is wrong

    def copies_from_host(self, name: str, source: torch.Tensor) -> None:
        """The graph will copy from this page-locked memory at each replay."""
        if self.window is None or (_GRAPHS_KEEP_PINNED and _address(source) in self.window.made_pinned):
            return
        if self.dry and (lines := callsites()):
            operation = self.operation(Site(name, lines), Kind.HOST_SOURCE)
            self.host_sources.append(HostSource(operation, StorageWeakRef(source.untyped_storage()).expired))

    def made_outside(self, made: Sequence[torch.Tensor]) -> None:
        """Memory was allocated while a stream that is not captured was current."""
        if self.window is not None:
            self.window.made_outside.update(_address(tensor) for tensor in made)

    def went_outside(
        self, name: str, stream: int, reads: Sequence[torch.Tensor], makes: Sequence[torch.Tensor]
    ) -> None:
        """Something was issued to a stream that is not captured.

        What is made there from nothing is a constant, and does no harm if it is not in the graph.

        Args:
            name: the operator.
            stream: handle of the stream.
            reads: tensors of the device that it is given.
            makes: those among its results.
        """
        window = self.window
        assert window is not None
        if all(_address(tensor) in window.made_outside for tensor in reads):
            window.made_outside.update(_address(tensor) for tensor in makes)
            return
        if lines := self._below_switch(stream):
            self.outside.append(self.operation(Site(name, lines), Kind.OUTSIDE_CAPTURE))

    def _below_switch(self, stream: int) -> tuple[Line, ...]:
        """The user's lines that led here, from the one in the function where the stream was made current outwards."""
        lines = callsites(_DEEP)
        switch = self._switches.get(stream)
        within = [at for at, line in enumerate(lines) if switch is not None and line.is_beside(switch)]
        return lines[within[0] :] if within else lines


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
