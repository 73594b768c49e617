"""The command line: options -> Settings, the report to where it was asked for, the exit code. Start of the path.

Next: `examine.py` (Settings -> Report). Nothing here imports torch.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click

from cudagraph_doctor import __version__, options, output, policy
from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.settings import Settings


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cudagraph-doctor")
def cli() -> None:
    """Find out why a PyTorch decode loop misbehaves under CUDA Graphs; name the culprit, prove it, say the fix."""


_POSITIVE = click.IntRange(min=1)


@cli.command()
@click.argument("spec", default="reference")
@click.option("--steps", type=_POSITIVE, default=8, show_default=True, help="Decode steps compared for each bucket.")
@click.option("--buckets", callback=options.sizes, metavar="N,N,...",
              help="Buckets to look at. Default: the smallest, a middle and the largest.")
@click.option("--batch-sizes", callback=options.sizes, metavar="N,N,...",
              help="Batch sizes to play, in this order. Default: an order that finds stale tails.")
@click.option("--exhaustive", is_flag=True, help="All buckets.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the target (if it takes one) and the plan.")
@click.option("--rtol", multiple=True, callback=options.bounds, metavar="[OUTPUT=]X",
              help="Relative bound for eager against graph, for one output or all; repeatable. Default: the measured noise.")
@click.option("--atol", multiple=True, callback=options.bounds, metavar="[OUTPUT=]X", help="Absolute bound, likewise.")
@click.option("--backend", type=click.Choice(["auto", "cuda", "emulated"]), default="auto", show_default=True,
              help="auto: the GPU if there is one, else emulated on the CPU.")
@click.option("--target-arg", "-a", multiple=True, callback=options.pairs, metavar="NAME=VALUE",
              help="Argument for the target's function; repeatable.")
@click.option("--fault", default="", metavar="NAME", help="Plant a fault into the bundled model (see `faults`).")
@click.option("--twin", is_flag=True, help="With --fault: its sound twin instead.")
@click.option("--app-dir", type=click.Path(exists=True, file_okay=False), default=".", show_default=True,
              help="Folder in which modules are looked for first.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=1800.0, show_default=True,
              metavar="SECONDS", help="Stop after this time and show where it hangs.")
@click.option("--in-process", is_flag=True, help="Run in this process, for a debugger.")
@click.option("--format", "outputs", multiple=True, callback=options.formats, metavar="FORMAT[=FILE]",
              help="terminal or json; to stdout, or with =FILE to a file; repeatable.")
@click.option("--fail-on", type=click.Choice(policy.FAIL_ON), default="error", show_default=True,
              help="Least severity that makes the exit code 1.")
@click.option("--no-values", is_flag=True, help="Keep values (token ids, ...) out of the report.")
@click.option("--debug", is_flag=True, help="Show tracebacks and stacks.")
@click.option("--verbose", is_flag=True, help="Show all steps and all evidence.")
def diff(
    spec: str, rtol: dict[str, float], atol: dict[str, float], target_arg: dict[str, str], timeout: float,
    no_values: bool, outputs: tuple[options.Output, ...], fail_on: str, debug: bool, verbose: bool, **plain: Any,
) -> int:
    """Compare eager decode steps with replays of captured graphs.

    SPEC names the target: package.module:attr, path/file.py:attr, or the bundled model: reference, reference:loop,
    reference:engine.
    """
    settings = Settings(
        check="diff", spec=spec, tolerances=options.tolerances(rtol, atol), target_args=target_arg, timeout_s=timeout,
        values=not no_values, debug=debug, **plain,
    )
    from cudagraph_doctor.display import for_stderr
    from cudagraph_doctor.examine import examine

    report = examine(settings, for_stderr())
    output.write(report, outputs, verbose=verbose, debug=debug)
    return policy.exit_code(report, fail_on)


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
        click.echo(f"cudagraph-doctor: {error}", err=True)
        if error.traceback and "--debug" in (sys.argv if arguments is None else arguments):
            click.echo(error.traceback, err=True)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        click.echo(f"cudagraph-doctor {__version__}: this is a bug of ours; please report it with the lines above.", err=True)
        return policy.OUR_BUG
