"""Refuses, before anything is run or written, an output that is an input as well, or two outputs to one file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudagraph_doctor import spec
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.options import Output
from cudagraph_doctor.recording.record import SUFFIXES, base_of


@dataclass(frozen=True, slots=True)
class Named:
    """A file, and by what words it came in."""

    words: str
    """`--format json=a.json`, "the trace a.json"."""
    file: Path


def refuse(written: Sequence[Named], read: Iterable[Named]) -> None:
    """Raise UsageError, with both names, if one of `written` is one of `read` or another of `written`.

    Links and other spellings of a path are seen through; pipes and devices can be shared.
    """
    for kept in read:
        for out in written:
            if _same(out.file, kept.file):
                raise UsageError(f"{out.words} would overwrite {kept.words}.", fix="Name another file to write to.")
    for i, out in enumerate(written):
        for other in written[:i]:
            if _same(out.file, other.file):
                raise UsageError(f"{other.words} and {out.words} would write the same file.", fix="Give each its own.")


def reports(outputs: Iterable[Output]) -> list[Named]:
    """The files that the reports go to."""
    return [Named(f"--format {out.format}={out.file}", out.file) for out in outputs if out.file]


def sources(text: str, app_dir: str) -> list[Named]:
    """The file of the target that a SPEC names. Raises UsageError if it is no SPEC; imports nothing."""
    named = spec.parse(text)
    if named.kind == "reference":
        return []
    if named.kind == "file":
        return [Named(f"the target's file {named.where}", Path(named.where))]
    module = Path(app_dir, *named.where.split("."))
    files = (module.with_name(f"{module.name}.py"), module / "__init__.py")
    return [Named(f"the target's file {file}", file) for file in files]


def recorded(trace: Path) -> list[Named]:
    """The files that `record -o TRACE` may write, TRACE itself included."""
    base = base_of(trace)
    files = dict.fromkeys((trace, *(base.with_name(base.name + suffix) for suffix in SUFFIXES)))
    return [Named(f"-o {file}", file) for file in files]


def words(command: Iterable[str]) -> list[Named]:
    """The files among the words of a command."""
    return [Named(f"the command's {word}", Path(word)) for word in command if os.path.isfile(word)]


def _same(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return not one.exists() or one.is_file()
    try:
        return one.is_file() and os.path.samefile(one, other)
    except OSError:  # one of them is not there, or not to be seen
        return False
