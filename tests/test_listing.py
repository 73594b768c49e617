"""What the small commands print."""

from __future__ import annotations

import pytest

from cudagraph_doctor import listing
from cudagraph_doctor.environment import Survey
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.report.view import View
from cudagraph_doctor.rules import RULES

PLAIN = View()


def test_all_rules_are_listed() -> None:
    text = listing.rules(PLAIN)
    for rule in RULES.values():
        assert rule.code in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("code", RULES)
def test_each_rule_has_its_page(code: str) -> None:
    assert RULES[code].name in listing.explanation(code, PLAIN)


def test_a_page_by_any_name() -> None:
    page = listing.explanation("CGD101", PLAIN)
    assert listing.explanation("cgd101", PLAIN) == page
    assert listing.explanation("frozen-in-graph", PLAIN) == page


@pytest.mark.parametrize(
    ("code", "said"), [("CGD11", "CGD10"), ("frozen", "no rule"), ("frozen-in-grap", '"frozen-in-graph"')]
)
def test_no_such_rule(code: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        listing.explanation(code, PLAIN)
    assert said in str(refused.value)


def test_all_faults_are_listed() -> None:
    from cudagraph_doctor.reference_models.runner_faults import ALL_FAULTS

    text = listing.faults(PLAIN)
    for fault in ALL_FAULTS.values():
        culprit = f", culprit {fault.culprit}" if fault.culprit else ""
        assert f"{fault.name} {fault.rule}{culprit}, {fault.forms[0]}" in " ".join(text.split())
    assert text.count("on a GPU only") == sum(not fault.emulated for fault in ALL_FAULTS.values())


def test_a_survey() -> None:
    text = listing.survey(Survey({"torch": "2.11", "nsys": "not found"}, ("this [x].",), ("that.",)), PLAIN)
    assert "torch  2.11\n" in text
    assert "Can be checked here:\n  - this [x].\n" in text
    assert "Cannot be checked here:\n  - that.\n" in text
    assert "Cannot" not in listing.survey(Survey({}, ("this.",), ()), PLAIN)


def test_a_whole_code_is_not_taken_for_a_slip() -> None:
    with pytest.raises(UsageError) as refused:
        listing.explanation("CGD999", PLAIN)
    said = str(refused.value)
    assert "Did you mean" not in said
    assert "codes are CGD001 to CGD003, CGD101 to " in said
