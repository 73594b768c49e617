"""The child: plays a target's decode loop once, with labelled steps, while nsys or torch.profiler watches.

Run as `python -m cudagraph_doctor.recording.play JOB`; what went wrong is one JSON line on stderr, marked by `MARK`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence

from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.recording.job import Job
from cudagraph_doctor.settings import Settings

MARK = "cudagraph-doctor-error: "
_SIZES = (1, 2, 3, 4, 5, 7, 8)


def play(job: Job) -> None:
    """Play it. Raises DoctorError, and whatever the target raises."""
    from cudagraph_doctor import environment

    obstacle = environment.gpu_obstacle()
    if obstacle:
        raise Inconclusive(
            "A trace of the target needs a GPU.",
            seen=obstacle,
            fix="Record on a machine with one (see `cudagraph-doctor env`).",
        )
    import torch

    from cudagraph_doctor import loader
    from cudagraph_doctor.recording.ranges import Ranges
    from cudagraph_doctor.recording.runner import runner_of

    ranges = Ranges(annotate=job.profiler == "torch", add=job.ranges)
    with contextlib.ExitStack() as stack:
        profiler = None
        if job.profiler == "torch":
            activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
            torch.cuda.init()
            # without it, annotations that the target's other threads make are lost
            config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
            profiler = stack.enter_context(torch.profiler.profile(activities=activities, experimental_config=config))
        stack.enter_context(ranges.installed())
        loaded = loader.load(job.settings, "cuda")
        planned = plan(loaded.target, job.settings)
        runner = runner_of(loaded.target, loaded.form, ranges, planned)
        torch.cuda.synchronize()
        for number, rows in planned:
            with ranges.step(number, rows, runner.bucket(number, rows)) if number else contextlib.nullcontext():
                runner.step(number, rows)
            torch.cuda.current_stream().synchronize()  # a decode loop reads its tokens
        torch.cuda.synchronize()
    if profiler is not None:
        profiler.export_chrome_trace(job.output)


def plan(target: object, settings: Settings) -> list[tuple[int, int]]:
    """(step, rows) of all steps: the given batch sizes in turn, else the target's, else buckets and one less each."""
    sizes: Sequence[int] = settings.batch_sizes or tuple(getattr(target, "batch_sizes", ()))
    if not sizes:
        buckets = sorted(getattr(target, "buckets", ()))
        sizes = sorted({size for bucket in buckets for size in (bucket, bucket - 1) if size > 0}) or _SIZES
    return [(number, sizes[number % len(sizes)]) for number in range(settings.steps)]


def main() -> int:
    """Entry of the child; exit code 0, or 1 with the reason on stderr."""
    try:
        play(Job.loads(sys.argv[1]))
    except DoctorError as error:
        told = {"what": error.what, "seen": error.seen, "fix": error.fix, "exit_code": error.exit_code}
        print(MARK + json.dumps(told), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
