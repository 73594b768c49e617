"""How the state differs after two runs of one step: which elements, of which tensor, and who left them wrong.

Told apart without a tolerance: *extra* (the graph wrote what eager leaves alone), *missing* (eager wrote, the graph did
not), *other* (both wrote, other values).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from cudagraph_doctor.graph.unseen import unseen
from cudagraph_doctor.proof.arms import UNNAMED, span
from cudagraph_doctor.proof.compare import Level, relative_tolerance
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.state_changes import unlike

_SHOWN = 16
_ADDRESSES = ("slot", "block", "table", "page", "loc", "index", "indices", "idx")
"""Parts of the names that engines give to inputs which address a cache."""


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of one state tensor that differ, grouped by their leading index."""

    name: str
    index: tuple[int, ...]
    """Leading dimensions of the tensor: (row,), or (..., block, slot) for a paged cache."""
    linear: int
    """The last two of them flattened: the slot number."""
    kind: str
    """"extra", "missing" or "other"."""


@dataclass(slots=True)
class StateDifference:
    """The state of one result against its reference."""

    level: Level = Level.EQUAL
    extra: int = 0
    missing: int = 0
    other: int = 0
    """Numbers of elements (of 8-byte words where no tensor has a name)."""
    wrong: int = 0
    """How many of them differ by more than rounding (unnamed words count: nobody knows)."""
    places: list[Place] = field(default_factory=list)
    names: dict[str, None] = field(default_factory=dict)
    suspicious: dict[Extent, torch.Tensor] = field(default_factory=dict)
    """By extent, a mask of the bytes that differ by more than rounding: whether they do harm is for `harm`."""

    def __str__(self) -> str:
        parts = [
            f"{n} {word}"
            for n, word in (
                (self.extra, "written that eager leaves alone"),
                (self.missing, "not written"),
                (self.other, "written with other values"),
            )
            if n
        ]
        names = list(self.names)
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return f"state {', '.join(names[:2])}{more}: elements " + ", ".join(parts)


def owner(place: Place, inputs: Mapping[str, torch.Tensor]) -> str:
    """Whose slot this is: the integer inputs that hold its number, with their row; "" if none does.

    A flat number (a slot) counts before a leading index (a block).
    """
    if not place.index:  # a tensor of one element
        return ""
    for number, what in ((place.linear, "slot"), (place.index[-2:][0], "block"))[: len(place.index)]:
        named = []
        for name, value in inputs.items():
            if value.dim() and not value.dtype.is_floating_point and value.dtype is not torch.bool:
                rows = (value == number).flatten(1).any(1) if value.dim() > 1 else value == number
                named += [f"row {row} of {name}" for row in rows.nonzero().flatten()[:2].tolist()]
        # a position or a token may be the same number by chance
        telling = [text for text in named if any(word in text.lower() for word in _ADDRESSES)]
        if telling or named:
            return f"{what} {number}: {', '.join((telling or named)[:4])}"
    return ""


def leading(shape: torch.Size) -> int:
    """How many leading dimensions find a slot: all but the last two of (..., block, slot, head, dim), else one."""
    return len(shape) - 2 if len(shape) >= 4 else 1


def unravel(number: int, shape: torch.Size) -> tuple[int, ...]:
    """The index of element `number` of a tensor of this shape."""
    index: list[int] = []
    for size in reversed(shape):
        number, at = divmod(number, size)
        index.insert(0, at)
    return tuple(index)


def state_difference(
    before: Mapping[Extent, torch.Tensor],
    reference: Mapping[Extent, torch.Tensor],
    result: Mapping[Extent, torch.Tensor],
    tensors: Mapping[str, torch.Tensor],
    reserved: Sequence[tuple[torch.Tensor, Sequence[int]]],
) -> StateDifference:
    """Compare the state after a run with a reference run's.

    Args:
        before: bytes before the step.
        reference: bytes after the reference run.
        result: bytes after the run that is judged.
        tensors: names, for typed comparison and for places.
        reserved: tensors with rows of dimension 0 that may hold anything, under whatever name these bytes are met.
    """
    found = StateDifference()
    spans = [(name, tensor, *span(tensor)) for name, tensor in tensors.items() if tensor.is_contiguous()]
    with unseen():
        for extent in unlike(reference, result):
            if extent not in before:
                continue
            was, ref, new = before[extent], reference[extent], result[extent]
            end = extent.address + extent.bytes
            covered = torch.zeros(extent.bytes, dtype=torch.bool, device=ref.device)
            spare = _spare(extent, reserved, ref.device)
            for name, tensor, start, size in spans:
                low, high = max(start, extent.address), min(start + size, end)
                if low >= high:
                    continue
                # an element that the extent cuts in two is left to the unnamed bytes
                width = tensor.element_size()
                low, high = low + (start - low) % width, high - (high - start) % width
                if low >= high:
                    continue
                part, first = slice(low - extent.address, high - extent.address), (low - start) // width
                if torch.equal(ref[part], new[part]):
                    covered[part] = True
                    continue
                if bool(covered[part].all()):
                    continue
                exempt = _marked(covered[part], width) | _marked(spare[part], width)
                covered[part] = True
                wrong = _typed(found, name, tensor, first, (was[part], ref[part], new[part]), exempt)
                if bool(wrong.any()):
                    mask = found.suspicious.setdefault(extent, torch.zeros_like(covered))
                    mask[part] |= wrong.repeat_interleave(width)
            rest = ~covered & ~spare & (ref != new)
            if bool(rest.any()):
                words = rest.nonzero().flatten() // 8
                touched = torch.unique(words)
                found.names[UNNAMED] = None
                # nobody says what these bytes mean; whether they matter is for the harm test
                found.other += int(touched.numel())
                found.wrong += int(touched.numel())
                mask = found.suspicious.setdefault(extent, torch.zeros_like(covered))
                mask |= rest
                found.level = max(found.level, Level.SMALL, key=_ORDER.index)
    # addresses differ from run to run: what is told first must not hang on them
    number = {name: n for n, name in enumerate([*tensors, UNNAMED])}
    found.names = dict.fromkeys(sorted(found.names, key=number.__getitem__))
    found.places.sort(key=lambda place: number[place.name])
    return found


