"""The table of faults that `inputs` finds: complete, in step with the code; the lines to be named are marked."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cudagraph_doctor.reference_models import (
    faulty_buffers,
    faulty_engine,
    faulty_handover,
    faulty_memory,
    faulty_staging,
    faulty_step,
    faulty_values,
)
from cudagraph_doctor.reference_models.capture_faults import planted_lines
from cudagraph_doctor.reference_models.engine import ReferenceEngine
from cudagraph_doctor.reference_models.faults import FAULTS
from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS, SEEN_BY_INPUTS, SOURCES, InputFault
from cudagraph_doctor.reference_models.loop import ReferenceLoop

LOOPS = {**faulty_buffers.PLANTED, **faulty_values.PLANTED}
ENGINES = {**faulty_memory.PLANTED, **faulty_handover.PLANTED}
MODULES = (faulty_staging, faulty_step, faulty_engine, faulty_buffers, faulty_values, faulty_memory, faulty_handover)
MARKED = [name for name in SEEN_BY_INPUTS if planted_lines(name, SOURCES)]


def test_every_fault_is_planted_in_the_form_that_it_names() -> None:
    assert {name for name, fault in INPUT_FAULTS.items() if fault.forms == ("loop",)} == set(LOOPS)
    assert {name for name, fault in INPUT_FAULTS.items() if fault.forms == ("engine",)} == set(ENGINES)
    for fault, twin in LOOPS.values():
        assert fault is not twin and issubclass(fault, ReferenceLoop) and issubclass(twin, ReferenceLoop)
    for engine, engine_twin in ENGINES.values():
        assert engine is not engine_twin
        assert issubclass(engine, ReferenceEngine) and issubclass(engine_twin, ReferenceEngine)


@pytest.mark.parametrize("fault", INPUT_FAULTS.values(), ids=list(INPUT_FAULTS))
def test_every_row_says_everything(fault: InputFault) -> None:
    assert re.fullmatch(r"CGD3\d\d", fault.rule) and INPUT_FAULTS[fault.name] is fault
    assert fault.summary.endswith(".") and fault.twin.endswith(".")
    assert fault.emulated == (not fault.why_not_emulated)
    assert fault.emulated or not fault.emulated_rule
    assert fault.emulated_rule != fault.rule


def test_every_class_of_a_value_that_is_read_has_a_fault() -> None:
    codes = {rule for rule, _ in SEEN_BY_INPUTS.values()}
    assert codes == {f"CGD3{number:02}" for number in (*range(1, 19), *range(20, 27))}


def test_what_diff_finds_is_found_by_inputs_too_but_for_one() -> None:
    assert set(SEEN_BY_INPUTS) == set(INPUT_FAULTS) | set(FAULTS) - {"missing-reverse-event"}
    assert not set(INPUT_FAULTS) & set(FAULTS)


@pytest.mark.parametrize("name", MARKED)
def test_one_line_is_marked_under_the_rule(name: str) -> None:
    [line] = planted_lines(name, SOURCES)
    assert line.code == SEEN_BY_INPUTS[name][0]
    assert f"# planted: {name} {line.code}" in linecache.getline(line.file, line.line)


def test_every_value_that_is_baked_has_its_line_but_where_a_slice_far_away_bakes_it() -> None:
    baked = {name for name, (rule, _) in SEEN_BY_INPUTS.items() if "CGD320" <= rule <= "CGD325"}
    assert baked - set(MARKED) == {"max-seqlen-by-value", "key-without-length"}


def test_no_mark_is_without_a_fault() -> None:
    marks = [mark for m in MODULES for mark in re.findall(r"# planted: (\S+)", Path(str(m.__file__)).read_text())]
    assert sorted(marks) == sorted(MARKED)


def test_the_table_is_read_without_torch() -> None:
    program = (
        "import sys; from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
