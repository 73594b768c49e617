"""The user's line in stacks of a hang."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

import cudagraph_doctor
from cudagraph_doctor.stacks import stands_at

OURS = Path(cudagraph_doctor.__file__).parent
STDLIB, INSTALLED = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))


def thread(name: str, *files: Path | str) -> str:
    """A thread as faulthandler writes it, innermost frame first; lines are numbered from 1."""
    frames = "".join(f'  File "{file}", line {at} in f{at}\n' for at, file in enumerate(files, 1))
    return f"{name} 0x00007f4fcd54b6c0 (most recent call first):\n{frames}\n"


def test_the_innermost_line_of_the_users_in_the_current_thread() -> None:
    here = Path("serving").absolute() / "decode.py"
    other = thread("Thread", STDLIB / "threading.py", "/elsewhere/poll.py")
    inside = (STDLIB / "threading.py", INSTALLED / "torch" / "cuda" / "graphs.py", here, "/app/engine.py")
    text = other + thread("Current thread", *inside, OURS / "observation" / "runs.py", "<string>")
    assert stands_at(text) == f"{os.path.join('serving', 'decode.py')}:3 in f3"


def test_another_thread_if_the_current_one_has_none() -> None:
    text = thread("Thread", Path("poll.py").absolute()) + thread("Current thread", OURS / "worker.py", "<string>")
    assert stands_at(text) == "poll.py:1 in f1"


def test_an_installed_engine_is_the_users() -> None:
    text = thread("Current thread", INSTALLED / "torch" / "cuda" / "graphs.py", INSTALLED / "vllm" / "worker.py")
    assert stands_at(text).endswith(f"{os.path.join('vllm', 'worker.py')}:2 in f2")


@pytest.mark.parametrize("folder", ["reference_models", "skeletons"])
def test_bundled_targets_are_the_users(folder: str) -> None:
    text = thread("Current thread", OURS / "worker.py", OURS / folder / "decode.py")
    assert stands_at(text).endswith("decode.py:2 in f2")


@pytest.mark.parametrize("text", ["", "Thread 1", thread("Current thread", OURS / "worker.py", STDLIB / "queue.py")])
def test_nobodys_line(text: str) -> None:
    assert stands_at(text) == ""
