"""The step tables of a report as CSV: one row a step, one column for each thing that any step has to tell."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from cudagraph_doctor.findings import Report
from cudagraph_doctor.report.printable import printable
from cudagraph_doctor.report.view import View

_FIRST = ("check", "index", "rows", "key", "verdict")


def render(report: Report, view: View) -> str:
    """Header and rows; numbers as they are, lists as JSON. A report without steps is the header alone."""
    rows: list[dict[str, Any]] = []
    for outcome in report.outcomes:
        for step in outcome.steps:
            fixed = (outcome.check, step.index, step.rows, step.key, step.verdict)
            rows.append(
                dict(zip(_FIRST, fixed, strict=True)) | {k: v for k, v in step.detail.items() if k not in _FIRST}
            )
    columns = list(dict.fromkeys((*_FIRST, *(name for row in rows for name in row))))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        value = printable(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "@"):
        return "'" + value  # a label must not become a formula in a spreadsheet
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list | tuple) else value
