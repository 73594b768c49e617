"""`inputs` with what it keeps: runs it and takes its history over, or looks at a stored one. Then a report."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cudagraph_doctor import environment
from cudagraph_doctor.display import Display
from cudagraph_doctor.examine import examine
from cudagraph_doctor.findings import Report
from cudagraph_doctor.replays.judging import judged, outcome
from cudagraph_doctor.replays.model import History
from cudagraph_doctor.replays.options import Again
from cudagraph_doctor.replays.plain import from_plain
from cudagraph_doctor.replays.wording import findings
from cudagraph_doctor.settings import Settings


def examine_inputs(settings: Settings, display: Display, checks: tuple[str, ...] = ()) -> tuple[Report, History | None]:
    """The report, and what was seen; None if the run did not come to that. Raises as `examine` does.

    Args:
        settings: of the run.
        display: shows what is done.
        checks: that are run, `inputs` among them; empty for `inputs` alone.
    """
    with tempfile.TemporaryDirectory(prefix="cudagraph-doctor-") as folder:
        file = Path(folder) / "history.json"
        report = examine(replace(settings, history=str(file)), display, checks)
        report = replace(report, settings={**report.settings, "history": ""})
        if not file.exists():
            return report, None
        return report, from_plain(History, json.loads(file.read_text(encoding="utf-8")))


def examine_again(again: Again) -> tuple[Report, History]:
    """A stored run, judged again from its data. Raises UsageError if it cannot be read."""
    started = time.time()
    history = judged(again.history())
    run = history.run
    fault = {"fault": run.fault.removesuffix(" (twin)"), "twin": run.fault.endswith(" (twin)")} if run.fault else {}
    return (
        Report(
            tool=environment.tool(started),
            environment={**environment.base(), "backend": run.backend, "backend_reason": "in the run that was stored"},
            target={"spec": run.target, "form": run.form, "arguments": dict(run.arguments), **fault},
            outcomes=(outcome(history, findings(history)),),
            settings={"check": "inputs", "from": str(again.source)},
        ),
        history,
    )
