"""How a report is to be looked at: what does not belong to the report itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cudagraph_doctor.findings import Report


@dataclass(frozen=True, slots=True)
class View:
    """Options of a rendering."""

    width: int = 80
    """Columns."""
    color: bool = False
    """Whether terminal escape codes may be used."""
    verbose: bool = False
    """All steps, all evidence."""
    debug: bool = False
    """Tracebacks."""
    docs_url: str = ""
    """Where the documentation is hosted, for links to rules; "" if it is nowhere."""


Renderer = Callable[[Report, View], str]
