"""The scripts that show a fault: which are made, what is in them; they exit 1 on the fault and 0 on its twin."""

from __future__ import annotations

import ast
import gc
import os
import runpy
import subprocess
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.reference_models.faults import FAULTS
from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS, SEEN_BY_INPUTS
from cudagraph_doctor.replays import repro
from cudagraph_doctor.replays.model import History, Measured, Replay, Run
from cudagraph_doctor.skeletons import repro_engine, repro_loop

ROOT = Path(repro.__file__).resolve().parents[2]
FINDING = Finding(
    "CGD301",
    'slots is "never" refreshed',
    Severity.ERROR,
    Proof.CONFIRMED,
    "copy it",
    Culprit("input", "slots"),
    step=2,
    key="4",
)


def history(target: str, form: str, fault: str = "", **arguments: str) -> History:
    """A plan over batch sizes that shrink and grow; what was seen was seen at its end."""
    order = [(0, 4), (1, 3), (2, 3), (3, 4), (4, 3), (5, 4)]
    replays = tuple(Replay(i, step, rows, "4", (0,)) for i, (step, rows) in enumerate(order))
    return History(Run(target, form, "cuda", arguments=arguments, fault=fault), replays=replays)


def script(told: History, finding: Finding, folder: Path) -> Path:
    [file] = repro.write(folder, repro.scripts(told, [finding], folder))
    return file


def planted(fault: str, form: str, twin: bool, folder: Path) -> Path:
    told = history(f"reference:{form}", form, fault + (" (twin)" if twin else ""), preset="tiny")
    return script(told, replace(FINDING, step=5), folder)


def emulated(file: Path) -> int:
    with EmulatedBackend().installed():
        code: int = runpy.run_path(str(file))["main"]()
    return code


def on_a_gpu(file: Path) -> tuple[int, str]:
    """Exit code, and all there is to know about it."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(file)], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )
    told = {0: "All replays are as eager steps.", 1: "Replays differ from eager steps."}.get(done.returncode)
    assert told is not None and done.stdout.splitlines()[-1:] == [told], everything(file, done)
    return done.returncode, everything(file, done)


def everything(file: Path, done: subprocess.CompletedProcess[str]) -> str:
    """For whoever reads why a test failed, perhaps without a GPU of his own."""
    return f"exit code {done.returncode}\n-- script\n{file.read_text()}\n-- out\n{done.stdout}\n-- err\n{done.stderr}"


ALL = [(name, (FAULTS | INPUT_FAULTS)[name].forms[0]) for name in SEEN_BY_INPUTS]
VISIBLE = [(name, form) for name, form in ALL if (FAULTS | INPUT_FAULTS)[name].emulated]
ONLY_BY_CHANCE = {"captured-buffer-freed", "workspace-uninitialised"}
"""Right as long as the memory holds what it should by chance: a script may exit 0."""


@pytest.mark.parametrize(("name", "form"), VISIBLE)
def test_a_script_shows_the_fault_emulated(name: str, form: str, tmp_path: Path) -> None:
    assert emulated(planted(name, form, False, tmp_path)) == 1


@pytest.mark.parametrize(("name", "form"), ALL)
def test_a_script_shows_nothing_on_the_twin_emulated(name: str, form: str, tmp_path: Path) -> None:
    assert emulated(planted(name, form, True, tmp_path)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize(("name", "form"), ALL)
def test_a_script_shows_the_fault_on_a_gpu(name: str, form: str, twin: bool, tmp_path: Path) -> None:
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    if name == "triton-scale-by-value":
        pytest.importorskip("triton", reason="needs Triton")
    code, told = on_a_gpu(planted(name, form, twin, tmp_path))
    assert code == (0 if twin else 1) or (name in ONLY_BY_CHANCE and not twin), told


@pytest.mark.parametrize("script", [repro_engine, repro_loop])
def test_integers_count_where_floats_are_not_rounded(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = {"logits": torch.tensor([1.0, 2.0]), "done": torch.tensor([True, False])}
    late = {**truth, "done": torch.tensor([True, True])}
    rounded = {**late, "logits": torch.tensor([1.0, 2.001])}
    assert script.differences(truth, truth) == script.differences(rounded, truth) == []
    assert script.differences(late, truth) == ["done differs by up to 1 of its largest value"]
    assert script.differences({**late, "logits": -late["logits"]}, truth)[0].startswith("logits differs by up to 2 of")
    monkeypatch.setattr(script, "LOOK_AT", ("done",))
    assert script.differences(rounded, truth) == ["done differs by up to 1 of its largest value"]


def test_a_buffer_that_is_rebound_stays_as_it_was_captured() -> None:
    class Rebinding:
        def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
            return {"x": torch.full((n,), float(step))}

        def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            return inputs["x"] * 2

        def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
            static["x"] = fresh["x"].clone()

    with EmulatedBackend().installed():
        player = repro_loop.Player(Rebinding())
        _, static, _ = player.capture(4)
        captured = weakref.ref(static["x"])
        player.stage(static, player.inputs(0, 4), 4, False)
        gc.collect()
        assert captured() is not None and static["x"] is not captured()


def test_without_a_gpu_a_script_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    for form in ("loop", "engine"):
        file = planted("", form, False, tmp_path)
        done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (2, "This needs a CUDA GPU.\n")


# a user's own target

TARGET = """
import torch
from sibling import SCALE


class Target:
    buckets = [4]

    def __init__(self, device, seed, width=4, name="x"):
        assert (seed, width, name) == (3, 8, "wide one")
        self.device = device

    def next_inputs(self, step, n):
        return {"x": torch.full((n, 8), float(step)), "rows": [torch.arange(n)]}

    def forward(self, inputs):
        return inputs["x"] * SCALE + inputs["rows"][0].unsqueeze(1)

    def reset(self):
        pass


