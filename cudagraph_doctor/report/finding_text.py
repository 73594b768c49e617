"""What every text shows of a finding alike: its title, its culprit with both values, and the user's lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.findings import Culprit, Finding, Severity
from cudagraph_doctor.report import paths
from cudagraph_doctor.rules import RULES

STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def title(number: int, finding: Finding) -> Text:
    """`1. error CGD301 input-never-refreshed, bucket 16, first at step 0`."""
    rule = RULES.get(finding.code)
    text = Text(f"{number}. {finding.severity.value} {finding.code}", STYLE[finding.severity])
    text.append(f" {rule.name}" if rule else "")
    place = [
        f"bucket {finding.key}" if finding.key else "",
        f"first at step {finding.step}" if finding.step is not None else "",
        f"rank {finding.rank}" if finding.rank is not None else "",
    ]
    text.append("".join(f", {part}" for part in place if part), "default")
    return text


def culprit(found: Culprit, written: Callable[[Any], str]) -> RenderableType:
    """Its kind and name, and the captured above the expected value, each as `written` puts it."""
    text = Text(f"{found.kind} ")
    text.append(found.name, "bold")
    if found.detail:
        text.append(f", {found.detail}")
    values = Table.grid(padding=(0, 2))
    for label, value in (("captured", found.captured), ("expected", found.expected)):
        if value is not None:
            values.add_row(f"  {label}", Text(written(value)))
    return Group(text, values) if values.row_count else text


def lines(finding: Finding) -> Iterator[Text]:
    """The user's lines, each with its code below it: the finding's own, then the related ones."""
    for number, place in enumerate(place for place in (finding.location, *finding.related) if place):
        text = Text(f"{place.role}: " if place.role else "")
        text.append(paths.where(place), "bold" if number == 0 else "")
        text.append(f"\n  {place.code}" if place.code else "")
        yield text
