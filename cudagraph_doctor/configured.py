"""What pyproject.toml says, for callers without a command line: settings and demands, parsed as the command does."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import click

from cudagraph_doctor import command_options, options, pyproject
from cudagraph_doctor.cli import cli
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.gate.judge import Demands
from cudagraph_doctor.settings import Settings
from cudagraph_doctor.spec import near

_FIELDS = {field.name for field in dataclasses.fields(Settings)}


def configured(check: str, folder: Path) -> tuple[Settings, Demands]:
    """What holds for a check of targets in `folder`, where its pyproject.toml is. Raises UsageError if it is no use."""
    on_spec = {"spec", "backend"}
    of_targets = [name for name, command in cli.commands.items() if on_spec <= {p.name for p in command.params}]
    if check not in of_targets:
        raise UsageError(
            f'There is no check "{check}" that takes a target.{near(check, of_targets)}',
            fix=f"Use one of: {', '.join(of_targets)}.",
        )
    command = cli.commands[check]
    with contextlib.chdir(folder):
        configuration = pyproject.read(command_options.keys(cli.commands))
        defaults = command_options.default_map(cli.commands, configuration)[check]
        try:
            context = command.make_context(check, [], default_map=defaults, obj=configuration)
        except click.ClickException as error:
            raise UsageError(
                f"[{pyproject.TABLE}] in {pyproject.FILE} is not usable: {error.format_message()}",
                fix=f"Mend it; `cudagraph-doctor {check} --show-settings` shows what holds.",
            ) from None
        with context:
            given = context.params
            settings = Settings(
                **{name: value for name, value in given.items() if name in _FIELDS},
                check=check,
                target_args=given.get("target_arg", {}),
                timeout_s=given.get("timeout", 0.0),
                values=not given["no_values"],
                tolerances=options.tolerances(given.get("rtol", {}), given.get("atol", {})),
            )
            return settings, command_options.demands(context)
