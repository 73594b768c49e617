"""Checks on objects, in this process: for tests and notebooks. No child, so no time-out, and no crash is survived.

What the command line does from a SPEC, `Session` does from a target at hand or from what makes one.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cudagraph_doctor import environment, loader, method, worker
from cudagraph_doctor.causes.join import joined
from cudagraph_doctor.display import Display
from cudagraph_doctor.examine import Run
from cudagraph_doctor.findings import Report
from cudagraph_doctor.settings import Settings

if TYPE_CHECKING:
    from cudagraph_doctor.graph.backend import Backend


class Session:
    """A backend whose hooks are in. Targets have to be made while they are: see `session`."""

    def __init__(self, backend: Backend, facts: dict[str, Any]) -> None:
        self._backend = backend
        self._facts = facts

    @property
    def device(self) -> str:
        """What targets have to be made on: "cuda", or "cpu:0" where it is emulated."""
        return self._backend.device

    def examine(self, target: object, settings: Settings) -> Report:
        """Run `settings.check` on a target; "checkup" stands for all checks of one, and joins what they find.

        Args:
            target: an object that keeps the contract, a function or class that makes one, or a SPEC.
            settings: everything but `spec`, which is the target's name here.

        Raises:
            UsageError: the target cannot be made, or does not keep the contract.
        """
        settings = dataclasses.replace(settings, spec=target if isinstance(target, str) else _name(target))
        whole = settings.check == method.CHECKUP
        checks = method.ON_TARGET if whole else (settings.check,)
        run = Run(settings, checks, _Quiet())
        run.on_event({"event": "backend", "environment": self._facts})

        def load() -> loader.Loaded:
            if isinstance(target, str):
                return loader.load(settings, self.device)
            return loader.load_object(target, settings, self.device)

        loaded = load()
        run.on_event({"event": "target", "target": loaded.description})
        try:
            worker.run_checks(checks, loaded.target, self._backend, settings, run.on_event, [], lambda: load().target)
        except worker.DeviceGone as error:
            run.on_event({"event": "lost", "reason": str(error), "traceback": error.traceback})
        return joined(run.report()) if whole else run.report()


@contextmanager
def session(backend: str = "auto") -> Iterator[Session]:
    """Hooks in, for the length of the block, which is when targets have to be made.

    Raises Inconclusive if "cuda" is asked for and cannot be used here.
    """
    chosen, reason = worker.choose_backend(backend)
    facts = {**environment.runtime(), "backend": chosen.name, "backend_reason": reason}
    with chosen.installed():
        yield Session(chosen, facts)


class _Quiet(Display):
    """Shows nothing: a test says enough by passing."""

    def say(self, text: str) -> None:
        """See `Display.say`."""


def _name(target: object) -> str:
    """`module:name` of what makes targets, if it can be found under it again; else the name of the target's type."""
    module, name = getattr(target, "__module__", ""), getattr(target, "__qualname__", "")
    if module in sys.modules and name and hasattr(sys.modules[module], name):
        return f"{module}:{name}"
    kind = type(target)
    return name or f"{os.path.basename(kind.__module__)}.{kind.__qualname__}"