class Faulty(Target):
    def update(self, static, fresh):
        static["rows"][0][: len(fresh["rows"][0])].copy_(fresh["rows"][0])


class inner:
    made = Faulty
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "serve_it.py").write_text(TARGET)
    (tmp_path / "sibling.py").write_text("SCALE = 2.0\n")
    package = tmp_path / "served"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "deep.py").write_text(TARGET.replace("from sibling import SCALE", "from .scale import SCALE"))
    (package / "scale.py").write_text("SCALE = 2.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("serve_it", "sibling", "served", "served.deep", "served.scale"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("serve_it:Faulty", 1),
        ("serve_it:Target", 0),
        ("serve_it:inner.made", 1),
        ("serve_it.py:Faulty", 1),
        ("served/deep.py:Faulty", 1),
        ("served.deep:Faulty", 1),
        ("served/deep.py:Target", 0),
    ],
)
def test_targets_are_made_as_the_doctor_makes_them(spec: str, code: int, project: Path) -> None:
    told = history(spec, "loop", width="8", name="wide one")
    told = replace(told, run=replace(told.run, seed=3))
    assert emulated(script(told, FINDING, project)) == code


# which scripts, and what is in them


def test_a_script_stands_alone_and_tells_what_was_found(tmp_path: Path) -> None:
    file = planted("slot-mapping-not-copied", "loop", False, tmp_path)
    text = file.read_text()
    about = ast.get_docstring(ast.parse(text)) or ""
    assert about.startswith('CGD301: slots is "never" refreshed\n')
    command = "inputs reference:loop --backend cuda --seed 0 --target-arg preset=tiny --fault slot-mapping-not-copied"
    assert command in about
    imported = {name.split(".")[0] for name in ast_imports(text)}
    assert imported - set(sys.stdlib_module_names) == {"torch", "cudagraph_doctor"}  # the latter: the bundled target
    assert len(text.splitlines()) < 200


def ast_imports(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def plan(repros: list[repro.Repro]) -> list[tuple[int, ...]]:
    namespace = ast.parse(repros[0].text)
    [value] = [n.value for n in namespace.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "PLAN"]
    found: list[tuple[int, ...]] = ast.literal_eval(value)
    return found


def test_the_plan_ends_where_the_fault_shows(tmp_path: Path) -> None:
    told = history("reference:loop", "loop")
    assert plan(repro.scripts(told, [FINDING], tmp_path)) == [(0, 4, 4), (1, 3, 4), (2, 3, 4)]
    later = replace(told, replays=tuple(replace(r, harm_step=4) if r.step == 2 else r for r in told.replays))
    assert len(plan(repro.scripts(later, [FINDING], tmp_path))) == 5
    assert len(plan(repro.scripts(told, [replace(FINDING, step=None)], tmp_path))) == 6
    assert plan(repro.scripts(history("reference:engine", "engine"), [FINDING], tmp_path))[1] == (1, 3)


def test_long_plans_are_wrapped(tmp_path: Path) -> None:
    told = history("reference:loop", "loop")
    told = replace(told, replays=tuple(replace(told.replays[0], index=i, step=i) for i in range(40)))
    [made] = repro.scripts(told, [replace(FINDING, step=39)], tmp_path)
    assert max(map(len, made.text.splitlines())) <= 120 and len(plan([made])) == 40


def test_outputs_to_look_at_are_those_that_differed(tmp_path: Path) -> None:
    told = history("reference:loop", "loop")
    shown = Measured(5, 5, 0, 5, "tokens: 3 of 4 values differ")
    told = replace(told, replays=tuple(replace(r, against_eager=shown) for r in told.replays))
    [made] = repro.scripts(told, [FINDING], tmp_path)
    assert "LOOK_AT: tuple[str, ...] = ('tokens',)" in made.text


def test_only_what_is_confirmed_gets_a_script(tmp_path: Path) -> None:
    told = history("reference:loop", "loop")
    others = [replace(FINDING, proof=Proof.MEASURED), replace(FINDING, severity=Severity.NOTE)]
    assert repro.scripts(told, others, tmp_path) == []
    assert repro.scripts(replace(told, replays=()), [FINDING], tmp_path) == []
    assert repro.scripts(history("serve:x", "loop with its own runner"), [FINDING], tmp_path) == []


def test_names_of_files(tmp_path: Path) -> None:
    told = history("reference:loop", "loop")
    findings = [FINDING, FINDING, replace(FINDING, culprit=None), replace(FINDING, culprit=Culprit("a", "b, c (d)"))]
    made = repro.scripts(told, findings, tmp_path)
    assert [r.name for r in made] == ["CGD301_slots.py", "CGD301_slots1.py", "CGD301.py", "CGD301_b_c_d.py"]


def test_what_is_in_a_message_cannot_leave_the_docstring(tmp_path: Path) -> None:
    told = history("reference:loop", "loop")
    [made] = repro.scripts(told, [replace(FINDING, message='"""\nraise SystemExit(9)\n"""\\')], tmp_path)
    assert (ast.get_docstring(ast.parse(made.text)) or "").startswith("CGD301: '''")


def test_the_command(tmp_path: Path) -> None:
    run = Run("serve.py:make it", "loop", "cuda", seed=4, arguments={"name": "a b"}, fault="x (twin)")
    assert repro.command(run) == (
        "cudagraph-doctor inputs 'serve.py:make it' --backend cuda --seed 4 --target-arg 'name=a b' --fault x --twin"
    )


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        repro.write(tmp_path / "file", [repro.Repro("a.py", "")])
