"""Laid-out text."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.view import View


def test_plain_text_has_no_codes_and_no_spaces_at_the_ends() -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("a", "long " * 30)
    text = lay_out([Text("red", "red"), table, Text("")], View(width=40))
    assert "\x1b" not in text
    assert all(len(line) <= 40 and line == line.rstrip() for line in text.splitlines())
    assert text.endswith("\n")


def test_color_where_it_is_wanted() -> None:
    assert "\x1b[31mred" in lay_out([Text("red", "red")], View(color=True))


def test_text_is_not_markup() -> None:
    assert lay_out(["[red]x[/red] :boom: 12"], View()) == "[red]x[/red] :boom: 12\n"
