"""A target measured -> the outcome: what the child of `audit --target` sends, and the static audit goes on with."""

from __future__ import annotations

from typing import Any

import torch

from cudagraph_doctor.findings import Outcome, Status
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.measuring import wording
from cudagraph_doctor.measuring.collect import Collected, Collector
from cudagraph_doctor.measuring.model import costs
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.settings import Settings


@torch.no_grad()  # a decode step has no use for gradients
def measure(target: Any, backend: Backend, settings: Settings, progress: Progress) -> Outcome:
    """Measure it. Raises DoctorError where it does not keep the contract, or cannot be measured."""
    collected = Collector(target, backend, settings, progress).collect()
    table = costs(collected.measurement, _source(settings, backend))
    findings = (*collected.findings, *wording.findings(collected.measurement, backend.name))
    spoken = any(finding.severity.rank > 0 for finding in findings)
    status = Status.FOUND if spoken else Status.PASSED if collected.judged else Status.INCONCLUSIVE
    return Outcome(
        check=settings.check,
        status=status,
        reason="" if spoken or collected.judged else "no batch could be compared with eager",
        fix="" if spoken or collected.judged else "see what was not checked",
        not_checked=collected.not_checked,
        checked={
            "backend": backend.name,
            "batches": collected.judged,
            "measured": collected.measurement.to_json(),
            "costs": table.to_json() if table else None,
        },
        findings=findings,
        rules=wording.RULES,
        coverage=_coverage(collected),
    )


def _coverage(collected: Collected) -> float | None:
    return collected.judged / collected.played if collected.played else None


def _source(settings: Settings, backend: Backend) -> str:
    if backend.name != "cuda":
        return settings.spec
    return f"{settings.spec} on {torch.cuda.get_device_name()}, torch {torch.__version__}"
