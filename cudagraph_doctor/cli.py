"""The command line: options -> Settings, the report to where it was asked for, the exit code. Start of the path.

Next: `examine.py` (Settings -> Report). Nothing here imports torch before a command needs it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudagraph_doctor import (
    __version__,
    audit_values,
    command_options,
    listing,
    options,
    output,
    overwriting,
    policy,
    pyproject,
    scaffold,
    trace_options,
)
from cudagraph_doctor.audit_command import audit_options
from cudagraph_doctor.command_options import (
    Looking,
    checking_options,
    gate_options,
    looking_options,
    on_command_line,
    playing_options,
    reads,
    target_options,
)
from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.findings import Report
from cudagraph_doctor.gate.judge import Demands, judge
from cudagraph_doctor.measure_options import Measuring, measure_options
from cudagraph_doctor.replays import matrix
from cudagraph_doctor.report.json import load
from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.printable import printable
from cudagraph_doctor.report.values import without_values
from cudagraph_doctor.settings import Settings

if TYPE_CHECKING:
    from cudagraph_doctor.audit.job import Job


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cudagraph-doctor")
@click.pass_context
def cli(context: click.Context) -> None:
    """Find out why a PyTorch decode loop misbehaves under CUDA Graphs; name the culprit, prove it, say the fix."""
    command = cli.commands.get(context.invoked_subcommand or "")
    if command and command_options.is_settable(command):
        context.obj = pyproject.read(command_options.keys(cli.commands))
        context.default_map = command_options.default_map(cli.commands, context.obj)


@cli.command()
@click.argument("spec", default="reference")
@click.option(
    "--trace",
    "given",
    metavar="TRACE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A trace of the target being served, for `buckets`; repeatable: ranks of one run.",
)
@click.option(
    "--record",
    "record_to",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Record such a trace first, into FILE (on a GPU).",
)
@click.option("--quick", is_flag=True, help="Fewer steps, and two buckets: for each push, and a first look.")
@click.option(
    "--repro",
    "scripts",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write a script for each confirmed fault that shows it with torch alone.",
)
@click.option(
    "--steps", type=click.IntRange(min=1), default=8, show_default=True, help="Decode steps looked at for each bucket."
)
@playing_options
@checking_options
@looking_options
def checkup(
    given: tuple[Path, ...],
    record_to: Path | None,
    quick: bool,
    scripts: Path | None,
    target_arg: dict[str, str],
    timeout: float,
    demands: Demands,
    looking: Looking,
    **plain: Any,
) -> int:
    """Run all checks on a target, and name one root cause for each fault: the whole method, in one go.

    SPEC names the target as for `diff`. Captures are watched first; then steps are compared eagerly and by graph, what
    replays read is looked at, and a trace, if there is one. What several checks found of one fault is told once.
    """
    from cudagraph_doctor import checkup as whole
    from cudagraph_doctor import method
    from cudagraph_doctor.display import for_stderr

    _one_choice_of_buckets(plain)
    if quick:
        plain |= {"steps": min(plain["steps"], whole.QUICK_STEPS)}
    settings = Settings(
        method.CHECKUP,
        target_args=target_arg,
        timeout_s=timeout,
        quick=quick,
        values=not looking.no_values,
        debug=looking.debug,
        **plain,
    )
    written = overwriting.reports(looking.outputs) + (overwriting.recorded(record_to) if record_to else [])
    read = overwriting.sources(settings.spec, settings.app_dir)
    overwriting.refuse(written, read + [overwriting.Named(f"the trace {file}", file) for file in given])
    traces = whole.Traces(given, record_to)
    return _judged(whole.checkup(settings, traces, scripts, for_stderr()), demands, looking)


@cli.command()
@click.argument("spec", default="reference")
@click.option(
    "--steps", type=click.IntRange(min=1), default=8, show_default=True, help="Decode steps compared for each bucket."
)
@playing_options
@click.option(
    "--rtol",
    multiple=True,
    metavar="[OUTPUT=]X",
    callback=reads(options.bounds),
    help="How far eager and graph may differ, relatively, in one output or all; repeatable. Default: the noise.",
)
@click.option(
    "--atol", multiple=True, metavar="[OUTPUT=]X", callback=reads(options.bounds), help="The same, absolutely."
)
@checking_options
@looking_options
def diff(
    rtol: dict[str, float],
    atol: dict[str, float],
    target_arg: dict[str, str],
    timeout: float,
    demands: Demands,
    looking: Looking,
    **plain: Any,
) -> int:
    """Compare eager decode steps with replays of captured graphs.

    SPEC names the target: package.module:attr, path/file.py:attr, or the bundled model: reference (the default),
    reference:loop, reference:engine.
    """
    _one_choice_of_buckets(plain)
    tolerances = options.tolerances(rtol, atol)
    return _run("diff", demands, looking, target_args=target_arg, timeout_s=timeout, tolerances=tolerances, **plain)


@cli.command()
@click.argument("spec", default="reference")
@click.option(
    "--buckets",
    metavar="N,N,...",
    callback=reads(options.sizes),
    help="Buckets to capture. Default: the smallest, a middle and the largest.",
)
@click.option(
    "--batch-sizes",
    metavar="N,N,...",
    callback=reads(options.sizes),
    help="Batch sizes whose graphs are captured, for an engine that captures in its first steps.",
)
@click.option("--exhaustive", is_flag=True, help="All buckets.")
@checking_options
@looking_options
def capture(
    target_arg: dict[str, str],
    timeout: float,
    demands: Demands,
    looking: Looking,
    **plain: Any,
) -> int:
    """List all operations of a decode step that a capture refuses or loses, by line, module and thread.

    SPEC names the target as for `diff`. Nothing is replayed: the step runs eagerly once under observation, and is
    captured until every illegal operation has failed by itself.
    """
    _one_choice_of_buckets(plain)
    return _run("capture", demands, looking, target_args=target_arg, timeout_s=timeout, **plain)


@cli.command()
@click.argument("spec", default="reference")
@click.option(
    "--steps", type=click.IntRange(min=1), default=8, show_default=True, help="Decode steps looked at for each bucket."
)
@playing_options
@click.option(
    "--poison", is_flag=True, help="Poison inputs first, to see what staging leaves alone; then play more steps."
)
@click.option("--db", metavar="FILE", type=click.Path(path_type=Path), help="Add the run to a store, a SQLite file.")
@click.option(
    "--repro",
    "scripts",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write a script for each confirmed finding that shows it with torch alone.",
)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Judge a run of a store again; no target is run.",
)
@click.option("--run", "number", type=click.IntRange(min=1), help="With --from: which run. Default: the last.")
@click.option("--show", metavar="NAME", default="", help="With --from: a tensor's history, held beside expected.")
@checking_options
@looking_options
@click.pass_context
def inputs(
    context: click.Context,
    /,
    spec: str,
    db: Path | None,
    scripts: Path | None,
    source: Path | None,
    number: int | None,
    show: str,
    target_arg: dict[str, str],
    timeout: float,
    demands: Demands,
    looking: Looking,
    **plain: Any,
) -> int:
    """What did each replay read, and which value that changes from step to step stayed frozen?

    SPEC names the target as for `diff`. What captured buffers hold is compared with what they should; steps are
    captured again and again to see what is baked in by value; what is accused is put right for one replay, to see it
    heal.
    """
    from cudagraph_doctor import examine_inputs
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.replays.options import Keep, again

    keep = Keep(db, scripts)
    stored = again(spec if on_command_line(context, "spec") else None, source, number, show, keep)
    if stored is not None:
        report, history = examine_inputs.examine_again(stored)
        if show or looking.shows_text:
            output.to_stdout(lay_out(stored.parts(history, output.view().width), output.view()))
        return policy.OK if show else _judged(report, demands, looking)
    _one_choice_of_buckets(plain)
    settings = Settings(
        "inputs",
        spec,
        target_args=target_arg,
        timeout_s=timeout,
        values=not looking.no_values,
        debug=looking.debug,
        **plain,
    )
    overwriting.refuse(overwriting.reports(looking.outputs), overwriting.sources(settings.spec, settings.app_dir))
    keep.check()
    display = for_stderr()
    report, seen = examine_inputs.examine_inputs(settings, display)
    if seen is not None:
        shown = without_values(report) if looking.no_values else report
        for sentence in keep.keep(seen, shown.findings, Path(settings.app_dir), values=settings.values):
            display.say(sentence)
        if looking.shows_text:
            output.to_stdout(lay_out(matrix.parts(seen, output.view().width), output.view()))
    return _judged(report, demands, looking)


@cli.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...", type=click.Path(path_type=Path))
@click.option("--buckets", metavar="N,N,...", callback=reads(options.sizes), help="The buckets that are captured.")
@click.option(
    "--step-pattern",
    metavar="REGEX",
    callback=reads(trace_options.pattern),
    help="Labels of your steps; named groups: batch, tokens, bucket.",
)
@click.option("--expect", type=click.Choice(["full", "piecewise"]), help="Gate: the kind of replay that is meant.")
@click.option("--expect-launches", type=click.IntRange(min=1), help="Gate: graph launches a step.")
@click.option(
    "--min-hit-rate", metavar="SHARE", callback=reads(trace_options.fraction), help="Gate: replayed decode steps."
)
@click.option("--max-eager-steps", type=click.IntRange(min=0), help="Gate: decode steps that ran eager.")
@click.option("--max-padding", metavar="SHARE", callback=reads(trace_options.fraction), help="Gate: rows of padding.")
@gate_options
@looking_options
def buckets(
    traces: tuple[Path, ...],
    step_pattern: str,
    demands: Demands,
    looking: Looking,
    **demanded: Any,
) -> int:
    """Did each decode step of a trace replay its bucket's graph, and if not, why?

    TRACE is an nsys SQLite export, an nsys report (.nsys-rep), or a torch.profiler trace (.json, .json.gz); several are
    ranks of one run. They are only read. Without a gate, misses are warnings and the exit code is 0.
    """
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.examine_traces import examine_traces
    from cudagraph_doctor.misses.judged import Demands as OfTraces

    context = click.get_current_context()
    read = [overwriting.Named(f"the trace {file}", file) for file in traces]
    overwriting.refuse(overwriting.reports(looking.outputs), read)
    old = trace_options.older_numbers(context.params["compare"])
    of_traces = OfTraces(compare_with=old, compare_threshold=demands.compare_threshold, **demanded)
    return _judged(examine_traces(traces, of_traces, step_pattern, for_stderr()), demands, looking)


@cli.command()
@audit_options
@measure_options
@gate_options
@looking_options
@click.pass_context
def audit(
    context: click.Context,
    /,
    job: Job,
    read: list[tuple[str, Path]],
    emit: audit_values.Emit | None,
    measuring: Measuring | None,
    demands: Demands,
    looking: Looking,
) -> int:
    """Will these keys carry this traffic? Holes, padding, memory, and a better list, before deployment.

    CONFIGURATION is an engine's (vLLM, SGLang, TensorRT-LLM, nano-vllm) or a plain file with buckets and max_batch, in
    YAML, TOML or JSON; several are ranks of one run. Nothing is captured then, and no GPU is needed. With --target the
    keys of a target are captured and measured instead, and compared with eager.
    """
    written = overwriting.reports(looking.outputs)
    written += [overwriting.Named(f"--emit {emit.form}={emit.file}", emit.file)] if emit and emit.file else []
    named = [overwriting.Named(*named) for named in read]
    if measuring:
        written += [overwriting.Named(f"--save-costs {measuring.save}", measuring.save)] if measuring.save else []
        named += overwriting.sources(measuring.settings.spec, measuring.settings.app_dir)
    overwriting.refuse(written, named)
    report, configuration = _audited(job, measuring, emit.form if emit else "")
    if emit and emit.file:
        output.to_file(emit.file, configuration)
    elif emit:
        output.to_stdout(configuration)
        in_place = tuple(out for out in looking.outputs if out.file)
        return _judged(report, demands, dataclasses.replace(looking, outputs=in_place))
    return _judged(report, demands, looking)


def _audited(job: Job, measuring: Measuring | None, form: str) -> tuple[Report, str]:
    if measuring is None:
        from cudagraph_doctor.examine_keys import examine_keys

        return examine_keys(job, form)
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.examine_measured import examine_measured

    return examine_measured(measuring.settings, job, for_stderr(), form, measuring.save)


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
@click.option("--batch-sizes", metavar="N,N,...", callback=reads(options.sizes), help="Batch sizes to play, in turn.")
@click.option("--no-ranges", is_flag=True, help="Add no labels to steps and captures that have none.")
@click.option("--scrub", is_flag=True, help="Leave out of the trace what tells of this machine and its user.")
@click.option("--then-check", is_flag=True, help="Feed the trace to `buckets`.")
@target_options
@looking_options
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
    demands: Demands,
    looking: Looking,
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
    if command and not on_command_line(context, "spec"):
        spec = ""
    if command and spec:
        raise click.UsageError("give a SPEC or a command after --, not both.")
    if "after" in context.meta and not command:
        raise click.UsageError("no command follows --.")
    settings = Settings(
        "record", spec or "reference:engine", target_args=target_arg, timeout_s=timeout, debug=looking.debug, **plain
    )
    refuse_early(settings)
    read = overwriting.words(command) or overwriting.sources(settings.spec, settings.app_dir)
    overwriting.refuse(overwriting.recorded(trace) + overwriting.reports(looking.outputs), read)
    display = for_stderr()
    with display:
        recorded = run(Wanted(trace, command, settings, profiler, graph_trace, not no_ranges, scrub), display.say)
    display.say(f"wrote {recorded.trace} ({recorded.how})")
    if not then_check:
        _output_next_step(recorded.trace)
        return recorded.exit_code
    from cudagraph_doctor.examine_traces import examine_traces
    from cudagraph_doctor.misses.judged import Demands as OfTraces

    report = examine_traces((recorded.trace,), OfTraces(), "", for_stderr())
    return recorded.exit_code or _judged(report, demands, looking)


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@looking_options
def report(file: Path, looking: Looking) -> int:
    """Show a saved report (FILE, from --format json=FILE) again, in any format."""
    overwriting.refuse(overwriting.reports(looking.outputs), [overwriting.Named(f"the report {file}", file)])
    _show(load(file), looking)
    return policy.OK


@cli.command()
@click.argument(
    "reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(dir_okay=False, path_type=Path)
)
@click.option("--output", "-o", "file", required=True, type=click.Path(path_type=Path), help="The baseline to write.")
def baseline(reports: tuple[Path, ...], file: Path) -> None:
    """Write the findings of saved reports down as known, for --baseline.

    REPORT is a file from --format json=FILE. What is known does not fail a run, what is new does, and what is gone is
    said. Ignored findings are left out.
    """
    from cudagraph_doctor.gate import baseline as known_findings

    overwriting.refuse([overwriting.Named(f"-o {file}", file)], [overwriting.Named(f"{r}", r) for r in reports])
    written = known_findings.of_reports(map(load, reports))
    output.to_file(file, known_findings.text(written))
    listed = "".join(f"  {known.words}\n" for known in written.known)
    findings = "finding" if len(written.known) == 1 else "findings"
    output.to_stdout(
        f"Wrote {file}, with {len(written.known)} known {findings}.\n{listed}\nNext:\n\n  --baseline {file}\n"
    )


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
    context = click.get_current_context()
    if plain["exhaustive"] and plain["buckets"]:
        nearer = [name for name in ("exhaustive", "buckets") if on_command_line(context, name)]
        if len(nearer) == 1:  # it wins over the other, from pyproject.toml
            plain |= {"exhaustive": False} if nearer == ["buckets"] else {"buckets": ()}
            return
        raise click.UsageError("--exhaustive looks at all buckets, --buckets at some: give one of them.")


def _output_next_step(trace: Path) -> None:
    output.to_stdout(f"Next:\n\n  cudagraph-doctor buckets {trace}\n")


def _run(check: str, demands: Demands, looking: Looking, **fields: Any) -> int:
    """A check on a target, from its options to the exit code."""
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.examine import examine

    settings = Settings(check=check, values=not looking.no_values, debug=looking.debug, **fields)
    read = overwriting.sources(settings.spec, settings.app_dir)
    overwriting.refuse(overwriting.reports(looking.outputs), read)
    return _judged(examine(settings, for_stderr()), demands, looking)


def _judged(report: Report, demands: Demands, looking: Looking) -> int:
    """Hold the report to what is demanded, and show it; the exit code."""
    report = judge(report, demands)
    _show(report, looking)
    return policy.gate_of(report).exit_code


def _show(shown: Report, looking: Looking) -> None:
    view = output.view(verbose=looking.verbose, debug=looking.debug, docs_url=looking.docs_url)
    output.write(without_values(shown) if looking.no_values else shown, looking.outputs, view)


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
        if command_options.is_of_the_file(error):
            click.echo(f"It is set in {pyproject.FILE}, [{pyproject.TABLE}].", err=True)
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
