"""`audit --target` on the command line: what goes together, what crosses to the child."""

from __future__ import annotations

import pytest

from cudagraph_doctor import cli, examine_measured
from cudagraph_doctor.audit.job import Job
from cudagraph_doctor.findings import Report
from cudagraph_doctor.settings import Settings

Asked = list[tuple[Settings, Job]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What would be measured; nothing is."""
    found: Asked = []

    def note(settings: Settings, job: Job, *_: object) -> tuple[Report, str]:
        found.append((settings, job))
        return Report({"name": "", "version": ""}, {}, {"spec": ""}, ()), ""

    monkeypatch.setattr(examine_measured, "examine_measured", note)
    return found


def test_what_crosses(asked: Asked) -> None:
    words = ["--target", "reference", "--buckets", "1,4", "--memory-margin", "2GiB", "-a", "preset=tiny", "--seed", "3"]
    cli.main(["audit", *words, "--backend", "emulated", "--max-batch", "9", "--kv-bytes-per-token", "64"])
    [(settings, job)] = asked
    assert settings == Settings(
        "audit",
        "reference",
        target_args={"preset": "tiny"},
        backend="emulated",
        buckets=(1, 4),
        seed=3,
        memory_margin=2 << 30,
    )
    assert (job.sources, job.max_batch, job.kv_bytes_per_token) == ((), 9, 64)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--buckets", "1", "--max-batch", "1", "--save-costs", "c.json"], "--save-costs is for --target"),
        (["--buckets", "1", "--max-batch", "1", "--backend", "cuda"], "--backend is for --target"),
        (["--target", "reference", "engine.yaml"], "a CONFIGURATION and --target reference do not go together"),
        (["--target", "reference", "--costs", "c.json"], "--costs and --target reference do not go together"),
        (["--target", "reference", "--buckets", "1,2/1,4"], "is one list"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], said: str, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert asked == []
