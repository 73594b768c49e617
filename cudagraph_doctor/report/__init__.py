"""Renderers: a report in, text out. A new format is a module with a `render` and a row in `REPORTERS`."""

from cudagraph_doctor.report import csv, github, json, junit, sarif, terminal
from cudagraph_doctor.report.view import Renderer

REPORTERS: dict[str, Renderer] = {
    "terminal": terminal.render,
    "json": json.render,
    "csv": csv.render,
    "junit": junit.render,
    "sarif": sarif.render,
    "github": github.render,
}
"""Format name -> render function."""
