"""`examples/ci`: the gate passes, a change that breaks the decoder fails it on the right line, the CI files work."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudagraph_doctor.cli import cli

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ci"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GITHUB = yaml.safe_load((EXAMPLE / "github.yaml").read_text())
GITLAB = yaml.safe_load((EXAMPLE / "gitlab.yaml").read_text())
FORGETS = ("        self.lengths[:rows].copy_(lengths)\n", "")
READS = ("        beyond = ", "        assert int(lengths.max()) < context.shape[1]\n        beyond = ")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository with the example in a folder of it."""
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", "reports")
    shutil.copytree(EXAMPLE, tmp_path / "repository" / "serving", ignore=ignored)
    return tmp_path / "repository"


def break_it(repository: Path, change: tuple[str, str]) -> None:
    file = repository / "serving" / "decoder.py"
    before, after = change
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))


def line_of(repository: Path, code: str) -> int:
    lines = (repository / "serving" / "decoder.py").read_text().splitlines()
    [number] = [i for i, line in enumerate(lines, start=1) if code in line]
    return number


def environment(folder: Path) -> dict[str, str]:
    """With `cudagraph-doctor` and `python` on PATH, from this checkout, as on a machine without a GPU."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    command = programs / "cudagraph-doctor"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cudagraph_doctor "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


def gate(repository: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [repository / "serving" / "gate.sh"],
        cwd=repository,
        env=environment(repository.parent),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def annotations_of(text: str) -> list[str]:
    return re.findall(r"^::error (file=[^:]*)::", text, flags=re.M)


def test_the_gate_passes(repository: Path) -> None:
    done = gate(repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert annotations_of(done.stdout) == []
    reports = {file.name for file in (repository / "serving" / "reports").iterdir()}
    assert reports == {"checkup.json", "checkup.sarif", "checkup.xml"}


def test_staging_that_forgets_a_buffer_fails_it_at_the_replay(repository: Path) -> None:
    break_it(repository, FORGETS)
    done = gate(repository)
    assert done.returncode == 1, done.stdout + done.stderr
    line = line_of(repository, "graph.replay()")
    assert annotations_of(done.stdout) == [f"file=serving/decoder.py,line={line},title=CGD301 input-never-refreshed"]
    assert "Found 1 root cause: `runner.lengths` is never refreshed." in done.stdout
    assert "healed by writing" in done.stdout
    sarif = json.loads((repository / "serving" / "reports" / "checkup.sarif").read_text())
    place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("serving/decoder.py", line)


def test_a_host_read_in_the_step_fails_it_at_its_line(repository: Path) -> None:
    break_it(repository, READS)
    done = gate(repository)
    assert done.returncode == 1, done.stdout + done.stderr
    line = line_of(repository, "int(lengths.max())")
    assert annotations_of(done.stdout) == [f"file=serving/decoder.py,line={line},title=CGD201 host-read-in-capture"]


def test_its_own_tests_fail_too(repository: Path) -> None:
    break_it(repository, FORGETS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "cudagraph_doctor.pytest_plugin", "-p", "no:cacheprovider"],
        cwd=repository / "serving",
        env=environment(repository.parent),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "`runner.lengths` is not refreshed before the replay" in done.stdout


def doctor(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["cudagraph-doctor", *words],
        cwd=repository / "serving",
        env=environment(repository.parent),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_known_finding_stays_known_when_lines_move_until_it_is_fixed(repository: Path) -> None:
    break_it(repository, FORGETS)
    assert doctor(repository, "diff", "--format", "json=run.json").returncode == 1
    assert doctor(repository, "baseline", "run.json", "-o", "known.json").returncode == 0
    known = ("diff", "--baseline", "known.json", "--format", "github")
    break_it(repository, ("class Runner:", "FURTHER = 1\nLINES = 2\n\n\nclass Runner:"))
    done = doctor(repository, *known)
    assert done.returncode == 0, done.stdout
    assert "known in the baseline known.json" in " ".join(done.stdout.split())
    assert annotations_of(done.stdout) == []
    break_it(repository, ("        self.pages[:rows].copy_(pages)\n", ""))
    done = doctor(repository, *known)
    assert done.returncode == 1, done.stdout
    assert "`runner.pages` is not refreshed" in " ".join(done.stdout.split())
    shutil.copy(EXAMPLE / "decoder.py", repository / "serving")
    done = doctor(repository, *known)
    assert done.returncode == 0, done.stdout
    assert "Fixed: CGD102 graph-differs-from-eager: input runner.lengths" in " ".join(done.stdout.split())


def checking_step() -> dict[str, Any]:
    [step] = [step for step in ACTION["runs"]["steps"] if step.get("id") == "check"]
    assert isinstance(step, dict)
    return step


def act(repository: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the action's check as GitHub's runner would; the process, and its outputs."""
    given = {name: inputs.get(name.replace("-", "_"), value["default"]) for name, value in ACTION["inputs"].items()}
    step = checking_step()
    words = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in step["env"].items()
    }
    output = repository.parent / "output"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=repository / "serving",
        env={**environment(repository.parent), **words, "GITHUB_OUTPUT": str(output)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done, output.read_text()


def test_the_action_runs_every_check_and_traces_too(repository: Path) -> None:
    (repository / "serving" / "traces").mkdir()
    trace = gzip.decompress((ROOT / "tests" / "data" / "traces" / "clean.graph.sqlite.gz").read_bytes())
    (repository / "serving" / "traces" / "decode.sqlite").write_bytes(trace)
    [given] = [step["with"] for step in GITHUB["jobs"]["emulated"]["steps"] if step.get("uses") == "./cudagraph-doctor"]
    done, outputs = act(
        repository,
        arguments=given["arguments"],
        traces=given["traces"],
        trace_arguments=given["trace-arguments"].replace("1,2,4,8", "1,2,4,8,16"),  # those of the recorded engine
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert outputs == "exit-code=0\n"
    reports = repository / "serving" / ACTION["inputs"]["reports"]["default"]
    assert {file.stem for file in reports.iterdir()} == {"checkup", "buckets"}


def test_the_action_fails_with_the_checks_code_and_goes_on(repository: Path) -> None:
    done, outputs = act(repository, checks="nonsense capture", arguments="doctor.py")
    assert done.returncode == 2
    assert outputs == "exit-code=2\n"
    assert "No such command 'nonsense'" in done.stderr
    assert "capture: passed" in done.stdout


def test_the_action_has_no_word_of_a_user_in_its_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]  # what is put in there is run by the shell
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(ACTION["runs"])))
    assert used == set(ACTION["inputs"])


