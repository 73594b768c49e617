"""Who launched an operator: the user's line, and the path of the nn.Module that was running."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from cudagraph_doctor.blame import owner
from cudagraph_doctor.findings import Location

_FILES: dict[str, str] = {}


def users_line() -> Location | None:
    """The innermost line on the stack that is neither torch's nor ours; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and owner(frame.f_globals.get("__name__", "")) != "user":
        frame = frame.f_back
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    if file not in _FILES:
        _FILES[file] = os.path.realpath(file)
    code = linecache.getline(file, line, frame.f_globals).strip()
    return Location(_FILES[file], line, frame.f_code.co_qualname, code)


class ModulePath:
    """Follows which module's forward is running, between `start` and `stop`."""

    def __init__(self) -> None:
        self._running: list[torch.nn.Module] = []
        self._names: dict[int, dict[int, str]] = {}
        self._handles: list[Any] = []

    def start(self) -> None:
        """Hook all modules' forward."""
        hooks: list[tuple[Callable[..., Any], dict[str, Any], Callable[..., None]]] = [
            (register_module_forward_pre_hook, {}, lambda module, args: self._running.append(module)),
            (register_module_forward_hook, {"always_call": True}, lambda module, args, output: self._leave(module)),
        ]
        self._handles = [register(hook, **options) for register, options, hook in hooks]

    def stop(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _leave(self, module: torch.nn.Module) -> None:
        if self._running and self._running[-1] is module:
            self._running.pop()

    def current(self) -> str:
        """Path of the innermost running module below the outermost one, "layers.0.attn"; "" outside of modules."""
        if not self._running:
            return ""
        root, module = self._running[0], self._running[-1]
        if id(root) not in self._names:
            self._names[id(root)] = {id(child): name for name, child in root.named_modules()}
        return self._names[id(root)].get(id(module), "")
