"""The table of checks: each row is a module that keeps the protocol."""

from __future__ import annotations

import importlib

import pytest

from cudagraph_doctor.checks import CHECKS, Check
from cudagraph_doctor.cli import cli
from cudagraph_doctor.rules import RULES


@pytest.mark.parametrize("word", CHECKS)
def test_a_check_keeps_the_protocol(word: str) -> None:
    check: Check = importlib.import_module(f"cudagraph_doctor.checks.{CHECKS[word]}")
    assert word == check.NAME
    assert word in cli.commands
    assert {RULES[code].check for code in check.RULES} <= {word, "run"}
    assert {"target", "trace", "configuration"} >= check.NEEDS
    assert callable(check.run)
