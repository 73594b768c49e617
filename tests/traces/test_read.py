"""A trace of any form; nsys reports are exported first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.traces import nsys_tool, read
from cudagraph_doctor.traces.sniff import Form

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


def a_loop(make: Callable[[], MadeUp]) -> MadeUp:
    loop = make()
    graph = loop.capture(5, 4)
    loop.decode(0, 3, 4, graph)
    return loop


def test_both_forms(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    for file in (a_loop(made_up).nsys(tmp_path / "t.sqlite"), a_loop(made_up).kineto(tmp_path / "t.json.gz")):
        assert [step.label.batch for step in read.read(file).steps] == [3]


def test_a_report_is_exported_first(
    made_up: Callable[[], MadeUp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = a_loop(made_up).nsys(tmp_path / "made.sqlite")
    monkeypatch.setattr(nsys_tool, "find", lambda: "nsys")
    monkeypatch.setattr(nsys_tool, "export", lambda report, target, tool: target.write_bytes(exported.read_bytes()))
    (tmp_path / "t.nsys-rep").write_bytes(b"a report")
    found = read.read(tmp_path / "t.nsys-rep", form=Form.NSYS_REP)
    assert (found.source, len(found.steps)) == ("t.sqlite", 1)


def test_no_trace(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("hello")
    with pytest.raises(UsageError):
        read.read(tmp_path / "t")
