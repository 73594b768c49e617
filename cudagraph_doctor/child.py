"""The parent's side of the child process: starts `worker.py` in a group of its own, reads it, ends it.

Nothing is left behind: whichever way it ends, the whole group is killed.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cudagraph_doctor.settings import Settings
from cudagraph_doctor.worker import STACKS_SIGNAL

_HERE = str(Path(__file__).parent)
_BOOT = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
here, sys.path[:] = sys.argv[1], sys.argv[2:]
spec = spec_from_file_location("cudagraph_doctor", here + "/__init__.py", submodule_search_locations=[here])
sys.modules[spec.name] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from cudagraph_doctor.worker import main
main()
"""
"""As multiprocessing does when it spawns: the child finds modules where the parent does (installed, editable or plain
checkout). The working directory comes last, so that no file in it shadows the standard library or torch; this package
is the very one that the parent runs, though another one be installed."""

_STACKS_WAIT_S = 5.0
_TAIL_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class End:
    """How the child ended."""

    code: int
    """As `Popen.returncode`: negative is a signal."""
    timed_out: bool
    complete: bool
    """It said that it was done."""
    stacks: str
    """Python stacks: of a crash, or of a hang."""
    tail: str
    """The last that it printed."""


def run(
    settings: Settings,
    checks: tuple[str, ...],
    on_event: Callable[[dict[str, Any]], None],
    on_output: Callable[[str], None],
) -> End:
    """Run the checks in a child; `on_event` gets its events, `on_output` what it (or the target) prints.

    Kills the child when `settings.timeout_s` is over, and when anything is raised here (an interrupt).
    """
    messages_read, messages_write = os.pipe()
    with tempfile.TemporaryFile() as stacks, _closing(messages_read):
        with _closing(messages_write):
            process = subprocess.Popen(
                [sys.executable, "-u", "-P", "-c", _BOOT, _HERE, *_working_directory_last(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(messages_write, stacks.fileno()),
                start_new_session=True,
            )
        with _killed_at_the_end(process):
            assert process.stdin and process.stdout
            job = {
                "settings": settings.to_json(),
                "checks": checks,
                "messages_fd": messages_write,
                "stacks_fd": stacks.fileno(),
            }
            with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code tells
                process.stdin.write(json.dumps(job).encode() + b"\n")
                process.stdin.flush()
            return _listen(process, messages_read, stacks, settings.timeout_s, on_event, on_output)


def _working_directory_last(path: Sequence[str]) -> list[str]:
    here = os.path.realpath(".")
    return sorted(path, key=lambda entry: os.path.realpath(entry) == here)


def _listen(
    process: subprocess.Popen[bytes],
    messages: int,
    stacks: IO[bytes],
    timeout_s: float,
    on_event: Callable[[dict[str, Any]], None],
    on_output: Callable[[str], None],
) -> End:
    assert process.stdout
    output = process.stdout.fileno()
    deadline = time.monotonic() + timeout_s
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    pending, tail, complete, timed_out = b"", "", False, False
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        selector.register(output, selectors.EVENT_READ)
        while True:
            gone = process.poll() is not None  # asked first: what it wrote last is still read
            ready = selector.select(timeout=max(0.0, min(0.1, deadline - time.monotonic())))
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fd)
                elif key.fd == output:
                    text = decoder.decode(chunk)
                    tail = (tail + text)[-_TAIL_CHARACTERS:]
                    on_output(text)
                else:
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        complete = complete or event["event"] == "done"
                        on_event(event)
            if gone and not ready:
                break  # nothing is left to read, even if a process that it started still holds the pipes
            if not gone and time.monotonic() >= deadline:
                timed_out = True
                break
    if timed_out:
        _ask_for_stacks(process, stacks)
        _kill_group(process)
    code = process.wait()
    stacks.seek(0)
    return End(code, timed_out, complete, stacks.read().decode(errors="replace"), tail)


def _ask_for_stacks(process: subprocess.Popen[bytes], stacks: IO[bytes]) -> None:
    before = os.fstat(stacks.fileno()).st_size
    process.send_signal(STACKS_SIGNAL)
    until = time.monotonic() + _STACKS_WAIT_S
    size = before
    while time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
        last, size = size, os.fstat(stacks.fileno()).st_size
        if size > before and size == last:
            return


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        _kill_group(process)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)
