"""What is left out, and whether it does harm: judged on made-up runs."""

from __future__ import annotations

from collections.abc import Collection

import torch

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.callsite import Line
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.effects import Done, Effects
from cudagraph_doctor.observation.left_out import left_out
from cudagraph_doctor.observation.model import LeftOut, Operation
from cudagraph_doctor.observation.records import Site


def done(name: str, line: int, capture: int = 0) -> Done:
    return Done(capture, Site(name, (Line("step.py", line, "step"),)), 0)


ADD, MUL, COPY = done("add", 1), done("mul", 2), done("copy_", 3)


def effects(*sums: tuple[Done, float], changed: Collection[Done] = (), read: Collection[Done] = ()) -> Effects:
    operations = {
        one: Operation(one.site.name, Kind.LEFT_OUT, Location("step.py", one.site.lines[0].number)) for one, _ in sums
    }
    return Effects(operations, {one: torch.tensor(value) for one, value in sums}, set(changed), set(read))


def compared(told: list[Effects], truth: list[Effects]) -> tuple[LeftOut, list[tuple[bool, set[Done]]]]:
    asked: list[tuple[bool, set[Done]]] = []

    def run(pretends: bool, looked_at: Collection[Done]) -> Effects:
        asked.append((pretends, set(looked_at)))
        return (told if pretends else truth).pop(0)

    return left_out(run), asked


def test_where_nothing_is_left_out_two_runs_suffice() -> None:
    found, asked = compared([effects((ADD, 1.0))], [effects((ADD, 2.0))])
    assert found == LeftOut() and asked == [(True, set()), (False, set())]


def test_what_changes_older_memory_does_harm() -> None:
    full = effects((ADD, 1.0), (COPY, 2.0), changed=[COPY])
    found, asked = compared([effects((ADD, 1.0))] * 2, [full] * 2)
    assert [operation.name for operation in found.harmful] == ["copy_"] and found.harmless == ()
    assert asked[2:] == [(True, set()), (False, {COPY})]


def test_what_changes_nothing_does_none() -> None:
    found, _ = compared([effects((ADD, 1.0))] * 2, [effects((ADD, 1.0), (COPY, 2.0))] * 2)
    assert found.harmful == () and [operation.name for operation in found.harmless] == ["copy_"]


def test_what_is_read_does_harm_if_results_differ() -> None:
    full = effects((MUL, 2.0), (ADD, 2.0), read=[MUL])
    found, _ = compared([effects((ADD, 1.0))] * 2, [full] * 2)
    assert [operation.name for operation in found.harmful] == ["mul"]
    found, _ = compared([effects((ADD, 2.0))] * 2, [full] * 2)
    assert found.harmful == () and [operation.name for operation in found.harmless] == ["mul"]


def test_results_that_differ_between_equal_runs_show_no_harm() -> None:
    full = [effects((MUL, 2.0), (ADD, value), read=[MUL]) for value in (2.0, 3.0)]
    found, _ = compared([effects((ADD, 1.0))] * 2, full)
    assert found.harmful == () and len(found.harmless) == 1


def test_not_a_number_is_a_result_as_others_are() -> None:
    nan = float("nan")
    full = effects((MUL, 2.0), (ADD, nan), read=[MUL])
    assert compared([effects((ADD, nan))] * 2, [full] * 2)[0].harmful == ()
    assert len(compared([effects((ADD, 1.0))] * 2, [full] * 2)[0].harmful) == 1


def test_what_is_done_in_another_way_instead_is_for_others_to_judge() -> None:
    full = effects((ADD, 1.0), (COPY, 2.0), changed=[COPY])
    found, _ = compared([effects((ADD, 1.0), (MUL, 1.0))] * 2, [full] * 2)
    assert found.harmful == () and [operation.name for operation in found.harmless] == ["copy_"]


def test_the_same_operator_at_another_line_is_not_left_out() -> None:
    assert compared([effects((done("add", 7), 1.0))], [effects((ADD, 1.0))])[0] == LeftOut()


def test_what_is_left_out_of_one_of_two_captures() -> None:
    both = effects((ADD, 1.0), (done("add", 1, capture=1), 1.0), changed=[ADD])
    found, _ = compared([effects((done("add", 1, capture=1), 1.0))] * 2, [both] * 2)
    assert [operation.name for operation in found.harmful] == ["add"]


def test_eager_runs_that_do_not_agree_are_not_compared() -> None:
    found, _ = compared([effects((ADD, 1.0))] * 2, [effects((ADD, 1.0), (MUL, 1.0)), effects((ADD, 1.0))])
    assert "do not run the same operators" in found.not_compared and found.harmful == ()


def test_one_record_a_line() -> None:
    other = done("sum", 3)
    full = effects((other, 1.0), (COPY, 2.0), changed=[COPY, other])
    [one] = compared([effects()] * 2, [full] * 2)[0].harmful
    assert (one.name, one.times) == ("sum, copy_", 2)
