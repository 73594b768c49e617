"""Reads a configuration file (YAML, TOML or JSON) and tells whose it is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from cudagraph_doctor.audit.engines import nano_vllm, plain, sglang, tensorrt_llm, vllm
from cudagraph_doctor.audit.engines.rule import Asked, Rule
from cudagraph_doctor.audit.fields import Fields
from cudagraph_doctor.audit.keys import Configuration
from cudagraph_doctor.errors import UsageError

Read = Callable[[Fields, Asked], Configuration]

ENGINES: dict[str, Read] = {
    vllm.NAME: vllm.read,
    sglang.NAME: sglang.read,
    tensorrt_llm.NAME: tensorrt_llm.read,
    nano_vllm.NAME: nano_vllm.read,
    plain.NAME: plain.read,
}
"""What `--engine` takes."""
RULES: dict[str, tuple[Rule, ...]] = {
    vllm.NAME: vllm.RULES,
    sglang.NAME: sglang.RULES,
    tensorrt_llm.NAME: tensorrt_llm.RULES,
    nano_vllm.NAME: nano_vllm.RULES,
    plain.NAME: (),
}
"""Default rules by engine; the last is the newest."""
MOST_REQUESTS = 65_536
_MARKS = {
    plain.NAME: ("buckets", "sets", "max_batch", "piecewise"),
    sglang.NAME: ("cuda_graph_bs", "cuda_graph_max_bs", "max_running_requests", "disable_cuda_graph"),
    tensorrt_llm.NAME: ("cuda_graph_config", "max_batch_size"),
    vllm.NAME: ("compilation_config", "cudagraph_capture_sizes", "max_cudagraph_capture_size", "max_num_seqs"),
}
"""Options that only this engine has."""


def load(file: Path, engine: str, asked: Asked) -> Configuration:
    """The keys of a configuration file.

    Args:
        file: YAML, TOML or JSON, by its suffix; YAML where that says nothing.
        engine: one of `ENGINES`, or "" to tell by the options.
        asked: what the command line says beside it.

    Raises:
        UsageError: it cannot be read, is nobody's, or an option in it is none.
    """
    return of_options(file.name, contents(file), engine, asked)


def of_options(where: str, options: Mapping[str, Any], engine: str, asked: Asked) -> Configuration:
    """The keys of options that were read; `where` names them in errors."""
    options = {str(name).replace("-", "_"): value for name, value in options.items()}
    named = options.pop("engine", None)
    chosen = engine or (str(named) if named is not None else "") or _told_by(where, options)
    if chosen not in ENGINES:
        raise UsageError(f'{where}: there is no engine "{chosen}".', fix=f"Known: {', '.join(ENGINES)}.")
    made = ENGINES[chosen](Fields(where, options), asked)
    most = max(keys.most for keys in made.sets)
    if most > MOST_REQUESTS:
        raise UsageError(
            f"{where}: {most} requests at once are more than the audit goes through ({MOST_REQUESTS}).",
            fix="Give the most requests that one engine decodes together.",
        )
    return made


def under_other_rules(
    where: str, options: Mapping[str, Any], configuration: Configuration, asked: Asked
) -> list[Configuration]:
    """The same options under the other rules of the engine's released versions, where a rule was assumed."""
    if not configuration.rule_assumed:
        return []
    others = [rule.name for rule in RULES[configuration.engine] if rule.released and rule.name != configuration.rule]
    return [of_options(where, options, configuration.engine, Asked(name, asked.max_batch)) for name in others]


def contents(file: Path) -> dict[str, Any]:
    """The options of a file. Raises UsageError if it cannot be read or holds something else."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f'The configuration "{file}" cannot be read: {error.strerror}.', fix="Name another.") from None
    except UnicodeDecodeError:
        raise UsageError(f'"{file}" is no text file.', fix="Give a configuration in YAML, TOML or JSON.") from None
    try:
        if file.suffix == ".toml":
            found: Any = tomllib.loads(text)
        else:
            found = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        kind = {".toml": "TOML", ".json": "JSON"}.get(file.suffix, "YAML")
        raise UsageError(
            f'"{file}" is no {kind}.',
            seen=" ".join(str(error).split())[:200],
            fix="Correct it, or name its kind by its suffix.",
        ) from None
    if isinstance(found, list):
        found = {"buckets": found}
    if not isinstance(found, dict) or not found:
        raise UsageError(f'"{file}" holds no options.', fix="Give a file with buckets: [1, 2, 4, 8], or an engine's.")
    return {str(name): value for name, value in found.items()}


def _told_by(where: str, options: Mapping[str, Any]) -> str:
    found = [name for name, marks in _MARKS.items() if any(mark in options for mark in marks)]
    if len(found) == 1:
        return found[0]
    seen = f"options of {' and '.join(found)}" if found else f"the options {', '.join(sorted(options)[:8])}"
    raise UsageError(
        f"{where}: it cannot be told which engine's configuration it is.",
        seen=seen,
        fix=f"Say it: --engine {'|'.join(ENGINES)}.",
    )
