"""What the texts of a finding share."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console, RenderableType

from cudagraph_doctor.findings import Culprit, Finding, Location, Proof, Severity
from cudagraph_doctor.report import finding_text

FINDING = Finding("CGD301", "frozen", Severity.ERROR, Proof.CONFIRMED, "copy it")


def shown(part: RenderableType) -> list[str]:
    console = Console(width=100, record=True, file=None)
    with console.capture() as text:
        console.print(part)
    return [line.rstrip() for line in text.get().splitlines()]


def test_a_title_has_the_rule_and_where_it_was_first_seen() -> None:
    assert finding_text.title(1, FINDING).plain == "1. error CGD301 input-never-refreshed"
    placed = replace(FINDING, key="16", step=0, rank=3)
    assert finding_text.title(2, placed).plain == (
        "2. error CGD301 input-never-refreshed, bucket 16, first at step 0, rank 3"
    )


def test_a_culprit_has_the_values_that_are_known() -> None:
    assert shown(finding_text.culprit(Culprit("input", "slots", "rows 0 to 3"), str)) == ["input slots, rows 0 to 3"]
    both = Culprit("input", "slots", "", captured=[0], expected=[7])
    assert shown(finding_text.culprit(both, lambda value: f"<{value}>")) == [
        "input slots",
        "  captured  <[0]>",
        "  expected  <[7]>",
    ]


def test_lines_are_the_findings_own_and_then_the_related_ones() -> None:
    assert list(finding_text.lines(FINDING)) == []
    placed = replace(
        FINDING,
        location=Location("serve.py", 3, "stage", "copy(x)", "staged"),
        related=(Location("model.py", 9, "", ""),),
    )
    own, other = finding_text.lines(placed)
    assert own.plain.startswith("staged: ") and own.plain.endswith("\n  copy(x)") and "serve.py:3" in own.plain
    assert "model.py:9" in other.plain and "\n" not in other.plain
    assert own.spans and not other.spans, "the finding's own is bold"
