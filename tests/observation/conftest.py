"""A session over the emulated backend, with all hooks in, and players of a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.origins import ModulePath
from cudagraph_doctor.observation.calls import wrapped
from cudagraph_doctor.observation.operators import OperatorWatch
from cudagraph_doctor.observation.records import Site
from cudagraph_doctor.observation.session import Session
from cudagraph_doctor.observation.values import Kept
from cudagraph_doctor.observation.windows import Windows

_THE_DOCTORS: dict[str, Any] = {"__name__": "cudagraph_doctor.proof.rig"}
exec(compile("def run(body):\n    return body()", "rig.py", "exec"), _THE_DOCTORS)
"""Where the user's lines end, as they do when a check runs the user's code."""


class Player:
    """Captures a body once: a `players.Player` without a target."""

    form = "made up"
    error_mode = ""
    generators: tuple[torch.Generator, ...] = ()

    def __init__(self, body: Callable[[], object]) -> None:
        self.body = body
        self.runs = 0

    def capture(self) -> None:
        """See `players.Player.capture`."""
        self.runs += 1
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            self.body()

    def roots(self) -> dict[str, object]:
        """None."""
        return {}

    def eager_step(self, step: int) -> None:
        """There is no step besides the body."""

    def serve(self, step: int) -> None:
        """Nothing is served."""


class Rig:
    """Runs bodies under the hooks."""

    def __init__(self) -> None:
        self.backend = EmulatedBackend()
        self.kept = Kept()

    @contextmanager
    def hooks(
        self, *, dry: bool, served: tuple[Site, ...] = (), error_mode: str = "", watched: bool = True
    ) -> Iterator[Session]:
        """The hooks are in; afterwards the current stream is as before."""
        modules = ModulePath({})
        session = Session(dry, watched, self.kept, modules, self.backend.capture_status, served)
        before = torch.cuda.current_stream()
        try:
            with (
                modules.followed(),
                Windows(session, self.backend, error_mode).installed(),
                wrapped(session, self.backend),
                OperatorWatch(session, self.backend),
            ):
                yield session
        finally:
            torch.cuda.set_stream(before)

    def dry(self, body: Callable[[], object]) -> Session:
        """The body in a capture of the dry run."""
        with self.hooks(dry=True) as session, torch.cuda.graph(torch.cuda.CUDAGraph()):
            _THE_DOCTORS["run"](body)
        return session

    def capture(
        self, body: Callable[[], object], served: tuple[Site, ...] = ()
    ) -> tuple[Session, BaseException | None]:
        """The body in a real capture, and what that raised."""
        with self.hooks(dry=False, served=served) as session:
            try:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    _THE_DOCTORS["run"](body)
            except RuntimeError as error:
                return session, error
        return session, None


@pytest.fixture
def rig() -> Iterator[Rig]:
    """With the emulated device in place."""
    made = Rig()
    with made.backend.installed():
        yield made