_ORDER = list(Level)


def _spare(
    extent: Extent, reserved: Sequence[tuple[torch.Tensor, Sequence[int]]], device: torch.device
) -> torch.Tensor:
    """Which of the extent's bytes lie in reserved rows: a mask."""
    mask = torch.zeros(extent.bytes, dtype=torch.bool, device=device)
    for tensor, rows in reserved:
        if not rows or not tensor.numel() or not extent.meets(Extent(*span(tensor))):
            continue
        width, (_, size) = tensor.element_size(), span(tensor[0])
        row = torch.zeros(size // width, dtype=torch.bool, device=device)
        row.as_strided(tensor.shape[1:], tensor.stride()[1:]).fill_(True)  # rows may lie apart, and have holes
        row = row.repeat_interleave(width)
        for number in rows:
            start = tensor.data_ptr() + number * tensor.stride(0) * width - extent.address
            low, high = max(start, 0), min(start + size, extent.bytes)
            if low < high:
                mask[low:high] |= row[low - start : high - start]
    return mask


def _typed(
    found: StateDifference,
    name: str,
    tensor: torch.Tensor,
    first: int,
    parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    exempt: torch.Tensor,
) -> torch.Tensor:
    """Compare a tensor's elements from number `first` on, all but the exempt; the mask of those that are wrong."""
    width = tensor.element_size()
    was, ref, new = (p.clone() for p in parts)
    differs = _unlike(ref, new, width) & ~exempt
    if not bool(differs.any()):
        return differs
    found.names[name] = None
    wrong = _beyond_rounding(new.view(tensor.dtype), ref.view(tensor.dtype), differs)
    found.wrong += int(wrong.sum())
    level = Level.LARGE if bool(wrong.any()) else Level.SMALL
    found.level = max(found.level, level, key=_ORDER.index)
    eager_wrote, graph_wrote = _unlike(was, ref, width), _unlike(was, new, width)
    groups = {
        "extra": differs & ~eager_wrote,
        "missing": differs & eager_wrote & ~graph_wrote,
        "other": differs & eager_wrote & graph_wrote,
    }
    lead = leading(tensor.shape)
    inner = max(1, math.prod(tensor.shape[lead:]))
    for kind, mask in groups.items():
        count = int(mask.sum())
        if not count:
            continue
        setattr(found, kind, getattr(found, kind) + count)
        slots = torch.unique(((mask & wrong).nonzero().flatten() + first) // inner)[:_SHOWN].tolist()
        for slot in slots:
            index = unravel(slot, tensor.shape[:lead])
            found.places.append(Place(name, index, slot % math.prod(tensor.shape[max(0, lead - 2) : lead]), kind))
    return wrong


_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Elements of so many bytes are compared as one number each: many times as fast as byte by byte."""


def _unlike(a: torch.Tensor, b: torch.Tensor, width: int) -> torch.Tensor:
    """Elements of `width` bytes, some of which differ: a mask. a and b are uint8 (n,), in allocations of their own."""
    whole = _WHOLE.get(width)
    return (a != b).view(-1, width).any(1) if whole is None else a.view(whole) != b.view(whole)


def _marked(mask: torch.Tensor, width: int) -> torch.Tensor:
    """Elements of `width` bytes, all of which are marked: a mask of elements, from one of bytes."""
    return ~_unlike(mask.to(torch.uint8), torch.ones_like(mask, dtype=torch.uint8), width)


def _beyond_rounding(new: torch.Tensor, ref: torch.Tensor, differs: torch.Tensor) -> torch.Tensor:
    """Those of the elements that differ that do so by more than rounding; integers by anything."""
    if not new.dtype.is_floating_point and not new.dtype.is_complex:
        return differs
    wide = torch.complex128 if new.dtype.is_complex else torch.float64
    right = ref.to(wide)
    scale = float(torch.where(right.isfinite(), right.abs(), 0.0).max())
    a, b = new.to(wide)[differs], right[differs]
    wrong = torch.zeros_like(differs)
    # not(close) rather than far: NaN is not close to anything but NaN
    wrong[differs] = ~(((a - b).abs() <= relative_tolerance(new.dtype) * scale) | (a.isnan() & b.isnan()))
    return wrong


def harmful(
    reference: Mapping[Extent, torch.Tensor], result: Mapping[Extent, torch.Tensor], found: StateDifference
) -> dict[Extent, torch.Tensor]:
    """The reference's state with only the suspicious bytes taken from the result: rounding stays out of it."""
    mixed = dict(reference)
    for extent, mask in found.suspicious.items():
        wrong, right = result[extent], reference[extent]
        with unseen():
            mixed[extent] = torch.where(mask, wrong, right)
    return mixed
