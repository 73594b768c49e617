"""Lays rich renderables out as text, plainly and with stable line breaks unless the view wants color."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType

from cudagraph_doctor.report.view import View


def lay_out(parts: Iterable[RenderableType], view: View) -> str:
    """The parts below each other; strings as they are, without line breaks of ours. No spaces at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=view.width,
        force_terminal=view.color,
        color_system="standard" if view.color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
