"""The table of capture faults: complete, in step with the code and the rules; the lines to be named are marked."""

from __future__ import annotations

import inspect
import linecache
import subprocess
import sys

import pytest

from cudagraph_doctor.reference_models import (
    faulty_capture,
    faulty_copies,
    faulty_neighbours,
    faulty_start,
    faulty_streams,
)
from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS, CaptureFault, planted_lines
from cudagraph_doctor.rules import RULES

WITH_LOOPS = (faulty_capture, faulty_copies, faulty_streams, faulty_neighbours)
LOOPS = {name: pair for module in WITH_LOOPS for name, pair in module.PLANTED.items()}


def test_every_fault_is_planted_in_the_forms_that_it_names() -> None:
    assert len(LOOPS) == sum(len(module.PLANTED) for module in WITH_LOOPS)
    assert {name for name, fault in CAPTURE_FAULTS.items() if fault.forms == ("loop",)} == set(LOOPS)
    assert {name for name, fault in CAPTURE_FAULTS.items() if fault.forms == ("engine",)} == set(faulty_start.PLANTED)
    assert all(fault is not twin for fault, twin in (LOOPS | faulty_start.PLANTED).values())


@pytest.mark.parametrize("fault", CAPTURE_FAULTS.values(), ids=list(CAPTURE_FAULTS))
def test_every_row_says_everything(fault: CaptureFault) -> None:
    assert RULES[fault.rule].check == "capture"
    assert fault.culprit and fault.summary.endswith(".") and fault.twin.endswith(".")
    assert fault.emulated == (not fault.why_not_emulated)


@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_the_lines_to_be_named_are_marked_under_the_rule(name: str) -> None:
    lines = planted_lines(name)
    assert [line.code for line in lines] == (
        ["CGD201", "CGD202", "CGD204"] if name == "three-at-once" else [CAPTURE_FAULTS[name].rule]
    )
    assert all(f"# planted: {name} {line.code}" in linecache.getline(line.file, line.line) for line in lines)


def test_every_rule_of_captures_has_a_fault() -> None:
    planted = {line.code for name in CAPTURE_FAULTS for line in planted_lines(name)}
    assert planted == {code for code, rule in RULES.items() if rule.check == "capture"} - {"CGD219"}  # is for the rest


def test_no_mark_is_without_a_fault() -> None:
    sources = "".join(inspect.getsource(module) for module in (*WITH_LOOPS, faulty_start))
    assert sources.count("# planted: ") == sum(len(planted_lines(name)) for name in CAPTURE_FAULTS)


def test_the_table_is_read_without_torch() -> None:
    program = (
        "import sys; from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
