"""What to do about an operation that cannot be captured: by its name where that is known, else by its class."""

from __future__ import annotations

from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.model import Operation

_KEEP = (
    "Keep the value on the device (torch.where, masked_fill, clamp instead of Python's if and max), or read it outside "
    "of the captured step, after the replay."
)
_PINNED = "Copy into pinned memory with non_blocking=True inside the step, and read it on the host after the replay."

_CONSTANT = (
    "Make the constant once, before the capture, and keep it (register_buffer); a list that changes belongs into a "
    "static input that is copied into before each replay."
)
_INDICES = "Index by a tensor on the device that is made before the capture and kept, not by a list or host tensor."

_BY_NAME = {
    "Tensor.__bool__": "Let the device decide: torch.where(condition, a, b) instead of `if`; or branch outside of the "
    "captured step, and give each way a graph of its own.",
    "Tensor.__index__": "Slice and loop by Python integers that are known before the capture, such as an upper bound, "
    "and mask what lies beyond.",
    "Tensor.__getitem__": _INDICES,
    "Tensor.__setitem__": _INDICES,
    "Tensor.cpu": _PINNED,
    "Tensor.tolist": "Do the loop on the device, or make the list before the step, on the host, where the values come "
    "from.",
    "Tensor.__repr__": "Print after the replay, a copy of the static output; inside the step print shapes only.",
    "torch.tensor": _CONSTANT,
    "torch.as_tensor": _CONSTANT,
    "torch.asarray": _CONSTANT,
    "Tensor.new_tensor": "Make the constant once, before the capture, and keep it; new_full fills on the device.",
    "aten.nonzero": "Work on all elements under a mask (torch.where with three arguments), or give the output a fixed "
    "size: torch.nonzero_static(x, size=N).",
    "aten.index": "Keep the shape: torch.where(mask, x, fill); or choose rows by an index tensor of fixed size (topk, "
    "argsort of the mask).",
    "aten.index_put_": "Write all elements: x.copy_(torch.where(mask, new, x)), or masked_fill_ for one number.",
    "aten.masked_select": "Keep the shape: torch.where(mask, x, fill).",
    "aten.repeat_interleave": "Give output_size=, the sum of the repeats, which the host has to know beforehand.",
    "aten.bincount": "Use torch.zeros(n, ...).scatter_add_(0, index, ones) with a fixed number of bins.",
    "aten._unique2": "Sort instead, and mark where neighbours differ: the output keeps its size.",
    "aten.unique_dim": "Sort instead, and mark where neighbours differ: the output keeps its size.",
    "aten.equal": "Compare elementwise and reduce on the device: (a == b).all(), read after the replay.",
    "torch.manual_seed": "Seed before the capture; replays advance a registered generator by themselves.",
}
"""By a call's name, or an operator's without its overload."""

_BY_KIND = {
    Kind.LEFT_OUT: "Do it in the capture too, or after each replay, outside of the graph; only what eager steps need "
    "for themselves may depend on torch.cuda.is_current_stream_capturing().",
    Kind.HOST_READ: _KEEP,
    Kind.SHAPE_FROM_VALUES: "Give the output a size that does not depend on values: work on all elements under a mask "
    "(torch.where), or on a fixed upper bound.",
    Kind.PAGEABLE_COPY: "Put the source into a static device buffer before the replay; or copy from a pinned tensor "
    "that stays alive, with non_blocking=True.",
    Kind.BLOCKING_COPY: "Give the copy non_blocking=True (the host memory is pinned), or do it before the replay.",
    Kind.SYNCHRONISATION: "Take it out of the captured step: nothing runs while capturing, so there is nothing to wait "
    "for. Where the same code also runs eagerly: `if not torch.cuda.is_current_stream_capturing()`.",
    Kind.QUERY: "Take it out of the captured step, and poll after the replay an event that is recorded behind it.",
    Kind.GENERATOR: "Seed and read generators before the capture. One of your own has to be known to the graph before: "
    "graph.register_generator_state(generator).",
    Kind.ALLOCATION: "Allocate before the capture and keep it, or through torch's allocator (torch.empty), which has a "
    "pool for the graph.",
    Kind.PINNED_ALLOCATION: "Allocate pinned memory before the capture, and reuse it.",
    Kind.UNJOINED_FORK: "Join it before the step ends: torch.cuda.current_stream().wait_stream(side).",
    Kind.UNCAPTURED_WORK: "Wait for earlier work before the capture begins. Inside, wait only for events that were "
    "recorded in the same capture, on streams that were forked from the capturing one, never the default stream.",
    Kind.NESTED_CAPTURE: "Let the inner module run its plain path while somebody else captures (`if not "
    "torch.cuda.is_current_stream_capturing()`), or switch its own graphs off (enforce_eager, cuda_graph=False, a "
    'torch.compile mode other than "reduce-overhead").',
    Kind.OTHER_THREAD: "Keep that thread still during captures, or capture with "
    'capture_error_mode="thread_local", which lets other threads do as they like.',
    Kind.DESTROYED_GRAPH: "Drop old graphs and run gc.collect() before the capture, and gc.disable() during it.",
    Kind.FIRST_USE: "Run the very body once eagerly before it is captured, on the capture stream, with this shape and "
    "data type: a warm-up for each bucket.",
    Kind.OUTSIDE_CAPTURE: "Issue it to the capturing stream, or fork: side.wait_stream(torch.cuda.current_stream()) "
    "before, torch.cuda.current_stream().wait_stream(side) after.",
    Kind.HOST_SOURCE: "Keep the pinned source alive as long as the graph (an attribute), and write new values into it.",
    Kind.LIBRARY_CALL: "Keep the call out of captures, or ask the library for a path that can be captured.",
    Kind.UNKNOWN: "Take this line out of the captured step, or guard it with torch.cuda.is_current_stream_capturing().",
}


def fix_of(operation: Operation) -> str:
    """What to do about it, in one or two sentences."""
    if operation.kind in (Kind.OTHER_THREAD, Kind.OUTSIDE_CAPTURE, Kind.HOST_SOURCE, Kind.FIRST_USE):
        return _BY_KIND[operation.kind]
    if "preserve_rng_state" in operation.detail:
        return "Give checkpoint() preserve_rng_state=False, or leave it out: a decode step keeps no gradients."
    name = operation.name
    base = ".".join(name.split(".")[:2]) if name.startswith("aten.") else name
    if base == "aten.index" and operation.kind is not Kind.SHAPE_FROM_VALUES:
        return _INDICES
    if base == "aten._to_copy" and operation.kind is Kind.HOST_READ:
        return _PINNED
    return _BY_NAME.get(base, _BY_KIND[operation.kind])
