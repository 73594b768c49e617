"""Default rules say their version and source, and are chosen by name."""

from __future__ import annotations

import pytest

from cudagraph_doctor.audit.engines.load import RULES
from cudagraph_doctor.audit.engines.rule import Asked, choose, steps
from cudagraph_doctor.errors import UsageError

ALL = [rule for rules in RULES.values() for rule in rules]


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
def test_version_and_source_are_said(rule: object) -> None:
    assert rule.source.startswith("https://github.com/")  # type: ignore[attr-defined]
    assert "20" in rule.version and rule.words.endswith(rule.source)  # type: ignore[attr-defined]


def test_names_are_unique_and_the_newest_is_released() -> None:
    assert len({rule.name for rule in ALL}) == len(ALL)
    assert all(rules[-1].released for rules in RULES.values() if rules)


def test_chosen_by_name_else_the_last() -> None:
    rules = RULES["vllm"]
    assert choose(rules, Asked(), "vllm") is rules[-1]
    assert choose(rules, Asked("vllm-30330"), "vllm") is rules[0]
    with pytest.raises(UsageError, match="no default rule"):
        choose(rules, Asked("vllm-5048"), "vllm")


def test_steps() -> None:
    assert steps((1, 3, 1), (4, 100, 4), most=10) == (1, 2, 4, 8)
