"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp
    from tests.traces.record_all import Recorded

_FAKE_TORCH = """
class version:
    cuda = None
class cuda:
    is_available = staticmethod(lambda: False)
__version__ = "0"
"""

_FAKES = """
# Loaded by Python at start-up: an emulated backend that does nothing, and a `diff` that does what the target says.
import contextlib, sys, types

backend = types.ModuleType("cudagraph_doctor.graph.emulated")
class EmulatedBackend:
    name, device = "emulated", "cpu:0"
    @contextlib.contextmanager
    def installed(self):
        sys.backend_is_in = True
        yield
backend.EmulatedBackend = EmulatedBackend
sys.modules[backend.__name__] = backend

check = types.ModuleType("cudagraph_doctor.checks.eager_diff")
check.NAME, check.RULES, check.NEEDS = "diff", ("CGD101", "CGD107"), frozenset({"target"})
def run(target, backend, settings, progress):
    from cudagraph_doctor.findings import Outcome, Status
    return target.behave(progress, settings) or Outcome("diff", Status.PASSED)
check.run = run
sys.modules[check.__name__] = check
"""

_TARGET = """
import ctypes, os, signal, sys, time
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Culprit, Finding, Outcome, Proof, Severity, Status

FROZEN = Finding("CGD101", "It is frozen.", Severity.ERROR, Proof.CONFIRMED, "Copy it.", Culprit("input", "slots"))

class Target:
    def reset(self): pass
    def step(self, i, n): return {behaviour!r}
    def graphs(self, on): pass
    def behave(self, progress, settings):
{body}

def target(device):
    return Target()
"""


@dataclass(frozen=True)
class FakeWorld:
    """Runs the program as a user would, in real processes, with a fake backend and a fake `diff` in them."""

    folder: Path
    environment: dict[str, str] = field(repr=False)

    def target(self, body: str) -> str:
        """Write a target whose check does `body` (with `progress` and `settings` at hand); returns its SPEC."""
        indented = "\n".join(f"        {line}" for line in body.splitlines())
        (self.folder / "naughty.py").write_text(_TARGET.format(body=indented, behaviour=body))
        return "naughty.py"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `cudagraph-doctor WORDS`, in a group of its own."""
        return self._start("-m", "cudagraph_doctor", *words)

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program to its end."""
        return _finished(self._start("-c", program))

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `cudagraph-doctor WORDS` to its end."""
        return _finished(self.start(*words))

    def diff(self, body: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `diff` on a target whose check does `body`."""
        return self.run("diff", self.target(body), *words)


def _finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    with process:
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def fake_world(tmp_path: Path) -> FakeWorld:
    """A folder to work in, where the program's backend and check are fakes and nothing imports torch."""
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    (fakes / "torch.py").write_text(_FAKE_TORCH)
    (fakes / "sitecustomize.py").write_text(_FAKES)
    folder = tmp_path / "work"
    folder.mkdir()
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [str(fakes), root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    return FakeWorld(folder, environment)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Work in an empty folder; returns a function that writes files into it."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


def _beside(name: str) -> ModuleType:
    """A module of tests/traces, by its file: the tests run from anywhere, and are no package."""
    if name not in sys.modules:
        file = Path(__file__).parent / "traces" / f"{name.rpartition('.')[2]}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def made_up() -> Callable[[], MadeUp]:
    """Makes an empty made-up decode loop, to be filled and written down as a trace."""
    make: Callable[[], MadeUp] = _beside("made_up_traces.made_up").MadeUp
    return make


@pytest.fixture
def clean() -> Recorded:
    """The recording of the sound engine."""
    recorded: Recorded = _beside("made_up_traces.record_all").EXPECTED[0]
    return recorded


@pytest.fixture
def sizes() -> tuple[int, ...]:
    """Batch sizes of recordings, played in turn."""
    found: tuple[int, ...] = _beside("made_up_traces.record_all").SIZES
    return found


@pytest.fixture
def bucket() -> Callable[[int], int]:
    """The bucket of a batch size in recordings."""
    found: Callable[[int], int] = _beside("made_up_traces.record_all").bucket
    return found


def pytest_collection_finish() -> None:
    """Modules and tests stay: checks collect garbage many times, and each time would visit them all."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`pair` takes each made-up fault with its clean twin, `recorded` each variant that was recorded on a GPU."""
    if "recorded" in metafunc.fixturenames:
        variants = _beside("made_up_traces.record_all").EXPECTED
        metafunc.parametrize("recorded", variants, ids=[variant.name for variant in variants])
    if "pair" in metafunc.fixturenames:
        pairs = _beside("made_up_traces.scenarios").PAIRS
        metafunc.parametrize("pair", pairs.values(), ids=list(pairs))
