"""File paths as reports show them."""

from __future__ import annotations

import os
from pathlib import Path

from cudagraph_doctor.findings import Location, Report


def shown(file: str) -> str:
    """Relative to the working directory if the file lies in it, else absolute; links resolved on both sides."""
    real, here = os.path.realpath(file), os.path.realpath(".")
    return os.path.relpath(real, here) if os.path.commonpath([real, here]) == here else real


def working_tree() -> str:
    """The top of the repository that the working directory lies in; without one, the working directory."""
    here = Path.cwd()
    return os.path.realpath(next((top for top in (here, *here.parents) if (top / ".git").exists()), here))


def in_tree(file: str, report: Report) -> str:
    """The file as the repository knows it ("serving/decode.py", slashes everywhere); "" if it lies outside.

    The repository is the one that the report was made in, which may be on another machine.
    """
    top = str(report.tool.get("working_tree") or working_tree())
    if not os.path.isabs(file):
        file = os.path.join(top, file)
    try:
        inside = os.path.commonpath([file, top]) == top
    except ValueError:  # of another drive
        return ""
    return Path(os.path.relpath(file, top)).as_posix() if inside else ""


def where(location: Location) -> str:
    """`serving/decode.py:12 in step`."""
    inside = f" in {location.function}" if location.function and location.function != "<module>" else ""
    return f"{shown(location.file)}:{location.line}{inside}"
