"""The faults that a capture is refused for, or that it leaves out without a word. A table, read without torch.

The code is in `faulty_capture.py` (values read), `faulty_copies.py`, `faulty_streams.py`, `faulty_neighbours.py`
(libraries, threads, other graphs) and `faulty_start.py` (what is done for the first time in the capture). Eagerly, all
of them give the right results. The lines that have to be named carry the comment `# planted: NAME CODE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cudagraph_doctor.reference_models.faults import Fault

_SOURCES = tuple(f"faulty_{part}.py" for part in ("capture", "copies", "streams", "neighbours", "start"))
_MARK = re.compile(r"# planted: (?P<name>[\w-]+) (?P<code>CGD\d{3})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFault(Fault):
    """A fault planted into a captured step."""

    module: str = "sampler"
    """Path, in the model, of the module that has it; "" for the step itself."""
    thread: str = ""
    """Beginning of the name of the thread that does it; "" for the one that captures."""
    silent: bool = False
    """The capture succeeds, and is wrong."""
    first_use: bool = False
    """It shows only in a process that has not done the same before."""
    needs_cupti: bool = False
    """A call past torch: without CUPTI its line cannot be told."""


@dataclass(frozen=True, slots=True)
class PlantedLine:
    """A line that has to be named."""

    file: str
    line: int
    code: str
    """The rule to name it under."""


def planted_lines(name: str, sources: Iterable[str] = _SOURCES) -> list[PlantedLine]:
    """The marked lines of a fault in these files of this folder, in the order of the source."""
    found = []
    for file in sources:
        path = Path(__file__).resolve().with_name(file)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            mark = _MARK.search(line)
            if mark and mark["name"] == name:
                found.append(PlantedLine(str(path), number, mark["code"]))
    return found


_ALL = (
    CaptureFault(
        name="item",
        rule="CGD201",
        culprit="Tensor.item",
        summary="An MLP looks at its largest output with .item(), to raise if it ran away.",
        twin="It clamps on the device.",
        module="layers.1.mlp",
    ),
    CaptureFault(
        name="if-tensor",
        rule="CGD201",
        culprit="bool of a tensor",
        summary="Python branches on whether any request is longer than the table.",
        twin="torch.where decides on the device.",
    ),
    CaptureFault(
        name="cpu-copy",
        rule="CGD201",
        culprit="Tensor.cpu",
        summary="Lengths are copied to the host with .cpu().",
        twin="They are copied into a pinned buffer with non_blocking=True, to be read after the replay.",
    ),
    CaptureFault(
        name="tolist",
        rule="CGD201",
        culprit="Tensor.tolist",
        summary="Python loops over the lengths.",
        twin="The same sum is made on the device.",
    ),
    CaptureFault(
        name="print-tensor",
        rule="CGD201",
        culprit="print or repr of a tensor",
        summary="A tensor is printed.",
        twin="Its shape is printed.",
    ),
    CaptureFault(
        name="boolean-mask",
        rule="CGD202",
        culprit="aten.index",
        summary="Live rows are taken out with a boolean mask.",
        twin="torch.where keeps all rows and zeroes the others.",
    ),
    CaptureFault(
        name="nonzero",
        rule="CGD202",
        culprit="aten.nonzero",
        summary="The numbers of live rows come from nonzero().",
        twin="They come from a fixed range and torch.where.",
    ),
    CaptureFault(
        name="repeat-interleave",
        rule="CGD202",
        culprit="aten.repeat_interleave",
        summary="Rows are repeated by counts on the device, without output_size.",
        twin="output_size is given.",
    ),
    CaptureFault(
        name="tensor-from-list",
        rule="CGD203",
        culprit="torch.tensor",
        summary="A constant is made in the step from a Python list.",
        twin="It is made before the step.",
    ),
    CaptureFault(
        name="pageable-copy",
        rule="CGD203",
        culprit="aten.copy_",
        summary="A bias is copied from pageable memory; non_blocking=True does not help.",
        twin="The source is pinned.",
    ),
    CaptureFault(
        name="blocking-pinned-copy",
        rule="CGD203",
        culprit="aten.copy_",
        summary="A bias is copied from pinned memory, without non_blocking=True.",
        twin="With it.",
    ),
    CaptureFault(
        name="index-by-list",
        rule="CGD203",
        culprit="index",
        summary="Columns are chosen with a Python list.",
        twin="They are chosen with a tensor on the device.",
    ),
    CaptureFault(
        name="synchronize",
        rule="CGD204",
        culprit="torch.cuda.synchronize",
        summary="The device is waited for.",
        twin="It is waited for unless the stream is capturing.",
    ),
    CaptureFault(
        name="stream-synchronize",
        rule="CGD204",
        culprit="Stream.synchronize",
        summary="The current stream is waited for.",
        twin="Another stream is made to wait for it.",
    ),
    CaptureFault(
        name="event-synchronize",
        rule="CGD204",
        culprit="Event.synchronize",
        summary="The event that says that the weights are there is waited for by the host.",
        twin="It was waited for when the weights were loaded.",
    ),
    CaptureFault(
        name="stream-query",
        rule="CGD205",
        culprit="Stream.query",
        summary="The current stream is polled.",
        twin="It is asked whether it is capturing, and polled only if not.",
    ),
    CaptureFault(
        name="event-query",
        rule="CGD205",
        culprit="Event.query",
        summary="The event that says that the weights are there is polled.",
        twin="An event is recorded for whoever polls after the replay.",
    ),
    CaptureFault(
        name="unregistered-generator",
        rule="CGD206",
        culprit="aten.exponential_",
        summary="Noise is drawn from a generator of the sampler's own, which no graph knows.",
        twin="It is drawn from the default generator.",
    ),
    CaptureFault(
        name="manual-seed",
        rule="CGD206",
        culprit="torch.cuda.manual_seed",
        summary="The device's generator is seeded from the clock in every step.",
        twin="It is seeded once.",
    ),
    CaptureFault(
        name="three-at-once",
        rule="CGD201",
        culprit="Tensor.item",
        summary="A host read, a boolean mask and a synchronisation in one step: all three have to be named.",
        twin="All three are done on the device, or left out.",
    ),
    CaptureFault(
        name="host-source-dies",
        rule="CGD216",
        culprit="aten.copy_",
        summary="The captured copy reads a pinned tensor that nobody keeps.",
        twin="The sampler keeps it.",
        silent=True,
    ),
    CaptureFault(
        name="attribute-written",
        rule="CGD217",
        culprit="steps",
        summary="Python counts the steps inside the step, and staging looks at the count.",
        twin="Staging counts.",
        module="",
        silent=True,
    ),
    CaptureFault(
        name="autocast-around-captures",
        rule="CGD221",
        culprit="autocast",
        summary="All buckets are captured within one autocast, which casts a head's weights in the first warm-up.",
        twin="Only the step itself enters autocast, so that each graph casts for itself.",
        module="",
        silent=True,
    ),
    CaptureFault(
        name="unjoined-stream",
        rule="CGD208",
        culprit="Stream.wait_stream",
        summary="Statistics are made on a side stream that nobody waits for.",
        twin="The step waits for it.",
    ),
    CaptureFault(
        name="foreign-event",
        rule="CGD209",
        culprit="Stream.wait_event",
        summary="The step's stream waits for an event that was recorded when the weights were loaded.",
        twin="It waits for an event that the step itself records on a side stream.",
    ),
    CaptureFault(
        name="default-stream-launch",
        rule="CGD214",
        culprit="aten.add_",
        summary="A counter is advanced on the default stream: during the capture, and by no replay.",
        twin="On the current stream.",
        silent=True,
    ),
    CaptureFault(
        name="skipped-in-capture",
        rule="CGD220",
        culprit="aten.add_",
        summary="A counter is advanced unless the stream is capturing: by eager steps, and by no replay.",
        twin="It is always advanced; what is left out only looks at the logits.",
        silent=True,
    ),
    CaptureFault(
        name="empty-graph",
        rule="CGD215",
        culprit="empty graph",
        summary="The step runs on a stream of its own; the waits that made captures fail are left out in a capture.",
        twin="That stream waits for the current one, and is waited for, always.",
        module="",
        silent=True,
    ),
    CaptureFault(
        name="cuda-malloc",
        rule="CGD207",
        culprit="cudaMalloc",
        summary="A library allocates scratch memory with cudaMalloc in each call, and ignores what that returns.",
        twin="The scratch memory is torch's.",
        needs_cupti=True,
        emulated=False,
        why_not_emulated="there is no cudaMalloc without CUDA",
    ),
    CaptureFault(
        name="library-synchronize",
        rule="CGD218",
        culprit="cudaDeviceSynchronize",
        summary="A library waits for the device, and ignores what that returns.",
        twin="It is not called in a capture.",
        needs_cupti=True,
        emulated=False,
        why_not_emulated="there is no library to call without CUDA",
    ),
    CaptureFault(
        name="nested-capture",
        rule="CGD210",
        culprit="torch.cuda.graph",
        summary="A codec behind the model captures a graph of its own for every input address that is new to it.",
        twin="It does not when somebody else is capturing.",
        module="codec",
    ),
    CaptureFault(
        name="other-thread-event",
        rule="CGD211",
        culprit="Event.query",
        summary="A background thread polls an event in the middle of the step.",
        twin="It polls between steps.",
        module="",
        thread="event-poller",
    ),
    CaptureFault(
        name="other-thread-pinned",
        rule="CGD211",
        culprit="Tensor.pin_memory",
        summary="A background thread allocates pinned memory in the middle of the step.",
        twin="It allocates between steps.",
        module="",
        thread="loader",
        emulated=False,
        why_not_emulated="only the main thread has memory that counts as pinned",
    ),
    CaptureFault(
        name="graph-collected",
        rule="CGD212",
        culprit="CUDAGraph",
        summary="The garbage collector runs in the step, and destroys an old graph that is in a reference cycle.",
        twin="It runs before the step.",
        emulated=False,
        why_not_emulated="the end of an emulated graph frees nothing that a capture forbids",
    ),
    CaptureFault(
        name="autotune-not-warmed",
        rule="CGD213",
        culprit="Event.synchronize",
        summary="A norm tunes itself once for each number of rows; only the largest bucket is warmed up.",
        twin="All are.",
        forms=("engine",),
        module="norm",
        first_use=True,
    ),
    CaptureFault(
        name="compile-not-warmed",
        rule="CGD213",
        culprit="torch.compile",
        summary="A norm is compiled anew for each number of rows; only the largest bucket is warmed up.",
        twin="All are.",
        forms=("engine",),
        module="norm",
        first_use=True,
        emulated=False,
        why_not_emulated="compiled functions run as they are written there",
    ),
    CaptureFault(
        name="solver-not-warmed",
        rule="CGD213",
        culprit="cholesky",
        summary="The warm-up leaves out the norm, which is the first to use the solver library.",
        twin="It runs the whole model.",
        forms=("engine",),
        module="norm",
        first_use=True,
        needs_cupti=True,
        emulated=False,
        why_not_emulated="there is no solver library to start on a CPU",
    ),
)

CAPTURE_FAULTS: dict[str, CaptureFault] = {fault.name: fault for fault in _ALL}
"""By name, in order."""
