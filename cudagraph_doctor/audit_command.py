"""The options of `audit`, turned into one job. Imports nothing heavy: help has to come at once."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudagraph_doctor import audit_values, trace_options
from cudagraph_doctor.command_options import Command, on_command_line, reads

if TYPE_CHECKING:
    from cudagraph_doctor.audit.job import Job, Source

_JOB = (
    *("configurations", "buckets", "max_batch", "engine", "rule", "padding", "tokens_per_request", "unit", "workload"),
    *(
        "column",
        "weight",
        "from_trace",
        "step_pattern",
        "arrivals",
        "output_length",
        "burst",
        "seconds",
        "seed",
        "costs",
    ),
    *("cost_model", "kv_bytes_per_token", "graphs", "graph_memory", "min_hit_rate", "max_padding", "max_graph_memory"),
)
_ENGINES = ("vllm", "sglang", "tensorrt-llm", "nano-vllm", "plain")


def audit_options(command: Command) -> Command:
    """All of them but the gate's and the report's; the command gets them as `job`."""

    @functools.wraps(command)
    def audited(*arguments: Any, **others: Any) -> Any:
        own = {name: others.pop(name) for name in _JOB}
        return command(*arguments, job=job(own), read=files(own), **others)

    for option in reversed(_options()):
        audited = option(audited)
    return audited


def _options() -> list[Any]:
    file = click.Path(dir_okay=False, path_type=Path)
    number = click.IntRange(min=1)
    return [
        click.argument("configurations", nargs=-1, metavar="[CONFIGURATION]...", type=file),
        click.option(
            "--buckets",
            metavar="N,N,...",
            callback=reads(audit_values.rank_lists),
            help="The keys, in place of a CONFIGURATION; one list a rank: 1,2,4/1,2,8.",
        ),
        click.option("--max-batch", type=click.IntRange(1, 65536), help="Requests that run at once at most."),
        click.option("--engine", type=click.Choice(_ENGINES), help="Whose CONFIGURATION it is. Default: told by it."),
        click.option("--rule", default="", metavar="NAME", help="The version whose default list holds (vllm-57355)."),
        click.option("--padding/--no-padding", default=True, help="With --buckets: whether batches are padded."),
        click.option(
            "--tokens-per-request", type=number, help="With --buckets: 1 + draft tokens; keys are tokens then."
        ),
        click.option(
            "--workload", type=file, metavar="FILE", help="The batches to serve: CSV, JSONL or Parquet, a row a step."
        ),
        click.option("--column", default="", metavar="NAME", help="The workload's column of batches or tokens."),
        click.option("--weight", default="", metavar="NAME", help="Its column of weights, in a histogram."),
        click.option("--unit", type=click.Choice(["requests", "tokens"]), help="What the column counts."),
        click.option(
            "--from-trace", multiple=True, type=file, metavar="TRACE", help="The batches of a trace; repeatable."
        ),
        click.option(
            "--step-pattern",
            metavar="REGEX",
            callback=reads(trace_options.pattern),
            help="Labels of your steps; named groups: batch, tokens, bucket.",
        ),
        click.option(
            "--arrivals",
            type=float,
            metavar="RATE",
            callback=reads(audit_values.rate),
            help="Simulated traffic: so many requests a second.",
        ),
        click.option(
            "--output-length",
            type=float,
            default=256.0,
            show_default=True,
            callback=reads(audit_values.at_least_one),
            help="With --arrivals: decode steps of a request, on the average.",
        ),
        click.option(
            "--burst", type=click.IntRange(0, 1_000_000), default=0, help="With --arrivals: requests that come at once."
        ),
        click.option(
            "--seconds",
            type=float,
            default=60.0,
            show_default=True,
            callback=reads(audit_values.at_least_one),
            help="With --arrivals: how long.",
        ),
        click.option(
            "--seed", type=int, default=0, show_default=True, help="Of simulated arrivals, and of a target's plan."
        ),
        click.option("--costs", type=file, metavar="FILE", help="Measured times and memory of the keys, as JSON."),
        click.option(
            "--cost-model",
            metavar="base=MS,row=MS,eager=MS",
            callback=reads(audit_values.cost_model),
            help="In place of --costs: a replay's time and that a row adds, and the least of an eager step.",
        ),
        click.option(
            "--kv-bytes-per-token", type=number, metavar="BYTES", help="What graph memory is weighed against."
        ),
        click.option("--graphs", type=number, help="Keys of the better list. Default: as many as there are."),
        click.option(
            "--graph-memory",
            metavar="BYTES",
            callback=reads(audit_values.in_bytes),
            help="Memory that the better list may take, in place of --graphs (512MiB).",
        ),
        click.option(
            "--emit",
            metavar="FORM[=FILE]",
            callback=reads(audit_values.emit),
            help=f"Write the better list as configuration: {', '.join(audit_values.EMITS)}; to stdout in place of the "
            "report, or with =FILE to a file.",
        ),
        click.option(
            "--min-hit-rate",
            metavar="SHARE",
            callback=reads(trace_options.fraction),
            help="Gate: replayed decode steps.",
        ),
        click.option(
            "--max-padding", metavar="SHARE", callback=reads(trace_options.fraction), help="Gate: rows of padding."
        ),
        click.option(
            "--max-graph-memory",
            metavar="BYTES",
            callback=reads(audit_values.in_bytes),
            help="Gate: device memory of all graphs.",
        ),
    ]


def files(own: dict[str, Any]) -> list[tuple[str, Path]]:
    """The files that are read, each with the words that it came in by."""
    found = [(f"the configuration {path}", path) for path in own["configurations"]]
    found += [(f"--from-trace {path}", path) for path in own["from_trace"]]
    return found + [(f"--{name} {own[name]}", own[name]) for name in ("workload", "costs") if own[name]]


def job(own: dict[str, Any]) -> Job:
    """The job. Raises click's usage error where options do not go together, UsageError where a file is none."""
    _refuse(own)
    from cudagraph_doctor.audit import costs
    from cudagraph_doctor.audit.job import Demands, Job
    from cudagraph_doctor.audit.keys import Unit
    from cudagraph_doctor.audit.simulate import Arrivals

    arrivals = None
    if own["arrivals"] is not None:
        arrivals = Arrivals(own["arrivals"], own["output_length"], own["burst"], own["seconds"], own["seed"])
    return Job(
        sources=tuple(_sources(own)),
        engine="plain" if own["buckets"] else own["engine"] or "",
        rule=own["rule"],
        max_batch=own["max_batch"],
        workload=own["workload"],
        column=own["column"],
        weight=own["weight"],
        unit=Unit(own["unit"]) if own["unit"] else None,
        traces=own["from_trace"],
        step_pattern=own["step_pattern"],
        arrivals=arrivals,
        costs=costs.load(own["costs"]) if own["costs"] else own["cost_model"],
        demands=Demands(
            own["min_hit_rate"], own["max_padding"], own["max_graph_memory"], own["graphs"], own["graph_memory"]
        ),
        kv_bytes_per_token=own["kv_bytes_per_token"],
    )


