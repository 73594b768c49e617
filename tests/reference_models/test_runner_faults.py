"""The table of runner faults: complete, in step with the code and the rules, and apart from the others'."""

from __future__ import annotations

from cudagraph_doctor.reference_models import faulty_runner
from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS
from cudagraph_doctor.reference_models.engine import ReferenceEngine
from cudagraph_doctor.reference_models.faults import FAULTS
from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS
from cudagraph_doctor.reference_models.key_faults import KEY_FAULTS
from cudagraph_doctor.reference_models.runner_faults import ALL_FAULTS, RUNNER_FAULTS
from cudagraph_doctor.rules import RULES


def test_table() -> None:
    assert set(RUNNER_FAULTS) == set(faulty_runner.PLANTED)
    tables = (FAULTS, CAPTURE_FAULTS, INPUT_FAULTS, RUNNER_FAULTS, KEY_FAULTS)
    assert ALL_FAULTS == FAULTS | CAPTURE_FAULTS | INPUT_FAULTS | RUNNER_FAULTS | KEY_FAULTS
    assert len(ALL_FAULTS) == sum(len(table) for table in tables)
    for name, fault in RUNNER_FAULTS.items():
        assert fault.name == name and RULES[fault.rule].check == "buckets"
        assert fault.summary.endswith(".") and fault.twin.endswith(".") and fault.forms == ("engine",)
        assert not fault.emulated and fault.why_not_emulated


def test_engines() -> None:
    for engine, twin in faulty_runner.PLANTED.values():
        assert engine is not twin and issubclass(engine, ReferenceEngine) and issubclass(twin, ReferenceEngine)
