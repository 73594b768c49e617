"""Each way a child can end, with real processes; nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cudagraph_doctor

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

HANG = """
child = os.fork()
if child == 0:
    time.sleep(600)
open("pids", "w").write(f"{os.getpid()} {child}")
print("hanging now", flush=True)
def stuck_here():
    time.sleep(600)
stuck_here()
"""


def wait_for(file: Path) -> list[int]:
    """The process ids that a hanging target wrote."""
    for _ in range(300):
        if file.exists() and (pids := file.read_text().split()):
            return [int(pid) for pid in pids]
        time.sleep(0.1)
    raise AssertionError(f"{file} was not written")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie, which nobody reaps in some containers, does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(pids: list[int]) -> None:
    for _ in range(50):
        if not any(map(alive, pids)):
            return
        time.sleep(0.1)
    raise AssertionError(f"left behind: {[pid for pid in pids if alive(pid)]}")


@pytest.mark.parametrize(
    ("act", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("ctypes.string_at(0)", "killed by SIGSEGV"),
        ("os.abort()", "killed by SIGABRT"),
        ("os._exit(7)", "it ended itself with exit code 7"),
        ("os._exit(0)", "it ended itself with exit code 0"),
    ],
)
def test_3_child_lost(fake_world: FakeWorld, act: str, how: str) -> None:
    done = fake_world.diff(f"progress.stage('replaying', 4)\n{act}", "--debug")
    assert done.returncode == 3, done.stderr
    text = " ".join(done.stdout.split())
    assert f"The process was lost: {how} (last seen: replaying)." in text
    if "SEGV" in how:
        assert "naughty.py" in text  # the stack, written by the dying process


def test_3_device_lost(fake_world: FakeWorld) -> None:
    done = fake_world.diff("raise RuntimeError('CUDA error: an illegal memory access was encountered')")
    assert done.returncode == 3
    assert "The process was lost: RuntimeError: CUDA error: an illegal memory access" in " ".join(done.stdout.split())


@pytest.mark.parametrize("act", ["os.kill(os.getpid(), signal.SIGSEGV)", "raise RuntimeError('device-side assert')"])
def test_1_the_cause_is_known_when_the_child_is_lost(fake_world: FakeWorld, act: str) -> None:
    done = fake_world.diff(f"progress.journal(FROZEN)\n{act}", "--format", "json")
    assert done.returncode == 1, done.stderr
    [outcome] = json.loads(done.stdout)["outcomes"]
    assert outcome["status"] == "found"
    assert outcome["findings"][0]["culprit"]["name"] == "slots"
    assert outcome["findings"][0]["evidence"]["process_lost"]
    assert outcome["not_checked"]


def test_3_danger_that_was_over_is_no_cause(fake_world: FakeWorld) -> None:
    done = fake_world.diff("progress.journal(FROZEN)\nprogress.journal_clear()\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert done.returncode == 3


def test_3_time_out_shows_all_stacks_and_leaves_nothing(fake_world: FakeWorld) -> None:
    done = fake_world.diff(HANG, "--timeout", "2", "--debug")
    assert done.returncode == 3, done.stderr
    text = " ".join(done.stdout.split())
    assert "It was not finished after 2 s" in text
    assert re.search(r"at naughty\.py:\d+ in stuck_here\)", text)
    assert "stuck_here" in text
    assert_gone(wait_for(fake_world.folder / "pids"))


def test_4_a_worker_that_cannot_start(fake_world: FakeWorld) -> None:
    (Path(fake_world.environment["PYTHONPATH"].split(os.pathsep)[0]) / "sitecustomize.py").write_text(
        "import sys\nif '-c' in sys.orig_argv: raise SystemExit('broken installation')"
    )
    done = fake_world.diff("pass")
    assert done.returncode == 4, done.stdout
    assert "broken installation" in done.stdout + done.stderr


def test_130_interrupted(fake_world: FakeWorld) -> None:
    with fake_world.start("diff", fake_world.target(HANG)) as process:
        pids = wait_for(fake_world.folder / "pids")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in err
    assert_gone(pids)


def test_130_interrupted_in_process(fake_world: FakeWorld) -> None:
    with fake_world.start("diff", fake_world.target(HANG.replace("os.fork()", "1")), "--in-process") as process:
        wait_for(fake_world.folder / "pids")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in err


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_child_does_not_outlive_the_parent(fake_world: FakeWorld, how: signal.Signals) -> None:
    with fake_world.start("diff", fake_world.target(HANG)) as process:
        pids = wait_for(fake_world.folder / "pids")
        process.send_signal(how)
        process.communicate(timeout=20)
    assert process.returncode == -how
    assert_gone(pids)


def test_3_memory_that_is_really_not_there(fake_world: FakeWorld) -> None:
    done = fake_world.diff("bytearray(1 << 60)")
    assert done.returncode == 3, done.stderr
    assert "Memory ran out: MemoryError" in done.stdout


ENDS = {
    "passes": "pass",
    "segfault": "ctypes.string_at(0)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "out of memory": "bytearray(1 << 60)",
    "hangs": HANG,
    "interrupted": HANG,
}


@pytest.mark.parametrize("end", ENDS)
def test_no_file_is_left_behind(fake_world: FakeWorld, end: str) -> None:
    temporary = fake_world.folder.parent / "temporary"
    temporary.mkdir()
    fake_world.environment["TMPDIR"] = str(temporary)
    limit = ("--timeout", "2") if end == "hangs" else ()
    spec = fake_world.target(ENDS[end])
    with fake_world.start("diff", spec, *limit, "--format", "json=run.json", "--format", "sarif=run.sarif") as process:
        if end == "interrupted":
            wait_for(fake_world.folder / "pids")
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert os.listdir(temporary) == []
    reports = set() if end == "interrupted" else {"run.json", "run.sarif"}
    assert {name for name in os.listdir(fake_world.folder) if name not in ("pids", "__pycache__")} == {spec, *reports}


def test_input_is_empty_for_the_target(fake_world: FakeWorld) -> None:
    done = fake_world.diff("print('read', repr(sys.stdin.read()), sys.backend_is_in)")
    assert done.returncode == 0
    assert "read '' True" in done.stderr


def test_output_of_the_child_comes_whole(fake_world: FakeWorld) -> None:
    done = fake_world.diff("os.system('echo from a program'); os.write(1, b'raw\\n'); print('é' * 100_000)")
    assert "from a program" in done.stderr
    assert "raw" in done.stderr
    assert "é" * 100_000 in done.stderr


def test_the_child_runs_the_copy_of_the_program_that_its_parent_is(fake_world: FakeWorld) -> None:
    package = Path(cudagraph_doctor.__file__).parent
    copy = shutil.copytree(
        package, fake_world.folder / "cudagraph_doctor", ignore=shutil.ignore_patterns("__pycache__")
    )
    done = fake_world.diff("import cudagraph_doctor.errors as module; print('from', module.__file__)")
    assert f"from {copy}" in done.stderr, done.stderr
