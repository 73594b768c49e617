"""What `inputs` costs, in four lines: measured, allowed, and whether it is over. One run, side by side.

    python benchmarks/inputs_cost.py [--preset large] [--rows 4] [--backend auto]

- Proof: the whole check over two neighbouring steps of one bucket, so that there is something to compare: the passes
  that find the state, all captures (the first, one of the step as it is now, and those that are compared), every arm
  with its control, what replays read beside what they should have, handover and free run, the judging. Not in it:
  importing torch, making the model, and the first launch of each kernel, which compiles it.
- Fingerprints: of all live memory, which is the target's own and two large blocks; the host's part included. Copy
  bandwidth is bytes copied a second, each of which is read once and written once; read and written together are twice
  as much, and told besides. A fingerprint reads each byte once and writes next to nothing.
- Observed replay, of the preset `default`: a step staged and replayed until the device is done, with and without
  `inputs` looking at all tensors right before the launch. Medians, alternating.
- Copies: the most that the doctor's own memory comes to in another such proof, seen whenever state was copied or put
  back, and before each replay. Allowed is as much as the target's caches take: one snapshot.

Below it, where the time of the proof went: by stage, functions without what they call of each other (`phases.py`).

Emulated, memory is no device's: fingerprints and copies are left out, and nothing is judged. Exits 1 if a line is over.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from phases import Phases

from cudagraph_doctor import reference_models
from cudagraph_doctor.checks import replay_inputs
from cudagraph_doctor.findings import Outcome
from cudagraph_doctor.graph import memory
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.scene import Scene, looking
from cudagraph_doctor.proof.start import discover, planned, subject_of
from cudagraph_doctor.proof.state import Memory
from cudagraph_doctor.settings import Settings

MOST_SECONDS = 10.0
LEAST_SHARE = 0.5
MOST_TIMES = 2.0
LARGE_BLOCK = 8 << 30
REPEATS = 15


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    measured: str
    allowed: str
    ok: bool
    besides: str = ""

    def told(self, judged: bool) -> str:
        """As it is printed; `judged`: whether the limit is meant for where it was measured."""
        verdict = "    " if not judged else "ok  " if self.ok else "OVER"
        return f"{self.what:16} {self.measured:>14}  allowed {self.allowed:>18}  {verdict}  {self.besides}".rstrip()


@dataclass
class Stages(Silent):
    """Notes how long each stage of the check took."""

    seconds: dict[str, float] = field(default_factory=dict)
    _open: tuple[str, float] = ("before", 0.0)

    def stage(self, text: str, total: int) -> None:
        """The stage before is over."""
        now = time.perf_counter()
        name, since = self._open
        if since:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - since
        self._open = (text, now)

    def current(self) -> str:
        """The stage that is under way."""
        return self._open[0]

    def __str__(self) -> str:
        return ", ".join(f"{name} {took:.1f} s" for name, took in self.seconds.items())


def backend_named(name: str) -> Backend:
    """The backend; "auto" as the command line has it."""
    if name == "cuda" or (name == "auto" and not CudaBackend.why_unusable()):
        return CudaBackend()
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    return EmulatedBackend()


def seconds(action: Callable[[], object], backend: Backend) -> float:
    """Until the device is done."""
    backend.synchronize()
    started = time.perf_counter()
    action()
    backend.synchronize()
    return time.perf_counter() - started


def asked(rows: int) -> Settings:
    """Two steps of one bucket."""
    return Settings(check="inputs", steps=2, batch_sizes=(rows,))


def proof(target: Any, backend: Backend, rows: int) -> tuple[Line, list[str]]:
    """The whole check, timed, and where the time went."""
    target.forward(target.next_inputs(0, rows))  # kernels are compiled and loaded
    Memory(backend).fingerprint()
    outcomes: list[Outcome] = []
    stages = Stages()
    phases = Phases(stages.current)
    with phases.measured():
        took = seconds(lambda: outcomes.append(replay_inputs.run(target, backend, asked(rows), stages)), backend)
    stages.stage("", 0)
    if outcomes[0].findings:
        raise SystemExit(f"the target is sound, and yet: {outcomes[0].findings}")
    line = Line("proof", f"{took:.2f} s", f"{MOST_SECONDS:.0f} s", took <= MOST_SECONDS, str(stages))
    return line, phases.told(stages.seconds, backend)


def fingerprints(backend: Backend) -> Line:
    """Bytes a second beside those of a copy."""
    size = min(LARGE_BLOCK, backend.free_bytes() // 4)
    blocks = [torch.randint(0, 256, (size,), dtype=torch.uint8, device=backend.device) for _ in range(2)]
    watched = Memory(backend)

    def measured(action: Callable[[], object]) -> float:
        return statistics.median(seconds(action, backend) for _ in range(REPEATS))

    copied = size / measured(lambda: blocks[0].copy_(blocks[1]))
    seen = watched.live_bytes / measured(watched.fingerprint)
    least = LEAST_SHARE * copied
    return Line(
        "fingerprints",
        f"{seen / 1e12:.2f} TB/s",
        f"> {least / 1e12:.2f} TB/s",
        seen > least,
        f"{watched.live_bytes / 2**30:.1f} GiB in {len(watched.blocks)} blocks; a copy: {copied / 1e12:.2f} TB/s "
        f"copied, {2 * copied / 1e12:.2f} TB/s read and written",
    )


def observed_replay(target: Any, backend: Backend, rows: int) -> Line:
    """With the look and without it."""
    subject = subject_of(target, backend)
    _, plan = planned(subject, asked(rows))
    arms = Arms(subject, backend)
    discover(arms, plan, Silent(), 1)
    arms.begin(plan)
    at, scene = plan[0], Scene([], {}, {}, {})
    plain, observed = list[float](), list[float]()
    for _ in range(3 + 2 * REPEATS):
        plain.append(seconds(lambda: subject.replayed(at), backend))
        with looking(arms, at, scene):
            observed.append(seconds(lambda: subject.replayed(at), backend))
    middle = [statistics.median(some[3:]) for some in (plain, observed)]  # the first ones warm up
    times = middle[1] / middle[0]
    besides = f"{middle[1] * 1e3:.2f} ms beside {middle[0] * 1e3:.2f} ms"
    return Line("observed replay", f"{times:.2f} times", f"{MOST_TIMES:.0f} times", times <= MOST_TIMES, besides)


def copies(target: Any, backend: Backend, rows: int) -> Line:
    """The most that the doctor's memory comes to, beyond what it holds before."""
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    start, most, before = own_bytes(backend), 0, torch.cuda.memory_allocated()

    def look(*_: object) -> None:
        nonlocal most
        most = max(most, own_bytes(backend) - start)

    def looking_after(name: str) -> AbstractContextManager[object]:
        original = getattr(Memory, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            look()
            return result

        return mock.patch.object(Memory, name, watched)

    with backend.log.listening(replaying=look), looking_after("save"), looking_after("restore"):
        replay_inputs.run(target, backend, asked(rows), Silent())
    caches = sum(cache.nbytes for cache in target.state().values())
    peak = torch.cuda.max_memory_allocated() - before
    besides = f"all that was allocated, graphs and their captures included: at most {peak / 2**20:.1f} MiB"
    return Line("copies", f"{most / 2**20:.1f} MiB", f"{caches / 2**20:.1f} MiB", most <= caches, besides)


def own_bytes(backend: Backend) -> int:
    """What the doctor has allocated: all that is, but for what it takes for the target's."""
    theirs = {block.address for block in backend.blocks()}
    every = memory.live_blocks(memory.snapshot(), torch.cuda.current_device())
    return sum(block.bytes for block in every if block.address not in theirs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="large")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--backend", choices=("auto", "cuda", "emulated"), default="auto")
    options = parser.parse_args()
    backend = backend_named(options.backend)
    with backend.installed(), torch.no_grad():
        device = torch.cuda.get_device_name() if backend.name == "cuda" else "emulated"
        print(f"{device}, torch {torch.__version__}, preset {options.preset}, {options.rows} rows")
        small: Any = reference_models.load("loop", device=backend.device, preset="default")
        observed = observed_replay(small, backend, options.rows)
        del small
        target: Any = reference_models.load("loop", device=backend.device, preset=options.preset)
        proven, phases = proof(target, backend, options.rows)
        lines = [proven, observed]
        if backend.name == "cuda":
            lines.insert(1, fingerprints(backend))
            lines.append(copies(target, backend, options.rows))
    judged = backend.name == "cuda"
    print(*(line.told(judged) for line in lines), "", *phases, sep="\n")
    if not judged:
        print("Limits are for a GPU. Not measured: fingerprints and copies, as emulated memory is no device's.")
    raise SystemExit(0 if all(line.ok for line in lines) or not judged else 1)


if __name__ == "__main__":
    main()
