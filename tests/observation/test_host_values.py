"""Host values that move in captures, who writes them and who reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudagraph_doctor.observation.host_values import HostValues


class Scheduler:
    def __init__(self) -> None:
        self.position = 0
        self.calls = 0
        self.table: dict[str, Any] = {}


class Engine:
    default = 5

    def __init__(self) -> None:
        self.parts = [Scheduler()]
        self.by_name = {"first": Scheduler()}
        self.constant = 1


def looked_at(
    engine: Engine, body: Callable[[], None], eager: Callable[[int], None], serve: Callable[[int], None]
) -> Any:
    values = HostValues(lambda: {"": engine})
    values.opened()
    body()
    values.closed()
    return values, list(values.read_outside(eager, serve))


def test_written_inside_and_read_outside() -> None:
    engine = Engine()
    part = engine.parts[0]
    seen: list[int] = []

    def body(step: int = 0) -> None:
        part.position += 1
        part.calls += 1

    values, [found] = looked_at(engine, body, body, lambda step: seen.append(part.position))
    assert set(values.moved) == {"parts[0].position", "parts[0].calls"}
    assert (found.path, found.change) == ("parts[0].position", "0 -> 1")
    assert found.written and found.written.code == "part.position += 1"
    assert "part.position)" in found.read.code
    assert seen == [3] and "position" not in vars(Scheduler)
    assert part.position == 3 and vars(part)["position"] == 3


def test_another_object_of_the_class_is_another_matter() -> None:
    engine = Engine()
    one, other = engine.by_name["first"], engine.parts[0]

    def body(step: int = 0) -> None:
        one.position += 1

    values, found = looked_at(engine, body, body, lambda step: print(other.position))
    assert list(values.moved) == ["by_name.first.position"] and found == []


def test_what_eager_steps_leave_alone_is_harmless() -> None:
    engine = Engine()
    part = engine.parts[0]

    def once(step: int = 0) -> None:
        part.position = 1

    _, found = looked_at(engine, once, once, lambda step: print(part.position))
    assert found == []


def test_an_attribute_with_a_default_in_the_class() -> None:
    engine = Engine()

    def body(step: int = 0) -> None:
        engine.default += 1

    fresh = Engine()
    _, [found] = looked_at(engine, body, body, lambda step: print(engine.default, fresh.default))
    assert found.path == "default" and vars(Engine)["default"] == 5 and fresh.default == 5


def test_what_cannot_be_followed_is_left_out() -> None:
    engine = Engine()
    held = engine.parts[0].table

    def body(step: int = 0) -> None:
        held["count"] = held.get("count", 0) + 1
        engine.parts[0].table["other"] = step

    body()
    values, found = looked_at(engine, body, body, lambda step: print(held["count"]))
    assert "parts[0].table.count" in values.moved and found == []


def test_nothing_moved_nothing_done() -> None:
    def fail(step: int) -> None:
        raise AssertionError("called")

    values, found = looked_at(Engine(), lambda: None, fail, fail)
    assert (values.moved, found) == ({}, [])
