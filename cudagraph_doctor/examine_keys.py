"""A job -> Report: runs the static `audit` in this process; torch is not needed, and nothing of the user's runs."""

from __future__ import annotations

import time
from typing import Any

from cudagraph_doctor import environment
from cudagraph_doctor.audit import emit
from cudagraph_doctor.audit.job import Job
from cudagraph_doctor.checks import bucket_audit
from cudagraph_doctor.findings import Report
from cudagraph_doctor.progress import Silent


def examine_keys(job: Job, form: str) -> tuple[Report, str]:
    """The report, and the better list as `form` has it ("" if that is ""). Raises as `bucket_audit.run` does."""
    started = time.time()
    audit, outcome = bucket_audit.run(job, Silent())
    report = Report(
        tool=environment.tool(started),
        environment=environment.base(),
        target={"spec": " ".join(dict.fromkeys(source.where for source in job.sources))},
        outcomes=(outcome,),
        settings=_settings(job),
    )
    return report, emit.better(audit.judged[0].sets, form) if form else ""


def _settings(job: Job) -> dict[str, Any]:
    return {
        "check": bucket_audit.NAME,
        "engine": job.engine,
        "rule": job.rule,
        "max_batch": job.max_batch,
        "workload": str(job.workload or ""),
        "traces": [str(path) for path in job.traces],
        "costs": job.costs.origin,
    }
