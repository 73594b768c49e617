"""The table of faults: complete, and in step with the code and the rules. What each does is tested beside its code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cudagraph_doctor.reference_models import faulty_engine, faulty_staging, faulty_step
from cudagraph_doctor.reference_models.engine import ReferenceEngine
from cudagraph_doctor.reference_models.faults import FAULTS, Fault
from cudagraph_doctor.reference_models.loop import ReferenceLoop
from cudagraph_doctor.rules import RULES


def test_every_fault_is_planted_in_the_forms_that_it_names() -> None:
    loops = {**faulty_staging.PLANTED, **faulty_step.PLANTED}
    assert len(loops) == len(faulty_staging.PLANTED) + len(faulty_step.PLANTED)
    assert {name for name, fault in FAULTS.items() if "loop" in fault.forms} == set(loops)
    assert {name for name, fault in FAULTS.items() if "engine" in fault.forms} == set(faulty_engine.PLANTED)
    assert all(set(fault.forms) <= {"loop", "engine"} and fault.forms for fault in FAULTS.values())
    for fault, twin in loops.values():
        assert fault is not twin and issubclass(fault, ReferenceLoop) and issubclass(twin, ReferenceLoop)
    for engine, engine_twin in faulty_engine.PLANTED.values():
        assert engine is not engine_twin
        assert issubclass(engine, ReferenceEngine) and issubclass(engine_twin, ReferenceEngine)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_every_row_says_everything(fault: Fault) -> None:
    assert FAULTS[fault.name] is fault
    assert fault.rule in RULES
    assert fault.culprit and fault.summary.endswith(".") and fault.twin.endswith(".")
    assert fault.emulated == (not fault.why_not_emulated)


def test_the_table_is_read_without_torch() -> None:
    program = (
        "import sys; from cudagraph_doctor.reference_models.faults import FAULTS; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