def _sources(own: dict[str, Any]) -> list[Source]:
    from cudagraph_doctor.audit.engines import load
    from cudagraph_doctor.audit.job import Source

    if click.get_current_context().params["target"]:
        return []  # its keys are known when it was measured
    if not own["buckets"]:
        return [Source(path.name, load.contents(path)) for path in own["configurations"]]
    plain: dict[str, Any] = {"padding": own["padding"]}
    if own["tokens_per_request"]:
        plain |= {"tokens_per_request": own["tokens_per_request"], "unit": "tokens"}
    return [Source("--buckets", {"buckets": list(keys), **plain}) for keys in own["buckets"]]


def _refuse(own: dict[str, Any]) -> None:
    context = click.get_current_context()
    given = [name for name in ("workload", "from_trace", "arrivals") if own[name]]
    if len(given) > 1:
        words = " and ".join("--" + name.replace("_", "-") for name in given)
        raise click.UsageError(f"{words} each say what the traffic is: give one of them.")
    if own["configurations"] and own["buckets"] and not on_command_line(context, "buckets"):
        own["buckets"] = ()  # those of pyproject.toml are other commands'
    if own["configurations"] and own["buckets"]:
        raise click.UsageError("a CONFIGURATION and --buckets each say what the keys are: give one of them.")
    if target := context.params["target"]:
        for name in ("configurations", "engine", "rule", "costs"):
            if own[name]:
                what = "a CONFIGURATION" if name == "configurations" else f"--{name}"
                raise click.UsageError(f"{what} and --target {target} do not go together: the target is measured.")
    elif not own["configurations"] and not own["buckets"]:
        raise click.UsageError(
            "give a CONFIGURATION, a list with --buckets 1,2,4,8 --max-batch 8, or a target with --target SPEC."
        )
    if own["buckets"] and (own["engine"] or own["rule"]):
        raise click.UsageError("--engine and --rule are for a CONFIGURATION; --buckets is a plain list.")
    if own["costs"] and own["cost_model"] != audit_values.cost_model(None):
        raise click.UsageError("--costs and --cost-model both say what steps cost: give one of them.")
    needs = {
        "arrivals": ("output_length", "burst", "seconds", *(() if target else ("seed",))),
        "workload": ("column", "weight", "unit"),
        "from_trace": ("step_pattern",),
        "buckets": ("padding", "tokens_per_request"),
    }
    for main, extras in needs.items():
        for extra in extras if not own[main] else ():
            if on_command_line(context, extra):
                raise click.UsageError(
                    f"--{extra.replace('_', '-')} is for --{main.replace('_', '-')}, which is not given."
                )
