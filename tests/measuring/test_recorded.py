"""What was predicted from keys measured on a GPU, against what `buckets` saw in a trace of the same batches."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cudagraph_doctor.audit.costs import CostTable
from cudagraph_doctor.audit.job import Job, Source
from cudagraph_doctor.checks import bucket_audit
from cudagraph_doctor.progress import Silent

POINT = 0.01


def recorder(name: str = "record_audit") -> ModuleType:
    """tests/record_audit.py or another one, which is no package's."""
    file = Path(__file__).resolve().parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


RUNS = {run.name: run for run in recorder().RUNS}


def loaded(name: str) -> dict[str, Any]:
    if not recorder().file_of(name).exists():
        pytest.skip("nothing was recorded on a GPU yet: python tests/record_audit.py")
    found: dict[str, Any] = recorder().load(name)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_predicted_within_a_point_of_what_was_seen(name: str, tmp_path: Path) -> None:
    recorded = loaded(name)
    workload = tmp_path / "workload.csv"
    workload.write_text("batch\n" + "".join(f"{batch}\n" for batch in recorded["batches"]))
    costs = CostTable.from_json(recorded["costs"])
    source = Source("recorded", {"buckets": list(costs.sizes), "max_batch": recorder().MOST})
    _, outcome = bucket_audit.run(Job((source,), workload=workload, costs=costs), Silent())
    [predicted] = outcome.checked["summary"]["configurations"][0]["sets"]
    seen = recorded["seen"]
    assert seen["steps"] == len(recorded["batches"])
    assert seen["steps_of_unknown_padding"] == 0
    assert predicted["traffic"]["hit_rate"] == pytest.approx(seen["hit_rate"], abs=POINT)
    assert predicted["traffic"]["padding_share"] == pytest.approx(seen["padding_share"], abs=POINT)
    for number in ("hit_rate", "padding_share"):
        assert predicted["traffic"][number] == pytest.approx(recorded["predicted"][number], abs=1e-6), "as it was then"


@pytest.mark.parametrize("name", RUNS)
def test_all_keys_were_measured(name: str) -> None:
    keys = CostTable.from_json(loaded(name)["costs"]).keys
    for key in keys:
        assert None not in (
            key.eager_ms,
            key.nodes,
            key.capture_ms,
            key.instantiate_ms,
            key.graph_bytes,
            key.pool_bytes,
        )


def test_some_batches_of_one_run_have_no_key() -> None:
    """Else a hit rate of 1 would be all that is predicted."""
    above = [batch for batch in RUNS["short-list"].batches() if batch > 8]
    assert 0.2 < len(above) / len(RUNS["short-list"].batches()) < 0.5
    assert set(RUNS["reference"].batches()) == set(range(1, recorder().MOST + 1))


def test_tables_of_the_docs() -> None:
    time = {"median_ms": 0.5}
    key = {"size": 8, "nodes": 9, "capture_ms": 3.0, "instantiate_ms": 1.0, "replay": time, "padded_rows": 5}
    key |= {"padded": time, "eager": {"median_ms": 2.0}, "graph_bytes": 1 << 20, "pool_bytes": 2 << 20}
    pools = {"as_captured": 2 << 20, "smallest_first": 3 << 20}
    shares = {"hit_rate": 1.0, "padding_share": 0.125}
    made_up = {"measured": {"keys": [key], "pools": pools}, "spec": "here", "predicted": shares}
    made_up["seen"] = {**shares, "steps": 300}
    assert recorder().keys_table(made_up).splitlines()[2] == (
        "| 8 | 9 | 3 ms | 1 ms | 0.5 ms | 0.5 ms (5 rows) | 2 ms | 1 MiB | 2 MiB |"
    )
    assert (
        recorder().pools_sentence(made_up).startswith("One pool, the largest key first: 2 MiB; the smallest first: 3")
    )
    assert recorder().runs_table({"a": made_up}).splitlines()[2] == (
        "| `here` | 300 | 100.00% | 100.00% | 12.50% | 12.50% |"
    )


@pytest.mark.parametrize("script", ["record_audit", "record_checkup"])
def test_children_of_recorders_find_what_the_caller_finds(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "only_here.py").write_text("")
    asked = (
        "import cudagraph_doctor, json, only_here; print(json.dumps([cudagraph_doctor.__file__, only_here.__file__]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path,
        env=recorder(script).environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    ours = Path(__file__).resolve().parents[2] / "cudagraph_doctor" / "__init__.py"
    assert json.loads(done.stdout) == [str(ours), str(tmp_path / "only_here.py")]
