"""Better lists as configuration: what is written can be read again, and covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from cudagraph_doctor.audit import coverage, emit
from cudagraph_doctor.audit.engines import load
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.keys import KeySet, Unit
from cudagraph_doctor.errors import Inconclusive

if TYPE_CHECKING:
    from tests.audit.conftest import MakeAudit

STEPS = {1: 5.0, 3: 2.0, 6: 9.0}


@pytest.mark.parametrize(("form", "engine"), [("vllm", "vllm"), ("sglang", "sglang"), ("yaml", "plain")])
@pytest.mark.parametrize(
    "keys",
    [KeySet("decode", (1, 8), 8), KeySet("verify", (3, 24), 8, Unit.TOKENS, 3, uniform=True)],
    ids=lambda k: k.name,
)
def test_read_again(form: str, engine: str, keys: KeySet, audit: MakeAudit) -> None:
    text = emit.better(audit(keys, steps=STEPS).judged[0].sets, form)
    options = yaml.safe_load(text)
    if form == "vllm" and keys.width > 1:
        options["speculative_config"] = {"num_speculative_tokens": keys.width - 1}
    made = load.of_options("f", options, engine, Asked())
    assert [coverage.gaps(one) for one in made.sets] == [[]]
    assert made.sets[0].most == 8 and len(made.sets[0].full) == 2


def test_piecewise_graphs_of_mixed_steps_are_kept(audit: MakeAudit) -> None:
    keys = KeySet("decode", (1, 8), 8, Unit.TOKENS, piecewise=(1, 8, 16, 24))
    written = yaml.safe_load(emit.better(audit(keys, steps=STEPS).judged[0].sets, "vllm"))
    assert written["compilation_config"]["cudagraph_capture_sizes"] == [1, 8, 16, 24]


def test_several_sets(audit: MakeAudit) -> None:
    two = (KeySet("verify", (2, 8), 8), KeySet("draft", (8,), 8))
    made = load.of_options(
        "f", yaml.safe_load(emit.better(audit(*two, steps=STEPS).judged[0].sets, "yaml")), "", Asked()
    )
    assert [keys.name for keys in made.sets] == ["verify", "draft"]


def test_nothing_to_write(audit: MakeAudit) -> None:
    with pytest.raises(Inconclusive, match="no better list to write"):
        emit.better(audit(KeySet("decode", (), 8), steps=STEPS).judged[0].sets, "yaml")
