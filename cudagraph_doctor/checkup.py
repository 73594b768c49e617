"""`checkup`: all checks of the method on one target, and on a trace; what they found, joined into root causes.

Reads downwards: one child runs what needs the target, traces are read here, and `causes.join` makes one report of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudagraph_doctor.causes.join import joined
from cudagraph_doctor.display import Display
from cudagraph_doctor.errors import DoctorError, Inconclusive, UsageError
from cudagraph_doctor.examine_inputs import examine_inputs
from cudagraph_doctor.examine_traces import outcome_of_traces
from cudagraph_doctor.findings import Outcome, Report, Status
from cudagraph_doctor.method import OF_TRACES, ON_TARGET
from cudagraph_doctor.recording.record import Wanted, record
from cudagraph_doctor.replays import repro
from cudagraph_doctor.replays.model import History
from cudagraph_doctor.replays.options import Keep
from cudagraph_doctor.settings import Settings
from cudagraph_doctor.traces.sniff import sniff

QUICK_STEPS = 4
"""Steps a bucket with `--quick`."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Where `buckets` gets its traces from."""

    given: tuple[Path, ...] = ()
    record_to: Path | None = None
    """A trace is recorded there first."""


def checkup(settings: Settings, traces: Traces, scripts: Path | None, display: Display) -> Report:
    """The report, with its causes.

    Args:
        settings: of the checks on the target.
        traces: for `buckets`.
        scripts: folder for scripts that show a fault with torch alone; None for none.
        display: shows what is done.

    Raises:
        UsageError: the request cannot be served; a trace that is none is refused before the target runs. Interrupts
            pass.
    """
    Keep(scripts=scripts).check()
    for path in traces.given:
        with contextlib.suppress(Inconclusive):  # a damaged trace is told with the rest
            sniff(path)
    report, history = examine_inputs(settings, display, ON_TARGET)
    report = dataclasses.replace(report, outcomes=(*report.outcomes, _buckets(settings, traces, report, display)))
    report = joined(report)
    if history is not None and scripts is not None:
        report = _with_scripts(report, history, scripts, Path(settings.app_dir))
    return report


def _with_scripts(report: Report, history: History, folder: Path, app_dir: Path) -> Report:
    """The report with a script for each cause that one can be written for; they are written here."""
    findings, causes = report.findings, []
    made: list[repro.Repro] = []
    for cause in report.causes:
        leading = findings[cause.leading]
        written = repro.scripts(history, [leading], app_dir) if leading.step is not None else []
        for script in written:
            script = dataclasses.replace(script, name=f"{len(made) + 1}_{script.name}")
            made.append(script)
            cause = dataclasses.replace(cause, repro=str(folder / script.name))
        causes.append(cause)
    repro.write(folder, made)
    return dataclasses.replace(report, causes=tuple(causes))


def _buckets(settings: Settings, traces: Traces, report: Report, display: Display) -> Outcome:
    """What became of the traces; skipped, and said, without one."""
    started = time.time()
    try:
        paths = traces.given or _recorded(settings, traces, report, display)
        if isinstance(paths, Outcome):
            return paths
        with display:
            return outcome_of_traces(paths, display)
    except UsageError:
        raise
    except DoctorError as error:
        reason = " ".join(text for text in (error.what, error.seen and f"Seen: {error.seen}.") if text)
        return Outcome(OF_TRACES, Status.INCONCLUSIVE, reason, error.fix, seconds=time.time() - started)


def _recorded(settings: Settings, traces: Traces, report: Report, display: Display) -> Sequence[Path] | Outcome:
    if traces.record_to is None:
        why = "no trace was given, and none recorded"
        return _skipped(why, "Give --trace TRACE, or --record FILE on a machine with a GPU.")
    without = next((o for o in report.outcomes if o.status is Status.SKIPPED), None)
    if without is not None:
        return _skipped(without.reason, without.fix)
    if report.environment.get("backend") != "cuda":
        return _skipped("a trace can be recorded on a GPU only", "Give --trace TRACE.")
    wanted = Wanted(traces.record_to, settings=dataclasses.replace(settings, check="record"))
    with display:
        found = record(wanted, display.say)
    display.say(f"wrote {found.trace} ({found.how})")
    return (found.trace,)


def _skipped(why: str, fix: str) -> Outcome:
    return Outcome(OF_TRACES, Status.SKIPPED, f"{why.rstrip('.')}.", fix)