def commands_of(scripts: list[str]) -> list[list[str]]:
    words = [shlex.split(part) for script in scripts for part in script.split("&&")]
    return [line[1:] for line in words if line[:1] == ["cudagraph-doctor"]]


GITHUB_COMMANDS = commands_of([s["run"] for job in GITHUB["jobs"].values() for s in job["steps"] if "run" in s])
GITLAB_COMMANDS = commands_of([line for job in ("emulated", "gpu") for line in GITLAB[job]["script"]])


@pytest.mark.parametrize("words", GITHUB_COMMANDS + GITLAB_COMMANDS, ids=" ".join)
def test_the_commands_of_the_ci_files_are_accepted(words: list[str], repository: Path, monkeypatch: Any) -> None:
    (repository / "serving" / "reports").mkdir(exist_ok=True)
    monkeypatch.chdir(repository / "serving")
    assert cli.main([*words, "--show-settings"], standalone_mode=False) == 0


def test_the_commands_of_the_ci_files_are_found() -> None:
    assert {words[0] for words in GITHUB_COMMANDS} == {"record", "buckets"}
    assert {words[0] for words in GITLAB_COMMANDS} == {"checkup", "record", "buckets"}
    for job in GITHUB["jobs"].values():
        for step in job["steps"]:
            if step.get("uses") == "./cudagraph-doctor":
                assert set(step["with"]) <= set(ACTION["inputs"])
