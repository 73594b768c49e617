"""The gate from the command line and from pyproject.toml, with real processes."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from cudagraph_doctor.cli import cli
from cudagraph_doctor.command_options import keys

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

FOUND = "return Outcome('diff', Status.FOUND, findings=(FROZEN,), rules=('CGD101', 'CGD102'))"
CLEAN = "return Outcome('diff', Status.PASSED, rules=('CGD101', 'CGD102'))"


def configure(world: FakeWorld, text: str) -> None:
    (world.folder / "pyproject.toml").write_text(f"[tool.cudagraph-doctor]\n{text}\n")


def gate(world: FakeWorld) -> dict[str, Any]:
    found = json.loads((world.folder / "run.json").read_text())["gate"]
    assert isinstance(found, dict)
    return found


def test_ignored_and_selected(fake_world: FakeWorld) -> None:
    assert fake_world.diff(FOUND).returncode == 1
    for words, said in (
        (["--ignore", "CGD1"], "ignored by command line"),
        (["--select", "CGD102,CGD2"], "not selected by command line"),
    ):
        done = fake_world.run("diff", "naughty.py", *words)
        assert done.returncode == 0, done.stderr
        assert f"Not counted: CGD101 frozen-in-graph, {said}. It is frozen." in " ".join(done.stdout.split())
        assert "Clean: nothing that counts was found" in done.stdout
    assert fake_world.run("diff", "naughty.py", "--ignore", "CGD1", "--select", "CGD101").returncode == 1


def test_the_targets_own_ignores(fake_world: FakeWorld) -> None:
    spec = fake_world.target(FOUND)
    file = fake_world.folder / spec
    file.write_text(file.read_text() + '\nTarget.ignore = {"CGD101": "rebuilt by the next release"}\n')
    done = fake_world.run("diff", spec)
    assert done.returncode == 0, done.stdout
    assert "ignored by target: rebuilt by the next release" in " ".join(done.stdout.split())
    file.write_text(file.read_text() + '\nTarget.ignore = {"CGD101": ""}\n')
    done = fake_world.run("diff", spec)
    assert done.returncode == 2
    assert 'Target.ignore is not usable: "CGD101" has no reason' in done.stderr


def test_ignores_of_the_project_need_a_reason_and_unused_ones_are_told(fake_world: FakeWorld) -> None:
    configure(fake_world, '[tool.cudagraph-doctor.ignore]\nCGD101 = "being mended"\nCGD102 = "old"')
    done = fake_world.diff(FOUND)
    assert done.returncode == 0
    told = " ".join(done.stdout.split())
    assert "ignored by pyproject.toml: being mended" in told
    assert "Unused: the ignore of CGD102 in the pyproject.toml (old)" in told
    assert "Unused: the ignore of CGD101" not in told
    configure(fake_world, 'ignore = ["CGD101"]')
    done = fake_world.run("diff", "naughty.py")
    assert done.returncode == 2
    assert '[tool.cudagraph-doctor.ignore], and below it lines such as CGD217 = "why' in done.stderr


def test_a_baseline_from_making_it_to_outliving_it(fake_world: FakeWorld) -> None:
    assert fake_world.diff(FOUND, "--format", "json=run.json").returncode == 1
    done = fake_world.run("baseline", "run.json", "--output", "known.json")
    assert done.returncode == 0, done.stderr
    assert "with 1 known finding.\n  CGD101 frozen-in-graph: input slots\n" in done.stdout
    known = ("--baseline", "known.json", "--format", "json=run.json")
    done = fake_world.diff(FOUND, *known)
    assert done.returncode == 0
    assert "known in the baseline known.json" in " ".join(done.stdout.split())
    done = fake_world.diff(FOUND.replace("(FROZEN,)", "(FROZEN, FROZEN)"), *known)
    assert done.returncode == 1
    assert "Found 1 error" in done.stdout
    done = fake_world.diff(CLEAN, *known)
    assert done.returncode == 0
    assert "Fixed: CGD101 frozen-in-graph: input slots. It can leave known.json." in " ".join(done.stdout.split())
    assert gate(fake_world)["fixed"]
    assert fake_world.run("baseline", "run.json", "--output", "known.json").returncode == 0
    assert json.loads((fake_world.folder / "known.json").read_text())["known"] == []


def test_a_baseline_is_never_overwritten_by_a_report(fake_world: FakeWorld) -> None:
    fake_world.diff(FOUND, "--format", "json=run.json")
    fake_world.run("baseline", "run.json", "-o", "known.json")
    done = fake_world.run("diff", "naughty.py", "--baseline", "known.json", "--format", "json=known.json")
    assert done.returncode == 2
    assert "would overwrite --baseline known.json" in done.stderr
    done = fake_world.run("baseline", "run.json", "-o", "run.json")
    assert done.returncode == 2
    assert "would overwrite" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff", "--select", "CGD9"], 'no rule\'s code begins with "CGD9"'),
        (["diff", "--ignore", ""], "no rule's code begins with"),
        (["diff", "--baseline", "nowhere.json"], 'The baseline "nowhere.json" cannot be read'),
        (["diff", "--baseline", "naughty.py"], "is no complete JSON"),
        (["diff", "--compare", "nowhere.json"], "cannot be read"),
        (["diff", "--compare-threshold", "1%"], "--compare OLD.json, which is not given"),
        (["diff", "--min-coverage", "2"], "no share"),
        (["baseline"], "Missing argument"),
        (["baseline", "naughty.py", "-o", "known.json"], "no complete JSON"),
    ],
)
def test_2_before_anything_runs(fake_world: FakeWorld, words: list[str], said: str) -> None:
    spec = fake_world.target("open('ran', 'w')")
    done = fake_world.run(*(["diff", spec, *words[1:]] if words[0] == "diff" else words))
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert not (fake_world.folder / "ran").exists()


def test_3_too_little_was_checked(fake_world: FakeWorld) -> None:
    half = "return Outcome('diff', Status.PASSED, coverage=0.5)"
    assert fake_world.diff(half).returncode == 0
    done = fake_world.diff(half, "--min-coverage", "90%")
    assert done.returncode == 3
    assert "Inconclusive: diff: 50.0% could be judged, demanded are 90.0%" in done.stdout
    assert fake_world.diff(half, "--min-coverage", "50%").returncode == 0


def test_3_less_was_checked_than_before(fake_world: FakeWorld) -> None:
    whole = "return Outcome('diff', Status.PASSED, coverage=1.0)"
    assert fake_world.diff(whole, "--format", "json=old.json").returncode == 0
    half = whole.replace("1.0", "0.5")
    done = fake_world.diff(half, "--compare", "old.json")
    assert done.returncode == 3
    assert "it was 100.0%" in done.stdout
    assert fake_world.diff(half, "--compare", "old.json", "--compare-threshold", "60%").returncode == 0


def test_any_number_of_formats_at_once_and_again_from_the_stored_report(fake_world: FakeWorld) -> None:
    files = {"json": "run.json", "sarif": "run.sarif", "junit": "run.xml"}
    words = [word for name, file in files.items() for word in ("--format", f"{name}={file}")]
    done = fake_world.diff(FOUND, *words, "--format", "github", "--ignore", "CGD102")
    assert done.returncode == 1
    text, _, annotation = done.stdout.partition("::error ")
    assert "Found 1 error" in text
    assert (
        annotation.startswith("file=naughty.py,line=") and ",title=CGD101 frozen-in-graph::It is frozen." in annotation
    )
    for name, file in files.items():
        again = fake_world.run("report", "run.json", "--format", name)
        assert again.returncode == 0
        assert again.stdout == (fake_world.folder / file).read_text()


@pytest.mark.parametrize("name", ["junit", "sarif", "github", "terminal"])
def test_a_stored_report_that_is_cut_short_is_refused(fake_world: FakeWorld, name: str) -> None:
    fake_world.diff(FOUND, "--format", "json=run.json")
    file = fake_world.folder / "run.json"
    file.write_text(file.read_text()[:500])
    done = fake_world.run("report", "run.json", "--format", name)
    assert done.returncode == 2
    assert "is no complete JSON" in done.stderr
    assert not done.stdout


def test_settings_of_the_project_and_the_command_line_wins(fake_world: FakeWorld) -> None:
    spec = fake_world.target("print('steps', settings.steps, settings.buckets)\n" + FOUND)
    configure(fake_world, f'spec = "{spec}"\nfail-on = "never"\nsteps = 3\nbuckets = [1, 2]\nformat = "json=run.json"')
    done = fake_world.run("diff")
    assert done.returncode == 0, done.stderr
    assert "steps 3 (1, 2)" in done.stderr
    assert gate(fake_world)["fail_on"] == "never"
    done = fake_world.run("diff", "--fail-on", "error", "--steps", "5", "--exhaustive")
    assert done.returncode == 1
    assert "steps 5 ()" in done.stderr  # --exhaustive wins over the file's buckets


def test_a_key_counts_for_the_commands_that_have_the_option(fake_world: FakeWorld) -> None:
    configure(fake_world, "min-hit-rate = 0.9\nsteps = 3")
    assert fake_world.diff(CLEAN).returncode == 0
    shown = tomllib.loads(fake_world.run("buckets", "x", "--show-settings").stdout)["tool"]["cudagraph-doctor"]
    assert shown["min-hit-rate"] == 0.9
    assert "steps" not in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fail_on = 'error'", 'Did you mean "fail-on"?'),
        ("steps = 0", "0 is not in the range"),
        ("backend = 'gpu'", "'gpu' is not one of"),
        ("select = ['CGD9']", "no rule's code begins with"),
        ("= 1", "does not parse"),
    ],
)
def test_2_a_mistake_in_the_file_is_told_as_one(fake_world: FakeWorld, text: str, said: str) -> None:
    configure(fake_world, text)
    done = fake_world.diff(CLEAN)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "pyproject.toml" in done.stderr
    assert fake_world.run("rules").returncode == 0  # reads no settings


def test_show_settings_runs_nothing(fake_world: FakeWorld) -> None:
    spec = fake_world.target("open('ran', 'w')")
    configure(fake_world, 'steps = 3\n[tool.cudagraph-doctor.ignore]\nCGD217 = "only logged"')
    done = fake_world.run("diff", spec, "--show-settings", "--fail-on", "warning")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "steps = 3  # pyproject.toml" in lines
    assert 'fail-on = "warning"  # command line' in lines
    assert 'backend = "auto"  # default' in lines
    assert tomllib.loads(done.stdout)["tool"]["cudagraph-doctor"]["ignore"] == {"CGD217": "only logged"}
    assert not (fake_world.folder / "ran").exists()


def test_what_can_be_set_and_what_is_for_one_run() -> None:
    known = keys(cli.commands)
    assert {"spec", "fail-on", "select", "baseline", "min-coverage", "format", "min-hit-rate", "timeout"} <= set(known)
    assert not {"ignore", "fault", "in-process", "show-settings", "output", "debug"} & set(known)
    assert known["exhaustive"].flag and known["format"].repeatable
