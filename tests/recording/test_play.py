"""The plan of a recording, and what the child says where it cannot play."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from cudagraph_doctor.recording.job import Job
from cudagraph_doctor.recording.play import MARK, plan
from cudagraph_doctor.settings import Settings


def rows(target: object, **settings: object) -> list[int]:
    return [n for _, n in plan(target, Settings("record", steps=5, **settings))]  # type: ignore[arg-type]


def test_plan() -> None:
    assert rows(SimpleNamespace(batch_sizes=(2, 7))) == [2, 7, 2, 7, 2]
    assert rows(SimpleNamespace(batch_sizes=(2, 7)), batch_sizes=(3,)) == [3] * 5
    assert rows(SimpleNamespace(buckets=[4, 1])) == [1, 3, 4, 1, 3]
    assert rows(SimpleNamespace()) == [1, 2, 3, 4, 5]


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it can play")
def test_without_a_gpu_it_says_so() -> None:
    job = Job(Settings("record", "reference:engine"), "nsys")
    done = subprocess.run(
        [sys.executable, "-m", "cudagraph_doctor.recording.play", job.dumps()], capture_output=True, text=True
    )
    assert done.returncode == 1
    told = json.loads(done.stderr.splitlines()[-1].removeprefix(MARK))
    assert told["what"] == "A trace of the target needs a GPU." and told["exit_code"] == 3
