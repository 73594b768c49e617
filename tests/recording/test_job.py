"""A job survives the way to the child."""

from __future__ import annotations

from cudagraph_doctor.recording.job import Job
from cudagraph_doctor.settings import Settings


def test_both_ways() -> None:
    job = Job(
        Settings("record", "a.py", {"x": "1"}, batch_sizes=(1, 3), seed=7), "torch", "/tmp/t.json.gz", ranges=False
    )
    assert Job.loads(job.dumps()) == job
    assert "\n" not in job.dumps()
