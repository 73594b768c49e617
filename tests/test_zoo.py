"""The permanent false-alarm suite: `diff`, `capture`, `inputs` and `audit --target` are silent on sound targets.

Emulated for all that have a CPU form; on a GPU for all, over five seeds, or 20 captures of the same steps.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudagraph_doctor.checks import CHECKS, Check, bucket_audit
from cudagraph_doctor.display import Display
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.examine_inputs import examine_inputs
from cudagraph_doctor.findings import Outcome, Severity, Status
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.loader import load
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.settings import Settings

ZOO = Path(__file__).parent / "zoo"
SHARED = {"__init__", "capturing", "paged", "paged_engine"}
NUMERICS = frozenset({"CGD107"})
"""Allowed everywhere: a padded batch may round differently from an exact one."""
RECAPTURES = 20
"""Captures of a target's steps that `inputs` compares on a GPU."""
UNSTABLE = NUMERICS | {"CGD001"}
"""Allowed where eager itself does not repeat."""
POISONED = ("constant_input", "incremental_block_table", "packed_inputs", "position_in_graph", "table_every_k_steps")
"""Sound targets that leave inputs alone, or whose inputs are laid out in their own way: all others on a GPU."""
UNSIZED = "above_largest_bucket"
"""Its keys tell no size: `audit --target` says so and measures nothing."""


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """One sound target, and what it needs and may draw."""

    file: str
    """Name of its file, without suffix."""
    needs_gpu: bool = False
    """It has no CPU form."""
    needs: str = ""
    """A module that must be there."""
    allowed_notes: frozenset[str] = NUMERICS
    """Codes that may appear as notes; none may appear as more."""


ENTRIES = (
    ZooEntry("above_largest_bucket"),
    ZooEntry("batch_dependent_rounding"),
    ZooEntry("branch_in_key"),
    ZooEntry("capture_only_stream"),
    ZooEntry("close_decision"),
    ZooEntry("compiled_submodule", needs_gpu=True, needs="triton"),
    ZooEntry("constant_input"),
    ZooEntry("dataclass_metadata"),
    ZooEntry("default_generator"),
    ZooEntry("default_staging"),
    ZooEntry("double_buffer"),
    ZooEntry("dropout"),
    ZooEntry("dummy_capture_values"),
    ZooEntry("empty_and_nested"),
    ZooEntry("engine_with_recapture"),
    ZooEntry("engine_without_recapture"),
    ZooEntry("evicting_engine"),
    ZooEntry("float_atomics", allowed_notes=UNSTABLE),
    ZooEntry("garbage_workspace", allowed_notes=NUMERICS | {"CGD002"}),
    ZooEntry("host_counters"),
    ZooEntry("host_planning"),
    ZooEntry("incremental_block_table"),
    ZooEntry("index_copy_state"),
    ZooEntry("kept_clone"),
    ZooEntry("lazy_cache"),
    ZooEntry("lazy_runner"),
    ZooEntry("metrics_counter", allowed_notes=NUMERICS | {"CGD002"}),
    ZooEntry("nan_outputs"),
    ZooEntry("nan_padding"),
    ZooEntry("nondeterministic_attention", needs_gpu=True, allowed_notes=UNSTABLE),
    ZooEntry("other_eager_kernel"),
    ZooEntry("output_dtypes"),
    ZooEntry("output_views"),
    ZooEntry("packed_inputs"),
    ZooEntry("piecewise"),
    ZooEntry("pinned_source", needs_gpu=True),
    ZooEntry("position_in_graph"),
    ZooEntry("prefill_interludes"),
    ZooEntry("raw_triton_kv", needs_gpu=True, needs="triton"),
    ZooEntry("registered_generator"),
    ZooEntry("reserved_slot"),
    ZooEntry("sampling_per_bucket"),
    ZooEntry("shared_pool_out_of_order"),
    ZooEntry("side_stream_joined"),
    ZooEntry("stale_tails"),
    ZooEntry("static_view_consumed"),
    ZooEntry("strided_inputs"),
    ZooEntry("table_every_k_steps"),
    ZooEntry("tied_weights"),
    ZooEntry("transformers_static_cache", needs_gpu=True, needs="transformers", allowed_notes=NUMERICS | {"CGD002"}),
    ZooEntry("undeclared_padding_row"),
    ZooEntry("upper_bound_scalar"),
    ZooEntry("weight_update"),
)


