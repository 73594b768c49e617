"""Each row of the exit-code table, and where the report goes, with real processes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor import __version__

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

FOUND = "return Outcome('diff', Status.FOUND, findings=(FROZEN,))"


def test_0_clean(fake_world: FakeWorld) -> None:
    done = fake_world.diff("print('the target prints')")
    assert done.returncode == 0, done.stderr
    assert "Clean: nothing wrong was found (diff)." in done.stdout
    assert "the target prints" in done.stderr
    assert "the target prints" not in done.stdout


@pytest.mark.parametrize("in_process", [[], ["--in-process"]])
def test_what_is_printed_at_import_is_no_report(fake_world: FakeWorld, in_process: list[str]) -> None:
    spec = fake_world.target("pass")
    file = fake_world.folder / spec
    file.write_text("import os\nprint('from Python')\nos.system('echo from below')\n" + file.read_text())
    done = fake_world.run("diff", spec, "--format", "json", *in_process)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"][0]["status"] == "passed"
    assert "from Python" in done.stderr
    assert "from below" in done.stderr


def test_0_with_notes_only(fake_world: FakeWorld) -> None:
    body = FOUND.replace("FROZEN", "Finding('CGD107', 'Rounding.', Severity.NOTE, Proof.MEASURED, 'Nothing to do.')")
    assert fake_world.diff(body).returncode == 0
    assert fake_world.run("diff", "naughty.py", "--fail-on", "note").returncode == 1


@pytest.mark.parametrize("in_process", [[], ["--in-process"]])
def test_1_findings(fake_world: FakeWorld, in_process: list[str]) -> None:
    done = fake_world.diff(FOUND, *in_process)
    assert done.returncode == 1, done.stderr
    assert "Culprit  input slots" in done.stdout


def test_1_never(fake_world: FakeWorld) -> None:
    assert fake_world.diff(FOUND, "--fail-on", "never").returncode == 0


def test_suspicions_do_not_fail(fake_world: FakeWorld) -> None:
    done = fake_world.diff(
        FOUND.replace("FROZEN", "dataclasses.replace(FROZEN, proof=Proof.SUSPECTED)").replace(
            "return", "import dataclasses; return"
        )
    )
    assert done.returncode == 0
    assert "1 suspicion" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff", "--steps", "0"], "0 is not in the range x>=1"),
        (["diff", "--batch-sizes", "3,-1"], "-1 is below 1"),
        (["diff", "--buckets", "two"], "no list of integers"),
        (["diff", "--buckets", "2", "--exhaustive"], "give one of them"),
        (["diff", "-a", "preset"], "not of the form name=value"),
        (["diff", "-a", "a=1", "-a", "a=2"], "given twice"),
        (["diff", "--rtol", "much"], "no bound"),
        (["diff", "--rtol", "-1"], "no bound"),
        (["diff", "--format", "jsn"], 'Did you mean "json"?'),
        (["diff", "--format", "json", "--format", "terminal"], "both go to stdout"),
        (["diff", "--format", "json=/nowhere/run.json"], "does not exist"),
        (["diff", "--format", "json=."], "no file to write to"),
        (["diff", "--timeout", "0"], "no number of seconds above 0"),
        (["diff", "--timeout", "nan"], "nan is no number of seconds"),
        (["diff", "--timeout", "inf"], "inf is no number of seconds"),
        (["diff", "--app-dir", "nowhere"], "does not exist"),
        (["diff", "--twin"], "Add --fault NAME"),
        (["diff", "naughty.py", "--fault", "x"], "for the bundled model"),
        (["diff", ""], "SPEC is empty"),
        (["diff", "nowhere.py"], "does not exist"),
        (["diff", "no.such.module"], 'no module "no"'),
        (["diff", "reference:lop"], 'Did you mean "loop"?'),
        (["buckets", "naughty.py", "--step-pattern", ""], "an empty pattern fits every label"),
        (["record", "-o", "trace", "--backend", "emulated"], "No such option '--backend'"),
        (["record", "-o", "trace", "--in-process"], "No such option '--in-process'"),
        (["dif"], "No such command"),
        (["report", "nowhere.json"], "does not exist"),
        (["report", "naughty.py"], "no complete JSON"),
        (["explain", "CGD999"], "no rule"),
        (["init", "loop", "target.txt"], "does not end in .py"),
        (["init", "lop", "target.py"], 'no target form "lop"'),
    ],
)
def test_2_usage(fake_world: FakeWorld, words: list[str], said: str) -> None:
    fake_world.target("pass")
    done = fake_world.run(*words)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_2_target_breaks_the_contract(fake_world: FakeWorld) -> None:
    (fake_world.folder / "half.py").write_text(
        "class target:\n  def __init__(self, device): pass\n  def step(self): pass"
    )
    done = fake_world.run("diff", "half.py")
    assert done.returncode == 2
    assert "lacks reset, graphs" in done.stderr


def test_2_target_raises_and_debug_shows_where(fake_world: FakeWorld) -> None:
    (fake_world.folder / "half.py").write_text("def target(device):\n    return 1 / 0")
    done = fake_world.run("diff", "half.py")
    assert done.returncode == 2
    assert "ZeroDivisionError: division by zero, at half.py:2 in target: return 1 / 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in fake_world.run("diff", "half.py", "--debug").stderr


@pytest.mark.parametrize("in_process", [[], ["--in-process"]])
def test_3_target_raises_in_a_step(fake_world: FakeWorld, in_process: list[str]) -> None:
    done = fake_world.diff("{}['slots']", "--debug", *in_process)
    assert done.returncode == 3, done.stderr
    assert "Inconclusive: diff: The target raised KeyError: 'slots', at naughty.py:" in " ".join(done.stdout.split())
    assert "Traceback" in done.stdout
    assert "run_check" not in done.stdout  # cut at our frames


def test_3_target_exits_in_a_step(fake_world: FakeWorld) -> None:
    done = fake_world.diff("sys.exit(0)")
    assert done.returncode == 3
    assert "SystemExit: 0" in done.stdout


def test_3_doctor_error(fake_world: FakeWorld) -> None:
    done = fake_world.diff("raise Inconclusive('Too little memory.', fix='Get more.')")
    assert done.returncode == 3
    assert "Too little memory." in done.stdout
    assert "Get more." in done.stdout


def test_3_no_gpu(fake_world: FakeWorld) -> None:
    done = fake_world.diff("pass", "--backend", "cuda")
    assert done.returncode == 3
    assert "build without CUDA" in done.stdout


def test_3_out_of_memory(fake_world: FakeWorld) -> None:
    done = fake_world.diff("raise MemoryError")
    assert done.returncode == 3
    assert "Memory ran out" in done.stdout


@pytest.mark.parametrize("in_process", [[], ["--in-process"]])
def test_4_our_bug(fake_world: FakeWorld, in_process: list[str]) -> None:
    done = fake_world.diff("return Outcome('diff')", *in_process)
    assert done.returncode == 3  # raised in the target's own line: his
    done = fake_world.diff("return 'no outcome'", *in_process)
    assert done.returncode == 4, done.stderr
    assert "A bug in cudagraph-doctor" in done.stdout


def test_4_bug_in_the_parent(fake_world: FakeWorld) -> None:
    customize = Path(fake_world.environment["PYTHONPATH"].split(os.pathsep)[0]) / "sitecustomize.py"
    customize.write_text(
        "import cudagraph_doctor.policy\ndel cudagraph_doctor.policy.exit_code\n" + customize.read_text()
    )
    done = fake_world.diff("pass")
    assert done.returncode == 4
    assert "Please report it" in done.stderr


def test_a_reader_that_has_had_enough_changes_nothing(fake_world: FakeWorld) -> None:
    with fake_world.start("diff", fake_world.target(FOUND)) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1, err
    assert "Traceback" not in err


def test_a_json_file_beside_the_text(fake_world: FakeWorld) -> None:
    done = fake_world.diff(FOUND, "--format", "json=run.json")
    assert done.returncode == 1
    assert "Found 1 error" in done.stdout
    again = fake_world.run("report", "run.json")
    assert again.returncode == 0
    assert again.stdout == done.stdout
    assert (
        fake_world.run("report", "run.json", "--format", "json").stdout == (fake_world.folder / "run.json").read_text()
    )


def test_no_values(fake_world: FakeWorld) -> None:
    body = "import dataclasses\n" + FOUND.replace(
        "FROZEN", "dataclasses.replace(FROZEN, culprit=Culprit('input', 'slots', captured=[31337], expected=[4711]))"
    )
    assert "31337" in fake_world.diff(body).stdout
    done = fake_world.run("diff", "naughty.py", "--no-values", "--format", "json")
    assert "31337" not in done.stdout
    assert json.loads(done.stdout)["settings"]["values"] is False


def test_an_encoding_that_lacks_letters(fake_world: FakeWorld) -> None:
    fake_world.environment["PYTHONIOENCODING"] = "ascii"
    done = fake_world.diff("raise Inconclusive('Größe passt nicht.', fix='Kürzen.')")
    assert done.returncode == 3, done.stderr
    assert "Gr\\xf6\\xdfe" in done.stdout


def test_help_names_all_commands(fake_world: FakeWorld) -> None:
    done = fake_world.run("--help")
    assert done.returncode == 0
    for command in ("diff", "report", "rules", "explain", "faults", "env", "init"):
        assert f"\n  {command} " in done.stdout


def test_version(fake_world: FakeWorld) -> None:
    done = fake_world.run("--version")
    assert (done.returncode, done.stdout) == (0, f"cudagraph-doctor, version {__version__}\n")


def test_env_as_json(fake_world: FakeWorld) -> None:
    done = fake_world.run("env", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["parts"]["Python"] == platform.python_version()
    assert found["can"]
    assert "Cannot be checked here:" in fake_world.run("env").stdout


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["rules"], ["explain", "CGD101"], ["diff"], ["--help"], ["diff", "--help"]])
def test_2_stdout_is_full(fake_world: FakeWorld, words: list[str]) -> None:
    if words == ["diff"]:
        words = ["diff", fake_world.target("pass")]
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cudagraph_doctor", *words],
            cwd=fake_world.folder,
            env=fake_world.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert "stdout cannot be written to: No space left on device." in done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_2_stdout_is_closed(fake_world: FakeWorld) -> None:
    done = fake_world.python(
        "import os, runpy, sys; os.close(1); sys.stdout = None; sys.argv[1:] = ['rules']\n"
        "runpy.run_module('cudagraph_doctor', run_name='__main__')"
    )
    assert done.returncode == 2
    assert "stdout cannot be written to: it is closed." in done.stderr


def test_2_the_target_raises_control_characters(fake_world: FakeWorld) -> None:
    spec = fake_world.target("pass")
    with (fake_world.folder / spec).open("a") as file:
        file.write("\ndef target(device):\n    raise ValueError('\\x1b[2J')\n")
    done = fake_world.run("diff", spec, "--debug")
    assert done.returncode == 2
    assert r"ValueError: \x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr
