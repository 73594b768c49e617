"""Groups of options that commands share, each turned into one value: how to look, what to demand, what to run on.

A command that takes `gate_options` can be set in pyproject.toml too, and shows what holds with `--show-settings`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cudagraph_doctor import options, output, overwriting, policy, shown_settings, trace_options
from cudagraph_doctor.gate import baseline as known_findings
from cudagraph_doctor.gate import selection
from cudagraph_doctor.gate.judge import Demands
from cudagraph_doctor.gate.selection import Entry, Selection
from cudagraph_doctor.pyproject import Configuration, Key
from cudagraph_doctor.report import REPORTERS
from cudagraph_doctor.report.json import load
from cudagraph_doctor.shown_settings import Shown

_NOT_IN_FILE = (
    *("show_settings", "verbose", "ignore", "fault", "twin", "in_process", "debug", "help"),
    *("db", "scripts", "source", "number", "show"),
)
"""Options for a single run; `ignore` is a table there, with reasons."""

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Looking:
    """How a report is to be shown."""

    outputs: tuple[options.Output, ...]
    no_values: bool
    verbose: bool
    debug: bool
    docs_url: str

    @property
    def shows_text(self) -> bool:
        """Whether the terminal's text goes to stdout."""
        return any(output.format == "terminal" and output.file is None for output in self.outputs)


def reads(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback from a function that raises ValueError."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def looking_options(command: Command) -> Command:
    """Options of all commands that show a report; the command gets them as `looking`."""

    @functools.wraps(command)
    def looked(
        *arguments: Any,
        outputs: tuple[options.Output, ...],
        no_values: bool,
        verbose: bool,
        debug: bool,
        docs_url: str,
        **others: Any,
    ) -> Any:
        return command(*arguments, looking=Looking(outputs, no_values, verbose, debug, docs_url), **others)

    return _with(
        looked,
        click.option("--debug", is_flag=True, help="Show tracebacks and stacks."),
        click.option("--verbose", is_flag=True, help="Show all the evidence."),
        click.option("--no-values", is_flag=True, help="Keep values (token ids, ...) out of the report."),
        click.option(
            "--docs-url", default="", metavar="URL", help="Where you host these docs: SARIF links rules to it."
        ),
        click.option(
            "--format",
            "outputs",
            multiple=True,
            metavar="FORMAT[=FILE]",
            callback=reads(options.outputs),
            help=f"{', '.join(REPORTERS)}; to stdout, or with =FILE to a file; repeatable.",
        ),
    )


def gate_options(command: Command) -> Command:
    """Options of all commands that a CI can be held by; the command gets them as `demands`."""

    @functools.wraps(command)
    def gated(*arguments: Any, **others: Any) -> Any:
        context = click.get_current_context()
        if context.params["show_settings"]:
            output.to_stdout(_settings_text(context))
            return policy.OK
        others = {name: value for name, value in others.items() if name not in _GATE}
        return command(*arguments, demands=demands(context), **others)

    file = click.Path(dir_okay=False, path_type=Path)
    return _with(
        gated,
        click.option("--show-settings", is_flag=True, help="Show what holds and where it is set; run nothing."),
        click.option(
            "--compare-threshold",
            default="1%",
            show_default=True,
            metavar="SHARE",
            callback=reads(trace_options.fraction),
            help="With --compare: how much worse a share may be.",
        ),
        click.option("--compare", type=file, metavar="OLD.json", help="Gate: no worse, no less checked than that run."),
        click.option(
            "--min-coverage",
            metavar="SHARE",
            callback=reads(trace_options.fraction),
            help="Gate: steps that could be judged; fewer are inconclusive.",
        ),
        click.option("--baseline", type=file, metavar="FILE", help="Known findings, which do not fail the run."),
        click.option(
            "--ignore",
            multiple=True,
            metavar="CODE,...",
            callback=reads(selection.prefixes),
            help="Rules that do not count, by code or prefix; repeatable.",
        ),
        click.option(
            "--select",
            multiple=True,
            metavar="CODE,...",
            callback=reads(selection.prefixes),
            help="Rules that count, by code or prefix; the longest wins. Default: all.",
        ),
        click.option(
            "--fail-on",
            type=click.Choice(policy.FAIL_ON),
            default="error",
            show_default=True,
            help="Least severity that makes the exit code 1.",
        ),
    )


_GATE = ("fail_on", "select", "ignore", "baseline", "min_coverage", "compare", "compare_threshold", "show_settings")


def making_options(command: Command) -> Command:
    """Options about making a target and running it; `target_options` and `checking_options` add what else they need."""
    return _with(_with(command, *_RUNNING), *_MAKING)


def target_options(command: Command) -> Command:
    """Options of all commands that make a target."""
    seed = click.option(
        "--seed", type=int, default=0, show_default=True, help="Seed of the target (if it takes one) and the plan."
    )
    return _with(gate_options(command), *_MAKING, seed)


def checking_options(command: Command) -> Command:
    """Options of all commands that run checks on a target."""
    return _with(target_options(command), *_RUNNING)


def playing_options(command: Command) -> Command:
    """Options of all commands that play a target's steps: which buckets and batch sizes."""
    return _with(command, *_PLAYING)


_PLAYING = (
    click.option("--exhaustive", is_flag=True, help="All buckets."),
    click.option(
        "--batch-sizes",
        metavar="N,N,...",
        callback=reads(options.sizes),
        help="Batch sizes to play, in this order. Default: an order that finds stale tails.",
    ),
    click.option(
        "--buckets",
        metavar="N,N,...",
        callback=reads(options.sizes),
        help="Buckets to look at. Default: the smallest, a middle and the largest.",
    ),
)
_MAKING = (
    click.option(
        "--timeout",
        type=float,
        default=1800.0,
        show_default=True,
        metavar="SECONDS",
        callback=reads(options.seconds),
        help="Stop after this time and show where it hangs.",
    ),
    click.option(
        "--app-dir",
        type=click.Path(exists=True, file_okay=False),
        default=".",
        show_default=True,
        help="Folder in which modules are looked for first.",
    ),
    click.option("--twin", is_flag=True, help="With --fault: its sound twin instead."),
    click.option("--fault", default="", metavar="NAME", help="Plant a fault into the bundled model (see `faults`)."),
    click.option(
        "--target-arg",
        "-a",
        multiple=True,
        metavar="NAME=VALUE",
        callback=reads(options.pairs),
        help="Argument for the target's function; repeatable.",
    ),
)
_RUNNING = (
    click.option("--in-process", is_flag=True, help="Run in this process, for a debugger; without --timeout."),
    click.option(
        "--backend",
        type=click.Choice(["auto", "cuda", "emulated"]),
        default="auto",
        show_default=True,
        help="auto: the GPU if there is one, else emulated on the CPU.",
    ),
)


def demands(context: click.Context) -> Demands:
    """What the gate's options say. Raises UsageError if a file that they name cannot be used."""
    own = context.params
    if on_command_line(context, "compare_threshold") and own["compare"] is None:
        raise click.UsageError("--compare-threshold is for --compare OLD.json, which is not given.")
    read = [overwriting.Named(f"--{name} {own[name]}", own[name]) for name in ("baseline", "compare") if own[name]]
    overwriting.refuse(overwriting.reports(context.params["outputs"]), read)
    select_in = selection.COMMAND_LINE if on_command_line(context, "select") else selection.PYPROJECT
    entries = [Entry(prefix, select_in, ignores=False) for prefix in own["select"]]
    entries += [Entry(prefix, selection.COMMAND_LINE, ignores=True) for prefix in own["ignore"]]
    return Demands(
        own["fail_on"],
        Selection((*entries, *_configuration(context).ignores)),
        known_findings.load(own["baseline"]) if own["baseline"] else None,
        own["min_coverage"],
        load(own["compare"]) if own["compare"] else None,
        own["compare_threshold"],
    )


def on_command_line(context: click.Context, name: str) -> bool:
    """Whether a parameter was given on the command line itself."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def is_of_the_file(error: click.ClickException) -> bool:
    """Whether the error is about a value from pyproject.toml."""
    if not isinstance(error, click.BadParameter) or not error.ctx or not error.param:
        return False
    return error.ctx.get_parameter_source(str(error.param.name)) is ParameterSource.DEFAULT_MAP


def is_settable(command: click.Command) -> bool:
    """Whether the command's options can be set in pyproject.toml: it has a gate."""
    return any(parameter.name == "show_settings" for parameter in command.params)


def keys(commands: Mapping[str, click.Command]) -> dict[str, Key]:
    """What can be set in pyproject.toml: the options of the commands that have a gate."""
    found: dict[str, Key] = {}
    for command in commands.values():
        for key, parameter in _settable(command):
            flag = isinstance(parameter, click.Option) and parameter.is_flag
            found[key] = Key(flag, isinstance(parameter, click.Option) and parameter.multiple)
    return found


def default_map(commands: Mapping[str, click.Command], configuration: Configuration) -> dict[str, dict[str, Any]]:
    """Click's defaults for each command, from the file."""
    return {
        name: {
            str(parameter.name): configuration.values[key]
            for key, parameter in _settable(command)
            if key in configuration.values
        }
        for name, command in commands.items()
    }


def _with(command: Command, *decorators: Callable[[Command], Command]) -> Command:
    for decorate in decorators:
        command = decorate(command)
    return command


def _settable(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    for parameter in command.params if is_settable(command) else ():
        if parameter.name == "spec":
            yield "spec", parameter
        elif isinstance(parameter, click.Option) and parameter.name not in _NOT_IN_FILE and not parameter.required:
            yield max(parameter.opts, key=len).removeprefix("--"), parameter


def _configuration(context: click.Context) -> Configuration:
    return context.find_object(Configuration) or Configuration()


def _settings_text(context: click.Context) -> str:
    where = {ParameterSource.COMMANDLINE: "command line", ParameterSource.DEFAULT_MAP: "pyproject.toml"}
    settable = {parameter.name for _, parameter in _settable(context.command)}
    shown = []
    for parameter in context.command.params:
        if parameter.name == "show_settings":
            continue
        name, source = str(parameter.name), context.get_parameter_source(str(parameter.name))
        key = name if isinstance(parameter, click.Argument) else max(parameter.opts, key=len).removeprefix("--")
        place = where.get(source, "default") if source else "default"
        shown.append(Shown(key, context.params[name], place, name in settable))
    configuration = _configuration(context)
    return shown_settings.text(shown, configuration.ignores, configuration.file)
