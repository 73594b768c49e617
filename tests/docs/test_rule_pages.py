"""The table of rules, its pages, the checks that emit them and the codes ever published say the same."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from cudagraph_doctor.checks import CHECKS
from cudagraph_doctor.rules import RULES
from cudagraph_doctor.traces.calls import ERRORS

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = (ROOT / "tests" / "data" / "rule_codes.txt").read_text().split()
"""Grows only. A code that was ever published keeps its meaning."""
HEADINGS = [
    "What it finds",
    "Why it matters",
    "How it is found, and what it cannot see",
    "Bad",
    "Good",
    "Options",
    "References",
]


def page(code: str) -> str:
    return (ROOT / "docs" / "rules" / f"{code}.md").read_text()


def test_no_code_was_ever_removed_and_new_ones_are_published() -> None:
    assert list(RULES) == PUBLISHED


def test_codes_are_well_formed_and_in_order() -> None:
    assert all(re.fullmatch(r"CGD\d{3}", code) for code in RULES)
    assert list(RULES) == sorted(RULES)
    assert all(rule.code == code for code, rule in RULES.items())


def test_names_are_unique_and_kebab_case() -> None:
    names = [rule.name for rule in RULES.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", name) for name in names)


def test_every_code_has_one_page_and_every_page_a_code() -> None:
    assert {file.stem for file in (ROOT / "docs" / "rules").glob("*.md")} == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_page_has_the_headings_and_something_below_each(code: str) -> None:
    text = re.sub(r"^```.*?^```", "code", page(code), flags=re.MULTILINE | re.DOTALL)  # comments in it are no headings
    title, *parts = re.split(r"^#{1,2} (.+)$", text, flags=re.MULTILINE)[1:]
    assert title == f"{code}: {RULES[code].name}"
    below = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(below) == HEADINGS
    assert all(text.strip() for text in below.values())


def test_each_code_belongs_to_exactly_one_check() -> None:
    emitted = {
        name: importlib.import_module(f"cudagraph_doctor.checks.{module}").RULES for name, module in CHECKS.items()
    }
    for code, rule in RULES.items():
        emitters = [name for name, codes in emitted.items() if code in codes]
        assert emitters == [rule.check] or rule.check == "run"


def test_checks_emit_only_codes_of_the_table() -> None:
    for name, module in CHECKS.items():
        codes = importlib.import_module(f"cudagraph_doctor.checks.{module}").RULES
        assert set(codes) <= set(RULES), name


def test_the_error_codes_that_a_finding_sends_the_reader_to() -> None:
    """CGD415's fix says that its page explains them."""
    assert {1, 700, 719, 900, 910} <= set(ERRORS)
    for code, meaning in ERRORS.items():
        assert f"| {code} | {meaning} |" in page("CGD415")
