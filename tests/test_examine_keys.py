"""A job -> the report around the audit."""

from __future__ import annotations

from cudagraph_doctor.audit.job import Job, Source
from cudagraph_doctor.examine_keys import examine_keys
from cudagraph_doctor.findings import report_from_json, to_json

JOB = Job(
    (Source("a.yaml", {"buckets": [1, 2], "max_batch": 2}), Source("b.yaml", {"buckets": [2, 1], "max_batch": 2}))
)


def test_the_report() -> None:
    report, emitted = examine_keys(JOB, "")
    assert emitted == "" and report.target == {"spec": "a.yaml b.yaml"}
    assert report.settings["check"] == "audit" and report.tool["name"] == "cudagraph-doctor"
    assert report_from_json(to_json(report)) == report


def test_with_a_list_to_write() -> None:
    assert examine_keys(JOB, "yaml")[1] == "buckets: [1, 2]\nmax_batch: 2\n"
