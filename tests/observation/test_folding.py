"""One line is told once, whatever follows from it."""

from __future__ import annotations

from dataclasses import replace

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.folding import lost_besides, once_a_line
from cudagraph_doctor.observation.model import EmptyGraph, Operation, Refusal, ToldBy

HERE, THERE = Location("/serve.py", 12), Location("/serve.py", 40)
STRAYED = Operation("aten.add_.Tensor", Kind.OUTSIDE_CAPTURE, HERE)
REFUSED = Refusal(STRAYED, ToldBy.CALL, "not permitted", 900)
READ = Refusal(Operation("Tensor.item", Kind.HOST_READ, HERE), ToldBy.CALL, "not permitted", 900)


def test_of_a_line_that_works_outside_the_first_refusal_is_told() -> None:
    other = replace(REFUSED, operation=replace(STRAYED, name="aten.mul.Tensor"))
    elsewhere = replace(REFUSED, operation=replace(STRAYED, location=THERE))
    nobody = replace(REFUSED, operation=None)
    given = [READ, REFUSED, nobody, other, READ, elsewhere, nobody]
    assert once_a_line(given) == [READ, REFUSED, nobody, READ, elsewhere, nobody]


def test_what_a_refusal_tells_of_is_not_told_again() -> None:
    outside = (STRAYED, replace(STRAYED, location=THERE))
    empty = (EmptyGraph(HERE, 1),)
    assert lost_besides([REFUSED], outside, empty) == (outside[1:], ())
    assert lost_besides([READ], outside, empty) == (outside[1:], empty)
    assert lost_besides([], outside, ()) == (outside, ())
