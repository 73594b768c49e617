"""The table of rules: one row a code, one page each in `docs/rules/CODE.md`. Plain data, no torch.

A code is never reused or renumbered; the hundreds are the check (0 the run itself, 1 diff, 2 capture, 3 inputs, 4
buckets, 5 audit, 6 races). The name names the problem and reads well after "allow".
"""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_doctor.findings import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    code: str
    name: str
    summary: str
    severity: Severity
    """Default severity of its findings."""
    check: str
    """The check that emits it; "run" for CGD0xx."""
    since: str = "0.1.0"


def _rule(code: str, name: str, severity: Severity, check: str, summary: str) -> Rule:
    return Rule(code, name, summary, severity, check)


_ALL = (
    _rule("CGD001", "eager-not-reproducible", Severity.NOTE, "run",
          "The same eager step, run twice from the same state, gives different results."),
    _rule("CGD002", "incomplete-reset", Severity.WARNING, "run",
          "reset() does not bring host or device state back to before step 0."),
    _rule("CGD003", "process-lost-in-replay", Severity.ERROR, "run",
          "The process died while a graph was replayed; what was known by then is named."),
    _rule("CGD101", "frozen-in-graph", Severity.ERROR, "diff",
          "A graph captured now gives the eager result, the graph captured earlier does not: something in it is frozen."),
    _rule("CGD102", "graph-differs-from-eager", Severity.ERROR, "diff",
          "Even a graph captured now differs from eager: staging, missing work, or a branch taken only in capture."),
    _rule("CGD103", "unsafe-padding", Severity.ERROR, "diff",
          "Padding rows change live rows or live state."),
    _rule("CGD104", "kept-output-overwritten", Severity.ERROR, "diff",
          "An output that is still in use is overwritten by a later replay."),
    _rule("CGD105", "unordered-steps", Severity.ERROR, "diff",
          "Steps are right one at a time and wrong when they overlap: an ordering edge between steps is missing."),
    _rule("CGD106", "replay-not-reproducible", Severity.ERROR, "diff",
          "Eager repeats bit for bit, replays of one graph on the same inputs do not."),
    _rule("CGD107", "graph-numerics", Severity.NOTE, "diff",
          "Graph and eager differ by rounding only: another kernel, split or fusion."),
    _rule("CGD108", "freed-input-replayed", Severity.ERROR, "diff",
          "A graph reads memory that was freed after its capture."),
)

RULES: dict[str, Rule] = {rule.code: rule for rule in _ALL}
"""All rules by code, in order."""
