"""`inputs` with what it keeps: runs it and takes its history over, or looks at a stored one. Then a report.

With `poison` it runs twice, each in a child of its own: a survey with poisoned inputs, which says how many steps are
worth playing, and the check on these steps, without poison.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cudagraph_doctor import environment
from cudagraph_doctor.display import Display
from cudagraph_doctor.examine import examine
from cudagraph_doctor.findings import Outcome, Report, Status
from cudagraph_doctor.replays.judging import CHECK, judged, outcome
from cudagraph_doctor.replays.model import History
from cudagraph_doctor.replays.options import Again
from cudagraph_doctor.replays.plain import from_plain
from cudagraph_doctor.replays.surveyed import Surveyed, added
from cudagraph_doctor.replays.wording import findings
from cudagraph_doctor.settings import Settings


def examine_inputs(settings: Settings, display: Display, checks: tuple[str, ...] = ()) -> tuple[Report, History | None]:
    """The report, and what was seen; None if the run did not come to that. Raises as `examine` does.

    Args:
        settings: of the run.
        display: shows what is done.
        checks: that are run, `inputs` among them; empty for `inputs` alone.
    """
    if settings.poison:
        return _after_a_survey(settings, display, checks)
    with tempfile.TemporaryDirectory(prefix="cudagraph-doctor-") as folder:
        file = Path(folder) / "history.json"
        report = examine(replace(settings, history=str(file)), display, checks)
        report = replace(report, settings={**report.settings, "history": ""})
        if not file.exists():
            return report, None
        return report, from_plain(History, json.loads(file.read_text(encoding="utf-8")))


def _after_a_survey(settings: Settings, display: Display, checks: tuple[str, ...]) -> tuple[Report, History | None]:
    """Poison first, in a process that may be lost; then the check on as many steps as that asks for."""
    display.say("with poisoned inputs first: what is found by it is looked for without poison then")
    (said,) = examine(replace(settings, check=CHECK), display, (CHECK,)).outcomes
    plain = replace(settings, poison=False)
    if "survey" not in said.checked:
        seen, lost = None, f"what poisoned inputs show: {said.reason}"
    else:
        seen, lost = from_plain(Surveyed, said.checked["survey"]), ""
    steps = seen.steps if seen else settings.steps
    report, history = examine_inputs(replace(plain, steps=steps), display, checks)
    if steps > settings.steps and not _judged(report):
        lost = f"steps beyond the {settings.steps} asked for, which poison asks for: {_of(report).reason}"
        report, history = examine_inputs(plain, display, checks)
    outcome = added(_of(report), seen) if seen else _of(report)
    if lost:
        outcome = replace(outcome, not_checked=(*outcome.not_checked, lost))
    if history is not None:
        new = outcome.not_checked[len(_of(report).not_checked) :]
        history = replace(history, not_checked=(*history.not_checked, *new))
    outcomes = tuple(outcome if one.check == CHECK else one for one in report.outcomes)
    return replace(report, outcomes=outcomes, settings={**report.settings, "poison": True}), history


def _judged(report: Report) -> bool:
    return _of(report).status in (Status.PASSED, Status.FOUND)


def _of(report: Report) -> Outcome:
    return next(outcome for outcome in report.outcomes if outcome.check == CHECK)


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
