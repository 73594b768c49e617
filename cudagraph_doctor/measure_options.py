"""The options of `audit --target`: which target is measured, and where its costs go."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cudagraph_doctor import audit_values, options
from cudagraph_doctor.command_options import Command, making_options, on_command_line, reads
from cudagraph_doctor.settings import Settings

_MAKING = ("fault", "twin", "app_dir", "backend", "in_process")
_ONLY = (*_MAKING, "target_arg", "timeout", "memory_margin", "save_costs", "batch_sizes")
"""Options that mean nothing without --target."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """A target to be measured."""

    settings: Settings
    save: Path | None
    """Where the costs are written."""


def measure_options(command: Command) -> Command:
    """All of them; the command gets them as `measuring`, None without --target."""

    @functools.wraps(command)
    def measured(*arguments: Any, **others: Any) -> Any:
        own = {name: others.pop(name) for name in ("target", *_ONLY)}
        return command(*arguments, measuring=_measuring(own), **others)

    own = (
        click.option("--target", default="", metavar="SPEC", help="Measure this target's keys, named as for `diff`."),
        click.option(
            "--save-costs",
            metavar="FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            help="With --target: write the costs, for --costs.",
        ),
        click.option(
            "--memory-margin",
            default="1GiB",
            show_default=True,
            metavar="BYTES",
            callback=reads(audit_values.in_bytes),
            help="With --target: device memory that stays free; no key is captured below it.",
        ),
        click.option(
            "--batch-sizes",
            metavar="N,N,...",
            callback=reads(options.sizes),
            help="With --target, an engine: the batches to play. Default: its own.",
        ),
    )
    wrapped = making_options(measured)
    for option in reversed(own):
        wrapped = option(wrapped)
    return wrapped


def _measuring(own: dict[str, Any]) -> Measuring | None:
    context = click.get_current_context()
    if not own["target"]:
        for name in _ONLY:
            if on_command_line(context, name):
                raise click.UsageError(f"--{name.replace('_', '-')} is for --target, which is not given.")
        return None
    lists = context.params["buckets"]
    if len(lists) > 1:
        raise click.UsageError("--buckets with --target is one list: the keys of the target to measure.")
    return Measuring(
        Settings(
            "audit",
            own["target"],
            buckets=lists[0] if lists else (),
            target_args=own["target_arg"],
            batch_sizes=own["batch_sizes"],
            seed=context.params["seed"],
            memory_margin=own["memory_margin"],
            timeout_s=own["timeout"],
            values=not context.params["no_values"],
            debug=context.params["debug"],
            **{name: own[name] for name in _MAKING},
        ),
        own["save_costs"],
    )
