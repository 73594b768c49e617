"""The command line: options -> Settings, the report to where it was asked for, the exit code. Start of the path.

Next: `examine.py` (Settings -> Report). Nothing here imports torch before a command needs it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cudagraph_doctor import __version__, listing, options, output, overwriting, policy, scaffold, trace_options
from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.findings import Report
from cudagraph_doctor.report import REPORTERS
from cudagraph_doctor.report.json import load
from cudagraph_doctor.report.printable import printable
from cudagraph_doctor.report.values import without_values
from cudagraph_doctor.settings import Settings


def _reads(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback from a function of `options`."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _looking_options(command: Callable[..., int]) -> Callable[..., int]:
    """Options of all commands that show a report."""
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks and stacks."),
        click.option("--verbose", is_flag=True, help="Show all the evidence."),
        click.option("--no-values", is_flag=True, help="Keep values (token ids, ...) out of the report."),
        click.option(
            "--format",
            "outputs",
            multiple=True,
            metavar="FORMAT[=FILE]",
            callback=_reads(options.outputs),
            help=f"{' or '.join(REPORTERS)}; to stdout, or with =FILE to a file; repeatable.",
        ),
    ):
        command = option(command)
    return command


_fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(policy.FAIL_ON),
    default="error",
    show_default=True,
    help="Least severity that makes the exit code 1.",
)


def _target_options(command: Callable[..., int]) -> Callable[..., int]:
    """Options of all commands that make a target."""
    for option in (
        _fail_on_option,
        click.option(
            "--timeout",
            type=float,
            default=1800.0,
            show_default=True,
            metavar="SECONDS",
            callback=_reads(options.seconds),
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
        click.option(
            "--fault", default="", metavar="NAME", help="Plant a fault into the bundled model (see `faults`)."
        ),
        click.option(
            "--target-arg",
            "-a",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_reads(options.pairs),
            help="Argument for the target's function; repeatable.",
        ),
        click.option(
            "--seed", type=int, default=0, show_default=True, help="Seed of the target (if it takes one) and the plan."
        ),
    ):
        command = option(command)
    return command


def _checking_options(command: Callable[..., int]) -> Callable[..., int]:
    """Options of all commands that run checks on a target."""
    for option in (
        click.option("--in-process", is_flag=True, help="Run in this process, for a debugger; without --timeout."),
        click.option(
            "--backend",
            type=click.Choice(["auto", "cuda", "emulated"]),
            default="auto",
            show_default=True,
            help="auto: the GPU if there is one, else emulated on the CPU.",
        ),
    ):
        command = option(command)
    return _target_options(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cudagraph-doctor")
def cli() -> None:
    """Find out why a PyTorch decode loop misbehaves under CUDA Graphs; name the culprit, prove it, say the fix."""


@cli.command()
@click.argument("spec", default="reference")
@click.option(
    "--steps", type=click.IntRange(min=1), default=8, show_default=True, help="Decode steps compared for each bucket."
)
@click.option(
    "--buckets",
    metavar="N,N,...",
    callback=_reads(options.sizes),
    help="Buckets to look at. Default: the smallest, a middle and the largest.",
)
@click.option(
    "--batch-sizes",
    metavar="N,N,...",
    callback=_reads(options.sizes),
    help="Batch sizes to play, in this order. Default: an order that finds stale tails.",
)
@click.option("--exhaustive", is_flag=True, help="All buckets.")
@click.option(
    "--rtol",
    multiple=True,
    metavar="[OUTPUT=]X",
    callback=_reads(options.bounds),
    help="How far eager and graph may differ, relatively, in one output or all; repeatable. Default: the noise.",
)
@click.option(
    "--atol", multiple=True, metavar="[OUTPUT=]X", callback=_reads(options.bounds), help="The same, absolutely."
)
@_checking_options
@_looking_options
def diff(
    rtol: dict[str, float],
    atol: dict[str, float],
    target_arg: dict[str, str],
    timeout: float,
    fail_on: str,
    outputs: tuple[options.Output, ...],
    no_values: bool,
    verbose: bool,
    debug: bool,
    **plain: Any,
) -> int:
    """Compare eager decode steps with replays of captured graphs.

    SPEC names the target: package.module:attr, path/file.py:attr, or the bundled model: reference (the default),
    reference:loop, reference:engine.
    """
    _one_choice_of_buckets(plain)
    overwriting.refuse(overwriting.reports(outputs), overwriting.sources(plain["spec"], plain["app_dir"]))
    settings = Settings(
        check="diff",
        tolerances=options.tolerances(rtol, atol),
        target_args=target_arg,
        timeout_s=timeout,
        values=not no_values,
        debug=debug,
        **plain,
    )
    report = _examine(settings)
    _show(report, outputs, no_values=no_values, verbose=verbose, debug=debug)
    return policy.exit_code(report, fail_on)


@cli.command()
@click.argument("spec", default="reference")
@click.option(
    "--buckets",
    metavar="N,N,...",
    callback=_reads(options.sizes),
    help="Buckets to capture. Default: the smallest, a middle and the largest.",
)
@click.option(
    "--batch-sizes",
    metavar="N,N,...",
    callback=_reads(options.sizes),
    help="Batch sizes whose graphs are captured, for an engine that captures in its first steps.",
)
@click.option("--exhaustive", is_flag=True, help="All buckets.")
@_checking_options
@_looking_options
def capture(
    target_arg: dict[str, str],
    timeout: float,
    fail_on: str,
    outputs: tuple[options.Output, ...],
    no_values: bool,
    verbose: bool,
    debug: bool,
    **plain: Any,
) -> int:
    """List all operations of a decode step that a capture refuses or loses, by line, module and thread.

    SPEC names the target as for `diff`. Nothing is replayed: the step runs eagerly once under observation, and is
    captured until every illegal operation has failed by itself.
    """
    _one_choice_of_buckets(plain)
    overwriting.refuse(overwriting.reports(outputs), overwriting.sources(plain["spec"], plain["app_dir"]))
    settings = Settings(
        check="capture", target_args=target_arg, timeout_s=timeout, values=not no_values, debug=debug, **plain
    )
    report = _examine(settings)
    _show(report, outputs, no_values=no_values, verbose=verbose, debug=debug)
    return policy.exit_code(report, fail_on)


@cli.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...", type=click.Path(path_type=Path))
@click.option("--buckets", metavar="N,N,...", callback=_reads(options.sizes), help="The buckets that are captured.")
@click.option(
    "--step-pattern",
    metavar="REGEX",
    callback=_reads(trace_options.pattern),
    help="Labels of your steps; named groups: batch, tokens, bucket.",
)
@click.option("--expect", type=click.Choice(["full", "piecewise"]), help="Gate: the kind of replay that is meant.")
@click.option("--expect-launches", type=click.IntRange(min=1), help="Gate: graph launches a step.")
@click.option(
    "--min-hit-rate", metavar="SHARE", callback=_reads(trace_options.fraction), help="Gate: replayed decode steps."
)
@click.option("--max-eager-steps", type=click.IntRange(min=0), help="Gate: decode steps that ran eager.")
@click.option("--max-padding", metavar="SHARE", callback=_reads(trace_options.fraction), help="Gate: rows of padding.")
@click.option(
    "--compare",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OLD.json",
    help="Gate: no worse than that run.",
)
@click.option(
    "--compare-threshold",
    default="1%",
    show_default=True,
    metavar="SHARE",
    callback=_reads(trace_options.fraction),
    help="With --compare: how much worse a share may be.",
)
@_fail_on_option
@_looking_options
def buckets(
    traces: tuple[Path, ...],
    step_pattern: str,
    compare: Path | None,
    fail_on: str,
    outputs: tuple[options.Output, ...],
    no_values: bool,
    verbose: bool,
    debug: bool,
    **demanded: Any,
) -> int:
    """Did each decode step of a trace replay its bucket's graph, and if not, why?

    TRACE is an nsys SQLite export, an nsys report (.nsys-rep), or a torch.profiler trace (.json, .json.gz); several are
    ranks of one run. They are only read. Without a gate, misses are warnings and the exit code is 0.
    """
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.examine_traces import examine_traces
    from cudagraph_doctor.misses.judged import Demands

    given = click.get_current_context().get_parameter_source("compare_threshold")
    if given is not ParameterSource.DEFAULT and compare is None:
        raise click.UsageError("--compare-threshold is for --compare OLD.json, which is not given.")
    read = [overwriting.Named(f"the trace {file}", file) for file in traces]
    read += [overwriting.Named(f"--compare {compare}", compare)] if compare else []
    overwriting.refuse(overwriting.reports(outputs), read)
    demands = Demands(compare_with=trace_options.older_numbers(compare), **demanded)
    report = examine_traces(traces, demands, step_pattern, for_stderr())
    _show(report, outputs, no_values=no_values, verbose=verbose, debug=debug)
    return policy.exit_code(report, fail_on)


class _WithCommand(click.Command):
    """A command that takes another program's command line after `--`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Keep what follows `--` as it is."""
        if "--" in args:
            at = args.index("--")
            context.meta["after"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(context, args)


@cli.command(cls=_WithCommand)
@click.argument("spec", default="", metavar="[SPEC]")
@click.option(
    "--output", "-o", "trace", required=True, type=click.Path(path_type=Path), help="The trace, without its suffix."
)
@click.option(
    "--profiler",
    type=click.Choice(["auto", "nsys", "torch"]),
    default="auto",
    show_default=True,
    help="auto: nsys if there is one that works, else torch.profiler.",
)
@click.option(
    "--graph-trace",
    type=click.Choice(["graph", "node"]),
    default="graph",
    show_default=True,
    help="nsys: a row a graph launch, or a row a node (slower, shows the kernels inside).",
)
@click.option("--steps", type=click.IntRange(min=1), default=32, show_default=True, help="Decode steps to play.")
@click.option("--batch-sizes", metavar="N,N,...", callback=_reads(options.sizes), help="Batch sizes to play, in turn.")
@click.option("--no-ranges", is_flag=True, help="Add no labels to steps and captures that have none.")
@click.option("--scrub", is_flag=True, help="Leave out of the trace what tells of this machine and its user.")
@click.option("--then-check", is_flag=True, help="Feed the trace to `buckets`.")
@_target_options
@_looking_options
@click.pass_context
def record(
    context: click.Context,
    /,
    spec: str,
    trace: Path,
    profiler: str,
    graph_trace: str,
    no_ranges: bool,
    scrub: bool,
    then_check: bool,
    target_arg: dict[str, str],
    timeout: float,
    fail_on: str,
    outputs: tuple[options.Output, ...],
    no_values: bool,
    verbose: bool,
    debug: bool,
    **plain: Any,
) -> int:
    """Record a trace of a decode loop for `buckets`, with nsys or torch.profiler.

    SPEC names a target as for `diff` (default: the bundled engine), whose loop is played with labelled steps. Or give a
    command of your own: record -o trace -- python serve.py; its exit code is returned.
    """
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.loader import refuse_early
    from cudagraph_doctor.recording.record import Wanted
    from cudagraph_doctor.recording.record import record as run

    command = context.meta.get("after", ())
    if command and spec:
        raise click.UsageError("give a SPEC or a command after --, not both.")
    if "after" in context.meta and not command:
        raise click.UsageError("no command follows --.")
    settings = Settings(
        "record", spec or "reference:engine", target_args=target_arg, timeout_s=timeout, debug=debug, **plain
    )
    refuse_early(settings)
    read = overwriting.words(command) or overwriting.sources(settings.spec, settings.app_dir)
    overwriting.refuse(overwriting.recorded(trace) + overwriting.reports(outputs), read)
    display = for_stderr()
    with display:
        recorded = run(Wanted(trace, command, settings, profiler, graph_trace, not no_ranges, scrub), display.say)
    display.say(f"wrote {recorded.trace} ({recorded.how})")
    if not then_check:
        _output_next_step(recorded.trace)
        return recorded.exit_code
    from cudagraph_doctor.examine_traces import examine_traces
    from cudagraph_doctor.misses.judged import Demands

    report = examine_traces((recorded.trace,), Demands(), "", for_stderr())
    _show(report, outputs, no_values=no_values, verbose=verbose, debug=debug)
    return recorded.exit_code or policy.exit_code(report, fail_on)


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_looking_options
def report(file: Path, outputs: tuple[options.Output, ...], no_values: bool, verbose: bool, debug: bool) -> int:
    """Show a saved report (FILE, from --format json=FILE) again, in any format."""
    overwriting.refuse(overwriting.reports(outputs), [overwriting.Named(f"the report {file}", file)])
    _show(load(file), outputs, no_values=no_values, verbose=verbose, debug=debug)
    return policy.OK


@cli.command()
def rules() -> None:
    """List all rules."""
    output.to_stdout(listing.rules(output.view()))


@cli.command()
@click.argument("code")
def explain(code: str) -> None:
    """Show the page of a rule, by CODE (CGD101) or name (frozen-in-graph)."""
    output.to_stdout(listing.explanation(code, output.view()))


@cli.command()
def faults() -> None:
    """List the faults that can be planted into the bundled model."""
    output.to_stdout(listing.faults(output.view()))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def env(as_json: bool) -> None:
    """Show what this machine has, what can be checked on it and what cannot."""
    from cudagraph_doctor import environment

    found = environment.survey()
    if as_json:
        output.to_stdout(json.dumps(dataclasses.asdict(found), indent=2) + "\n")
    else:
        output.to_stdout(listing.survey(found, output.view()))


@cli.command()
@click.argument("words", nargs=-1, required=True, metavar="[loop|engine] FILE")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def init(words: tuple[str, ...], force: bool) -> None:
    """Write a target skeleton that works as it stands, to be filled in.

    loop (the default): a decode step that can be called with any values; the doctor captures it.
    engine: an engine with its own captures and its own switch.
    """
    if len(words) > 2:
        raise click.UsageError(f"{len(words)} words are too many: write init [{'|'.join(scaffold.FORMS)}] FILE.")
    form, name = words if len(words) == 2 else (scaffold.FORMS[0], words[0])
    file = scaffold.write(form, Path(name), overwrite=force)
    output.to_stdout(
        f"Wrote {file}, a target in {form} form that works as it stands. Try it:\n\n  cudagraph-doctor diff {file}\n"
    )


def _one_choice_of_buckets(plain: dict[str, Any]) -> None:
    if plain["exhaustive"] and plain["buckets"]:
        raise click.UsageError("--exhaustive looks at all buckets, --buckets at some: give one of them.")


def _output_next_step(trace: Path) -> None:
    output.to_stdout(f"Next:\n\n  cudagraph-doctor buckets {trace}\n")


def _examine(settings: Settings) -> Report:
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.examine import examine

    return examine(settings, for_stderr())


def _show(shown: Report, outputs: tuple[options.Output, ...], *, no_values: bool, verbose: bool, debug: bool) -> None:
    output.write(without_values(shown) if no_values else shown, outputs, verbose=verbose, debug=debug)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code. The only place where errors become exit codes."""
    try:
        code = cli.main(arguments, prog_name="cudagraph-doctor", standalone_mode=False)
        return code if isinstance(code, int) else policy.OK
    except click.Abort:
        click.echo("cudagraph-doctor: interrupted", err=True)
        return policy.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return policy.USAGE
    except DoctorError as error:
        return _told(error, debug="--debug" in (sys.argv if arguments is None else arguments))
    except Exception as error:
        if isinstance(error, OSError) and _in_echo(error):
            return _told(output.lost(str(error.strerror)), debug=False)
        traceback.print_exc()
        click.echo(
            f"\ncudagraph-doctor {__version__}, Python {sys.version.split()[0]}, {sys.platform}: this is a bug in "
            "cudagraph-doctor. Please report it with the lines above.",
            err=True,
        )
        return policy.OUR_BUG


def _in_echo(error: OSError) -> bool:
    """Whether it was raised where click writes the help."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_code is click.echo.__code__


def _told(error: DoctorError, *, debug: bool) -> int:
    click.echo(f"cudagraph-doctor: {printable(str(error))}", err=True)
    if error.traceback and debug:
        click.echo(f"\n{printable(error.traceback)}", err=True, nl=False)
    return error.exit_code
