"""Settings cross to the child as JSON and come out the same."""

from __future__ import annotations

import dataclasses
import json

from cudagraph_doctor.settings import Settings, Tolerance

EVERYTHING = Settings(
    check="diff",
    spec="serving/decode.py:step",
    target_args={"layers": "2"},
    fault="seq-lens-rebound",
    twin=True,
    backend="emulated",
    steps=3,
    buckets=(1, 4),
    batch_sizes=(4, 3, 1),
    exhaustive=True,
    quick=True,
    seed=7,
    tolerances={"": Tolerance(1e-2, 0.0), "logits": Tolerance(0.0, 0.5)},
    values=False,
    history="history.json",
    recaptures=20,
    poison=True,
    memory_margin=1 << 20,
    app_dir="/src",
    timeout_s=60.0,
    in_process=True,
    debug=True,
)


def through_json(settings: Settings) -> Settings:
    return Settings.from_json(json.loads(json.dumps(settings.to_json())))


def test_survive_json() -> None:
    assert through_json(EVERYTHING) == EVERYTHING
    assert through_json(Settings(check="diff")) == Settings(check="diff")


def test_the_example_sets_every_field() -> None:
    defaults = dataclasses.asdict(Settings(check=""))
    assert [name for name, value in dataclasses.asdict(EVERYTHING).items() if value == defaults[name]] == []
