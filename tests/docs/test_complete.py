"""The docs speak of everything there is: options, commands, members, modules, pages; and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from cudagraph_doctor import policy, target
from cudagraph_doctor.cli import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAV = (ROOT / "mkdocs.yml").read_text()


def links(page: Path) -> list[str]:
    """Targets of the page's relative links and images, code left out."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in found if not re.match(r"[a-z]+://", link) and not link.startswith("#")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_resolve(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link.partition("#")[0]).exists()] == []


def test_links_are_found_at_all() -> None:
    assert "docs/tutorial.md" in links(ROOT / "README.md")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_page_is_in_the_navigation(page: Path) -> None:
    assert page.relative_to(ROOT / "docs").as_posix() in NAV


@pytest.mark.parametrize("command", cli.commands.values(), ids=lambda command: str(command.name))
def test_readme_has_every_command(command: click.Command) -> None:
    assert f"`cudagraph-doctor {command.name}" in README


@pytest.mark.parametrize("command", cli.commands.values(), ids=lambda command: str(command.name))
def test_every_command_and_option_has_help(command: click.Command) -> None:
    assert command.help
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_every_option_of_diff_is_spoken_of_in_the_pages() -> None:
    # The reference lists all of them by itself; this is about being told when to use one.
    prose = "".join(page.read_text() for page in PAGES)
    options = [max(p.opts, key=len) for p in cli.commands["diff"].params if isinstance(p, click.Option)]
    assert [option for option in options if not re.search(rf"`{option}\b|{option} ", prose)] == []


def test_the_reference_is_made_from_the_commands() -> None:
    # That it is fresh is shown in test_fresh.py.
    assert "<!-- commands -->\n" in (ROOT / "docs" / "reference" / "cli.md").read_text()


def test_every_optional_member_of_a_target_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "target.md").read_text()
    loop, engine = page.split("### Optional members of an EngineTarget")
    assert set(re.findall(r"^\| `(\w+)", loop, flags=re.MULTILINE)) == set(target.LOOP_OPTIONAL)
    assert set(re.findall(r"^\| `(\w+)", engine, flags=re.MULTILINE)) == set(target.ENGINE_OPTIONAL)


@pytest.mark.parametrize("page", ["README.md", "docs/reference/cli.md"])
def test_every_exit_code_is_documented(page: str) -> None:
    codes = {policy.OK, policy.FINDINGS, policy.USAGE, policy.INCONCLUSIVE, policy.OUR_BUG, policy.INTERRUPTED}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", (ROOT / page).read_text(), flags=re.MULTILINE)} == codes


def test_every_decision_has_its_sections() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert re.findall(r"^## (.+)$", page.read_text(), flags=re.MULTILINE) == ["Context", "Decision", "Consequences"]
