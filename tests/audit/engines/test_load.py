"""Files of all kinds, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_doctor.audit.engines import load
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.keys import Configuration
from cudagraph_doctor.errors import UsageError


def read(folder: Path, text: str, name: str = "f.yaml", engine: str = "") -> Configuration:
    file = folder / name
    file.write_text(text)
    return load.load(file, engine, Asked())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.yaml", "buckets: [1, 2]\nmax_batch: 2\n"),
        ("f.toml", "buckets = [1, 2]\nmax_batch = 2\n"),
        ("f.json", '{"buckets": [1, 2], "max_batch": 2}'),
        ("f.conf", "\ufeffbuckets: [1, 2]\nmax-batch: 2\n"),
    ],
)
def test_kinds_of_files(name: str, text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text, name).sets[0].full == (1, 2)


def test_a_bare_list(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("[1, 2, 4]")
    assert load.load(tmp_path / "f.yaml", "", Asked(max_batch=4)).sets[0].full == (1, 2, 4)


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("max_num_seqs: 4", "vllm"),
        ("cuda_graph_max_bs: 4\nmax_running_requests: 4", "sglang"),
        ("cuda_graph_config: {}", "tensorrt-llm"),
        ("engine: nano-vllm\nmax_num_seqs: 4", "nano-vllm"),
        ("buckets: [1]\nmax_batch: 1", "plain"),
    ],
)
def test_whose_it_is(text: str, engine: str, tmp_path: Path) -> None:
    assert read(tmp_path, text).engine == engine


def test_the_command_line_wins(tmp_path: Path) -> None:
    assert read(tmp_path, "max_num_seqs: 4", engine="nano-vllm").engine == "nano-vllm"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no options"),
        ("{}", "holds no options"),
        ("just words", "holds no options"),
        (": : [", "is no YAML"),
        ("a: b\n", "cannot be told which engine's"),
        ("max_num_seqs: 4\ncuda_graph_max_bs: 3\n", "cannot be told which engine's"),
        ("buckets: [1]\nmax_batch: 65537\n", "more than the audit goes through"),
        ("engine: vlm\nmax_num_seqs: 4\n", "there is no engine"),
    ],
)
def test_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        read(tmp_path, text)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load.load(tmp_path / "none.yaml", "", Asked())
    (tmp_path / "f.yaml").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(UsageError, match="is no text file"):
        load.load(tmp_path / "f.yaml", "", Asked())


def test_broken_toml_and_json(tmp_path: Path) -> None:
    for name, kind in (("f.toml", "TOML"), ("f.json", "JSON")):
        with pytest.raises(UsageError, match=f"is no {kind}"):
            read(tmp_path, "[", name)


def test_other_released_rules_where_one_was_assumed() -> None:
    options = {"max_num_seqs": 100}
    made = load.of_options("f", options, "vllm", Asked())
    assert [other.rule for other in load.under_other_rules("f", options, made, Asked())] == ["vllm-30330", "vllm-50488"]
    named = load.of_options("f", options, "vllm", Asked("vllm-57355"))
    assert load.under_other_rules("f", options, named, Asked("vllm-57355")) == []
    nano = load.of_options("f", options, "nano-vllm", Asked())
    assert load.under_other_rules("f", options, nano, Asked()) == [], "a proposed rule is nobody's"
