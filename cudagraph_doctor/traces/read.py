"""A trace file of any form -> `steps.Trace`: what it is, exported first if it is an nsys report."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cudagraph_doctor.traces import nsys_tool
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.labels import Family
from cudagraph_doctor.traces.sniff import Form, sniff
from cudagraph_doctor.traces.steps import Trace


def read(path: Path, own: Family | None = None, form: Form | None = None) -> Trace:
    """One trace.

    Args:
        path: the file; only read.
        own: the family of the user's `--step-pattern`.
        form: what `sniff` says it is, where that is known already.

    Raises:
        UsageError: it is no trace.
        Inconclusive: it is damaged, or lacks what is needed.
    """
    form = form or sniff(path)
    if form is not Form.NSYS_REP:
        return collect(path, form, own)
    with tempfile.TemporaryDirectory(prefix="cudagraph-doctor-") as folder:
        exported = Path(folder) / f"{path.stem}.sqlite"
        nsys_tool.export(path, exported, nsys_tool.find())
        return collect(exported, sniff(exported), own)
