"""Renderers: a report in, text out. A new format is a module with a `render` and a row in `REPORTERS`."""

from cudagraph_doctor.report import csv, json, terminal
from cudagraph_doctor.report.view import Renderer

REPORTERS: dict[str, Renderer] = {
    "terminal": terminal.render,
    "json": json.render,
    "csv": csv.render,
}
"""Format name -> render function."""
