"""nano-vllm: 1, 2, 4, 8, then every sixteenth size, as its pull requests and its main branch make them."""

from __future__ import annotations

from cudagraph_doctor.audit.engines.rule import Asked, Rule, choose, steps
from cudagraph_doctor.audit.fields import Fields
from cudagraph_doctor.audit.keys import Configuration, KeySet

NAME = "nano-vllm"
CAP = 512
"""No key is larger, and a larger batch runs eager."""


def _main(most: int) -> tuple[int, ...]:
    return tuple(sorted({1, 2, 4, 8, *range(16, most + 1, 16)}))  # 2, 4 and 8 even where `most` is smaller


def _covering(most: int) -> tuple[int, ...]:
    return tuple(sorted({*steps((1, 2, 1), (2, 3, 1), (4, 5, 1), (8, 9, 1), (16, most + 1, 16), most=most), most}))


RULES = (
    Rule(
        "nano-vllm-216",
        "proposed in pull request 216 (April 2026): the maximum is always a key",
        "https://github.com/GeeeekExplorer/nano-vllm/pull/216",
        _covering,
        released=False,
    ),
    Rule(
        "nano-vllm",
        "main branch, June 2025 to April 2026 (commit f64d821)",
        "https://github.com/GeeeekExplorer/nano-vllm/blob/f64d821/nanovllm/engine/model_runner.py",
        _main,
    ),
)
"""The newest that was released is the last."""


def read(fields: Fields, asked: Asked) -> Configuration:
    """The keys. Raises UsageError for a value that is none."""
    most = fields.integer("max_num_seqs") or asked.max_batch or 512
    off = fields.flag("enforce_eager")
    rule = choose(RULES, asked, NAME)
    # A batch up to 512 without a key makes next() raise StopIteration; a larger one never asks for a key.
    keys = KeySet("decode", rule.sizes(min(most, CAP)), most, fails_up_to=CAP)
    return Configuration(
        source=fields.where,
        engine=NAME,
        sets=(keys,),
        rule=rule.name,
        rule_assumed=not asked.rule,
        origin=rule.words,
        turned_off="enforce_eager" if off else "",
        unread=fields.rest(),
    )
