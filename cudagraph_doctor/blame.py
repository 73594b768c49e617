"""Whose exception is it: reads the frames of a traceback, cuts ours off, finds the user's line. No torch."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Literal

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph import capture_errors

Owner = Literal["user", "ours", "library"]

_LIBRARIES = frozenset(sys.stdlib_module_names) | {"torch", "triton", "numpy", "cuda", "nvtx"}
_DURING = "during "
"""How a note begins that says what the target was asked for."""
_COMPILED_CALL = "torch._dynamo.eval_frame"
_TORCH_RAISES = (RuntimeError, IndexError, ValueError)
_PLAYS_USER = ("cudagraph_doctor.reference_models", "cudagraph_doctor.skeletons")


def owner(module: str) -> Owner:
    """Who wrote a module, by its name. The bundled models count as the user's: they are targets."""
    if module.startswith(_PLAYS_USER):
        return "user"
    top = module.partition(".")[0]
    if top == "cudagraph_doctor":
        return "ours"
    return "library" if top in _LIBRARIES else "user"


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs a line of the user's."""
    return owner(str(frame.f_globals.get("__name__", ""))) == "user"


def frames(error: BaseException) -> Iterator[tuple[Owner, FrameType, int]]:
    """(owner, frame, line) of each frame of the traceback, outermost first."""
    walked = list(traceback.walk_tb(error.__traceback__))
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in walked]
    for (frame, line), module, callee in zip(walked, modules, [*modules, ""][1:], strict=True):
        yield "library" if calls_compiled(frame, callee) else owner(module), frame, line


def calls_compiled(frame: FrameType, callee: str) -> bool:
    """Whether a frame runs what torch.compile made of a function, and calls what it compiled: its line says nothing.

    Args:
        frame: where it is.
        callee: name of the module of the frame that it calls.
    """
    return callee == _COMPILED_CALL and any(name.startswith("__compiled_fn") for name in frame.f_code.co_names)


def first(error: BaseException) -> BaseException:
    """The error that broke a capture, if this is the one that its end raises, which masks it (901); else this one."""
    return capture_errors.first(error) or error if capture_errors.code_of(error) == 901 else error


def user_location(error: BaseException) -> Location | None:
    """The user's line nearest to where the error was raised; for a syntax error, the line that does not parse."""
    error = first(error)
    if isinstance(error, SyntaxError) and error.filename:
        return Location(os.path.realpath(error.filename), error.lineno or 0, code=(error.text or "").strip())
    innermost = None
    for who, frame, line in frames(error):
        if who == "user":
            innermost = (frame, line)
    if innermost is None:
        return None
    frame, line = innermost
    file = frame.f_code.co_filename
    code = linecache.getline(file, line, frame.f_globals).strip()
    return Location(os.path.realpath(file), line, frame.f_code.co_qualname, code)


def is_ours(error: BaseException) -> bool:
    """Whether the error is a bug of this program.

    It is the user's (or the device's) as soon as a frame of his is on the stack, unless something was raised below it,
    in our stand-ins for torch.cuda, that torch would not raise.
    """
    error = first(error)
    owners = [who for who, _, _ in frames(error) if who != "library"]
    if "user" not in owners:
        return True
    return owners[-1] == "ours" and not isinstance(error, _TORCH_RAISES)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host."""
    named = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    return named or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


def user_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, from the first frame that is the user's; whole if none is."""
    cut: TracebackType | None = error.__traceback__
    while cut is not None and not is_users(cut.tb_frame):
        cut = cut.tb_next
    kept = error.__traceback__
    try:
        return "".join(traceback.format_exception(error.with_traceback(cut or kept)))
    finally:
        error.__traceback__ = kept


@contextmanager
def during(what: str) -> Iterator[None]:
    """What is raised inside is told with what was being done: `during("step 3 with 7 rows")`. The innermost counts."""
    try:
        yield
    except Exception as error:
        if not _during(error):
            error.add_note(f"{_DURING}{what}")
        raise


def _during(error: BaseException) -> str:
    """What was noted; "" if nothing was."""
    return next((note for note in getattr(error, "__notes__", ()) if note.startswith(_DURING)), "")


def describe(error: BaseException) -> str:
    """`ValueError: bad shape, during step 3 with 7 rows, at serving/decode.py:12 in step: x.view(3)`, on one line."""
    told = _during(error) or _during(first(error))
    error = first(error)
    message = " ".join(str(error).split())
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    text += f", {told}" if told else ""
    place = user_location(error)
    if place is None:
        return text
    where = f"{os.path.relpath(place.file, os.path.realpath('.'))}:{place.line}"
    inside = f" in {place.function}" if place.function and place.function != "<module>" else ""
    return f"{text}, at {where}{inside}" + (f": {place.code}" if place.code else "")
