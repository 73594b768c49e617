"""What the small commands print: the tables of rules, of planted faults and of this machine; a rule's page."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.view import View
from cudagraph_doctor.rules import RULES, page
from cudagraph_doctor.spec import near

if TYPE_CHECKING:
    from cudagraph_doctor.environment import Survey


def rules(view: View) -> str:
    """Code, severity, name and summary of each rule."""
    table = _table("Code", "Severity", "Name", "Finds")
    for rule in RULES.values():
        table.add_row(rule.code, rule.severity.value, rule.name, rule.summary)
    return lay_out([table], view)


def explanation(code: str, view: View) -> str:
    """The page of a rule. Raises UsageError if there is no such code or name."""
    rule = RULES.get(code.upper()) or next((rule for rule in RULES.values() if rule.name == code.lower()), None)
    if rule is None:
        whole = re.fullmatch(r"CGD\d{3}", code.upper())  # a code that is well formed is not misspelt
        hint = "" if whole else near(code.upper(), RULES) or near(code, [rule.name for rule in RULES.values()])
        raise UsageError(
            f'There is no rule "{code}".{hint}',
            seen=f"codes are {', '.join(_code_ranges())}",
            fix="Give one of these, or a rule's name: `cudagraph-doctor rules` lists all.",
        )
    return lay_out([Markdown(page(rule.code))], view)


def _code_ranges() -> list[str]:
    """`CGD001 to CGD003`, a group for each kind."""
    groups = [list(group) for _, group in groupby(sorted(RULES), key=lambda code: code[:4])]
    return [group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups]


def faults(view: View) -> str:
    """The faults that `--fault` plants, with the rule that each triggers and the culprit to be named."""
    from cudagraph_doctor.reference_models.runner_faults import ALL_FAULTS

    parts: list[RenderableType] = []
    for fault in ALL_FAULTS.values():
        title = Text(fault.name, "bold")
        culprit = f", culprit {fault.culprit}" if fault.culprit else ""
        title.append(f"  {fault.rule}{culprit}, {' or '.join(fault.forms)}", "default")
        title.append("" if fault.emulated else ", on a GPU only", "default")
        parts += [title, Padding(Text(fault.summary), (0, 0, 0, 4))]
    return lay_out(parts, view)


def survey(found: Survey, view: View) -> str:
    """What is here, and what can be checked with it."""
    table = _table("Part", "Found")
    for name, value in found.parts.items():
        table.add_row(name, value)
    parts: list[RenderableType] = [table]
    for title, sentences in (("Can be checked here:", found.can), ("Cannot be checked here:", found.cannot)):
        if sentences:
            parts += [Text(""), Text(title, "bold"), *_bullets(sentences)]
    return lay_out(parts, view)


def _bullets(sentences: tuple[str, ...]) -> list[RenderableType]:
    bullets = Table.grid(padding=(0, 1))
    for sentence in sentences:
        bullets.add_row("  -", Text(sentence))
    return [bullets]


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
