"""File paths as reports show them."""

from __future__ import annotations

import os

from cudagraph_doctor.findings import Location


def shown(file: str) -> str:
    """Relative to the working directory if the file lies in it, else absolute; links resolved on both sides."""
    real, here = os.path.realpath(file), os.path.realpath(".")
    return os.path.relpath(real, here) if os.path.commonpath([real, here]) == here else real


def where(location: Location) -> str:
    """`serving/decode.py:12 in step`."""
    inside = f" in {location.function}" if location.function and location.function != "<module>" else ""
    return f"{shown(location.file)}:{location.line}{inside}"
