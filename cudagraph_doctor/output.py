"""Writes renderings: to stdout as wide as it is, to files whole or not at all."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from pathlib import Path

from rich.console import Console

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Report
from cudagraph_doctor.options import Output
from cudagraph_doctor.report import REPORTERS
from cudagraph_doctor.report.view import View

_FILE_WIDTH = 100


def view(*, verbose: bool = False, debug: bool = False, docs_url: str = "") -> View:
    """How stdout can be written to: in color and as wide as the terminal, else plainly and 80 columns wide."""
    console = Console()
    width = console.width if console.is_terminal else int(os.environ.get("COLUMNS") or 80)
    return View(width, console.is_terminal, verbose, debug, docs_url)


def write(report: Report, outputs: tuple[Output, ...], screen: View) -> None:
    """Render once for each output, then write; files are plain. Raises UsageError if a file cannot be written."""
    paper = dataclasses.replace(screen, width=_FILE_WIDTH, color=False)
    rendered = [(out.file, REPORTERS[out.format](report, paper if out.file else screen)) for out in outputs]
    for file, text in rendered:
        if file is None:
            to_stdout(text)
        else:
            to_file(file, text)


def to_file(file: Path, text: str) -> None:
    """Write a file whole or not at all. Raises UsageError if it cannot be written."""
    try:
        _replace(file, text)
    except OSError as error:
        raise UsageError(f'"{file}" cannot be written: {error.strerror}.', fix="Name another file.") from None


def to_stdout(text: str) -> None:
    """Write to stdout; a reader that has had enough (`| head`) is no error, nor is an encoding that lacks a letter.

    Raises UsageError if it cannot be written for another reason: a full disk, a closed descriptor.
    """
    if sys.stdout is None:
        raise lost("it is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_the_rest()  # the exit code still tells
    except OSError as error:
        raise lost(str(error.strerror)) from None


def lost(why: str) -> UsageError:
    """The error that stdout takes nothing more."""
    _drop_the_rest()
    return UsageError(
        f"stdout cannot be written to: {why}.", fix="Send it elsewhere, or name a file: --format json=FILE."
    )


def _drop_the_rest() -> None:
    """Nothing may be flushed into it at exit: that would fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace(file: Path, text: str) -> None:
    """Write beside it and rename, so that no half file is ever seen; devices and pipes are written to directly.

    Always UTF-8: what has none (a file's name under LC_ALL=C) is escaped, in JSON so that it is read back as it was.
    """
    encoded = text.encode("utf-8", errors="backslashreplace")
    real = Path(os.path.realpath(file))
    if real.exists() and not real.is_file():
        real.write_bytes(encoded)
        return
    draft = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        draft.write_bytes(encoded)
        os.replace(draft, real)
    finally:
        draft.unlink(missing_ok=True)
