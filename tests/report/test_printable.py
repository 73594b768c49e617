"""What a target says cannot drive the terminal that shows it."""

from __future__ import annotations

import dataclasses

import pytest

from cudagraph_doctor.findings import Outcome, Report, Status, Step
from cudagraph_doctor.report import REPORTERS
from cudagraph_doctor.report.printable import all_printable, printable
from cudagraph_doctor.report.view import View

RED = "\x1b[31mred\x07\r"
SHOWN = r"\x1b[31mred\x07\x0d"


def test_controls_are_escaped_and_all_else_stays() -> None:
    assert printable(RED) == SHOWN
    assert printable("\x9b2J\x7f\0") == r"\x9b2J\x7f\x00"
    plain = "größe 日\n\tline [31m \\x1b"
    assert printable(plain) == plain


def test_all_texts_of_a_report(found: Report) -> None:
    assert all_printable(found) == found
    finding = dataclasses.replace(found.findings[0], message=RED, evidence={RED: [RED, 1, None]})
    outcome = dataclasses.replace(found.outcomes[0], findings=(finding,), not_checked=(RED,))
    copied = all_printable(dataclasses.replace(found, outcomes=(outcome,), target={"spec": RED}))
    assert copied.target == {"spec": SHOWN}
    assert copied.findings[0] == dataclasses.replace(finding, message=SHOWN, evidence={SHOWN: [SHOWN, 1, None]})
    assert copied.outcomes[0].not_checked == (SHOWN,)


@pytest.mark.parametrize("format", REPORTERS)
def test_no_format_lets_them_through(format: str) -> None:
    outcome = Outcome("diff", Status.INCONCLUSIVE, RED, RED, steps=(Step(0, 1, RED, "clean"),), traceback=RED)
    text = REPORTERS[format](Report({"version": RED}, {}, {"spec": RED}, (outcome,)), View(verbose=True, debug=True))
    assert "[31m" in text
    assert not {"\x1b", "\x07", "\r"} & set(text)
