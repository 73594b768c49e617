"""Audits made in memory: keys, a histogram, costs; no file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudagraph_doctor.audit.costs import Costs, Modelled
from cudagraph_doctor.audit.job import Demands
from cudagraph_doctor.audit.judged import Audit, judge
from cudagraph_doctor.audit.keys import Configuration, KeySet, Unit
from cudagraph_doctor.audit.workload import Workload, assumed

MakeAudit = Callable[..., Audit]


@pytest.fixture
def audit() -> MakeAudit:
    """`audit(KeySet(...), steps={3: 5.0})`; without steps, the workload is assumed."""

    def make(
        *sets: KeySet,
        steps: dict[int, float] | None = None,
        costs: Costs | None = None,
        more: Any = None,
        **demands: Any,
    ) -> Audit:
        configuration = more or Configuration("f.yaml", "plain", sets, origin="as given")
        workload = (
            Workload(steps, Unit.REQUESTS, "a test") if steps else assumed(max(k.most for k in configuration.sets))
        )
        return judge([(configuration, ())], workload, costs or Modelled(), Demands(**demands), assumed=not steps)

    return make
