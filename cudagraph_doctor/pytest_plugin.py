"""For pytest: the fixture `cudagraph_doctor`, which runs checks on a target and fails the test with what was found.

    def test_graphs(cudagraph_doctor):
        cudagraph_doctor.diff(make_target)

Settings, ignores and the baseline are those of `[tool.cudagraph-doctor]` in the root folder's pyproject.toml. Nothing
heavy is imported before a test asks for the fixture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cudagraph_doctor.findings import Report
    from cudagraph_doctor.in_process import Session


class Doctor:
    """What the fixture is. Its checks return the report of a run that passed, for a test that wants to know more."""

    def __init__(self, session: Session, root: Path) -> None:
        self._session = session
        self._root = root

    @property
    def device(self) -> str:
        """What targets have to be made on: "cuda", or "cpu:0" where it is emulated."""
        return self._session.device

    def diff(self, target: object, **settings: Any) -> Report:
        """Compare the target's steps with replays; see `check`."""
        return self.check("diff", target, **settings)

    def capture(self, target: object, **settings: Any) -> Report:
        """List what a capture of the target refuses or loses; see `check`."""
        return self.check("capture", target, **settings)

    def check(self, name: str, target: object, **settings: Any) -> Report:
        """Run a check that needs a target. Fails the test on findings, and where nothing was shown.

        Args:
            name: the command's word.
            target: a target made inside of the test, a function or class that takes `device` and makes one, or a SPEC.
            settings: fields of `cudagraph_doctor.settings.Settings`: steps, buckets, batch_sizes, exhaustive...
        """
        from cudagraph_doctor.configured import configured
        from cudagraph_doctor.errors import DoctorError
        from cudagraph_doctor.gate.judge import judge
        from cudagraph_doctor.report.terminal import render
        from cudagraph_doctor.report.view import View

        __tracebackhide__ = True
        try:
            given, demands = configured(name, self._root)
            report = judge(self._session.examine(target, dataclasses.replace(given, **settings)), demands)
        except DoctorError as error:
            pytest.fail(f"cudagraph-doctor: {error}", pytrace=False)
        if report.gate and report.gate.exit_code:
            pytest.fail(render(report, View(width=100)), pytrace=False)
        return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says on what to run."""
    parser.getgroup("cudagraph-doctor").addoption(
        "--cudagraph-doctor-backend",
        choices=["auto", "cuda", "emulated"],
        help="what the fixture cudagraph_doctor runs on (default: backend in pyproject.toml, else auto)",
    )


@pytest.fixture
def cudagraph_doctor(pytestconfig: pytest.Config) -> Iterator[Doctor]:
    """Checks of CUDA graphs on a target; hooks are in for the length of the test."""
    from cudagraph_doctor.configured import configured
    from cudagraph_doctor.errors import DoctorError
    from cudagraph_doctor.in_process import session

    with ExitStack() as hooks:
        try:
            settings, _ = configured("diff", pytestconfig.rootpath)
            backend = pytestconfig.getoption("--cudagraph-doctor-backend") or settings.backend
            opened = hooks.enter_context(session(backend))
        except DoctorError as error:
            pytest.fail(f"cudagraph-doctor: {error}", pytrace=False)
        yield Doctor(opened, pytestconfig.rootpath)
