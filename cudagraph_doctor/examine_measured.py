"""`audit --target`: a child measures the target, and the numbers go through the static audit in this process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from cudagraph_doctor import output
from cudagraph_doctor.audit import emit
from cudagraph_doctor.audit.costs import CostTable
from cudagraph_doctor.audit.job import Job, Source
from cudagraph_doctor.checks import bucket_audit
from cudagraph_doctor.display import Display
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.examine import examine
from cudagraph_doctor.findings import Outcome, Report, Status
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.settings import Settings


def examine_measured(
    settings: Settings, job: Job, display: Display, form: str, save: Path | None
) -> tuple[Report, str]:
    """Measure the target of `settings`, and judge its keys as `job` asks.

    Args:
        settings: the target, and which of its keys.
        job: workload, gates and what else is asked; without sources.
        display: told what is done.
        form: of the better list that is wanted, "" for none.
        save: where the costs are written; None: nowhere.

    Returns:
        The report, and the better list ("" if none is wanted, or nothing was measured).

    Raises:
        UsageError, Inconclusive: as `examine` and `bucket_audit.run`; costs are to be saved and none were measured.
    """
    report = examine(settings, display)
    measured = report.outcomes[0]
    if measured.status not in (Status.PASSED, Status.FOUND):
        return report, ""
    table = _table(measured, job)
    if save is not None:
        if table is None:
            raise Inconclusive(
                f"There are no costs to write to {save}: nothing was timed.",
                seen=f"backend {measured.checked.get('backend', '')}",
                fix="Measure on a GPU (--backend cuda), or leave --save-costs out.",
            )
        output.to_file(save, json.dumps(table.to_json(), indent=1) + "\n")
    audit, static = bucket_audit.run(asked(settings, job, measured, table), Silent())
    report = dataclasses.replace(report, outcomes=(merged(measured, static),))
    return report, emit.better(audit.judged[0].sets, form) if form else ""


def asked(settings: Settings, job: Job, measured: Outcome, table: CostTable | None) -> Job:
    """The job about the keys that were measured, at what they cost."""
    told = measured.checked["measured"]
    keys = sorted([key["size"] for key in told["keys"]] + list(told["left_out"]))
    options = {"buckets": keys, "max_batch": job.max_batch or told["most"]}
    return dataclasses.replace(job, sources=(Source(settings.spec, options),), engine="plain", costs=table or job.costs)


def merged(measured: Outcome, static: Outcome) -> Outcome:
    """One outcome: what was measured, then what follows from it for the traffic."""
    status = Status.FOUND if Status.FOUND in (measured.status, static.status) else static.status
    if static.status is Status.INCONCLUSIVE:
        status = static.status
    return dataclasses.replace(
        static,
        status=status,
        not_checked=tuple(dict.fromkeys((*measured.not_checked, *static.not_checked))),
        checked={**measured.checked, **static.checked},
        findings=(*measured.findings, *static.findings),
        rules=bucket_audit.RULES,
        coverage=measured.coverage,
        seconds=round(measured.seconds + static.seconds, 3),
    )


def _table(measured: Outcome, job: Job) -> CostTable | None:
    told = measured.checked.get("costs")
    if told is None:
        return None
    return dataclasses.replace(CostTable.from_json(told), kv_bytes_per_token=job.kv_bytes_per_token)