def looked_at(entry: ZooEntry, check: str, backend: Backend, seed: int, recaptures: int = 0) -> Outcome:
    """Load the target under the backend's hooks and run the check on it."""
    if entry.needs and importlib.util.find_spec(entry.needs) is None:
        pytest.skip(f"{entry.needs} is not installed")
    module: Check = importlib.import_module(f"cudagraph_doctor.checks.{CHECKS[check]}")
    spec = str(ZOO / f"{entry.file}.py")
    settings = Settings(check=check, spec=spec, target_args={"seed": str(seed)}, seed=seed, recaptures=recaptures)
    with backend.installed():
        loaded = load(settings, backend.device)
        return module.run(loaded.target, backend, settings, Silent())


def measured(entry: ZooEntry, backend: Backend) -> Outcome:
    """What `audit --target` measures."""
    if entry.needs and importlib.util.find_spec(entry.needs) is None:
        pytest.skip(f"{entry.needs} is not installed")
    settings = Settings(check="audit", spec=str(ZOO / f"{entry.file}.py"), target_args={"seed": "0"})
    with backend.installed():
        return bucket_audit.run_on_target(load(settings, backend.device).target, backend, settings, Silent())


def poisoned(entry: ZooEntry, backend: str, in_process: bool) -> Outcome:
    """`inputs --poison` as the command line runs it."""
    if entry.needs and importlib.util.find_spec(entry.needs) is None:
        pytest.skip(f"{entry.needs} is not installed")
    spec = str(ZOO / f"{entry.file}.py")
    settings = Settings("inputs", spec, {"seed": "0"}, backend=backend, poison=True, in_process=in_process)
    report, _ = examine_inputs(settings, Display())
    (outcome,) = report.outcomes
    return outcome


def assert_measured_silent(entry: ZooEntry, backend: Backend) -> None:
    """Nothing above a note, and batches really compared; or refused in words."""
    if entry.file == UNSIZED:
        with pytest.raises(Inconclusive, match="has a key that tells its size"):
            measured(entry, backend)
        return
    outcome = measured(entry, backend)
    assert not [f"{f.code} {f.message}" for f in outcome.findings if f.severity is not Severity.NOTE]
    assert outcome.status is Status.PASSED, outcome.reason
    assert outcome.checked["batches"] > 0


def assert_silent(entry: ZooEntry, outcome: Outcome) -> None:
    """Nothing above a note, only the notes allowed, and really judged."""
    loud = [f"{f.code} {f.message}" for f in outcome.findings if f.severity is not Severity.NOTE]
    assert not loud
    assert {finding.code for finding in outcome.findings} <= entry.allowed_notes
    assert outcome.status is Status.PASSED, outcome.reason


def test_every_file_of_the_zoo_has_an_entry() -> None:
    files = {path.stem for path in ZOO.glob("*.py")} - SHARED
    assert files == {entry.file for entry in ENTRIES}


@pytest.mark.parametrize("check", ["diff", "capture", "inputs"])
@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.needs_gpu], ids=lambda e: e.file)
def test_silent_emulated(entry: ZooEntry, check: str) -> None:
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    assert_silent(entry, looked_at(entry, check, EmulatedBackend(), seed=0))


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.file in POISONED], ids=lambda e: e.file)
def test_poisoned_silent_emulated(entry: ZooEntry) -> None:
    assert_silent(entry, poisoned(entry, "emulated", in_process=True))


@pytest.mark.gpu
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.file)
def test_poisoned_silent_on_the_gpu(entry: ZooEntry) -> None:
    """In children: poison that ends one is said, and the zoo has to bear it."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    outcome = poisoned(entry, "cuda", in_process=False)
    assert_silent(entry, outcome)
    assert not any(sentence.startswith("what poisoned inputs show") for sentence in outcome.not_checked)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.needs_gpu], ids=lambda e: e.file)
def test_measured_silent_emulated(entry: ZooEntry) -> None:
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    assert_measured_silent(entry, EmulatedBackend())


@pytest.mark.gpu
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.file)
def test_measured_silent_on_the_gpu(entry: ZooEntry) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    from cudagraph_doctor.graph.cuda import CudaBackend

    assert_measured_silent(entry, CudaBackend())


@pytest.mark.gpu
@pytest.mark.parametrize(("check", "seed"), [*(("diff", seed) for seed in range(5)), ("capture", 0), ("inputs", 0)])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.file)
def test_silent_on_the_gpu(entry: ZooEntry, check: str, seed: int) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    from cudagraph_doctor.graph.cuda import CudaBackend

    outcome = looked_at(entry, check, CudaBackend(), seed, RECAPTURES)
    assert_silent(entry, outcome)
    if check == "inputs" and not any("captured anew" in sentence for sentence in outcome.not_checked):
        assert outcome.checked["captures compared"] >= RECAPTURES
