"""One parameter as many captures had it: which of its bytes are constant for each step and differ between steps?

Parameters carry uninitialised bytes, so bytes are looked at, not words: one that varies between captures of the same
step says nothing. Words that hold an address are compared by what it means. Plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cudagraph_doctor.graph.model import Param
from cudagraph_doctor.graph.values import Number, guess
from cudagraph_doctor.replays.candidates import EACH_CAPTURE, Kind, Part
from cudagraph_doctor.replays.remains import Memory, remains, starts, varying
from cudagraph_doctor.replays.series import Captures

_NAMED = ("input", "state", "weight", "root")
"""Kinds of memory whose names mean the same in each capture; pools and unnamed blocks have others by right."""
_FLAG = 8
"""A single byte below this reads as a flag or a count; any byte would read as a number."""
_FAR = 16
"""A float that grows by more than this factor, never falls and is not whole each time, is the bits of a clock."""
_GAP = 8
"""So many equal bytes between two that differ still belong to one stretch of opaque bytes."""


@dataclass(slots=True)
class Differing:
    """What of a parameter differs, by kind."""

    parts: dict[Kind, list[Part]] = field(default_factory=dict)
    noise: int = 0
    """Bytes that differ between captures of the same input."""

    def add(self, captures: Captures, kind: Kind, offset: int, size: int, dtype: str, values: Sequence[Any]) -> None:
        """Note a part: with all its values where it moves by itself, else with one for each input."""
        told = values if kind in EACH_CAPTURE else captures.of_inputs(values).values()
        self.parts.setdefault(kind, []).append(Part(offset, size, dtype, tuple(told)))


def compare(captures: Captures, params: Sequence[Param], memories: Sequence[Memory]) -> Differing:
    """What differs between captures of one parameter.

    Args:
        captures: what was captured.
        params: the parameter as each of them has it.
        memories: what is known of the addresses of each.
    """
    found = Differing()
    data = [param.data for param in params]
    if all(param == params[0] for param in params):  # nearly all of them are
        return found
    size = max(map(len, data))
    if any(param.value is not None for param in params):  # emulated: the Python value is the parameter
        kind = captures.kind([_hashable(param.value) for param in params])
        if kind is not None:
            found.add(captures, kind, 0, size, "value", [param.value for param in params])
    elif len(set(map(len, data))) > 1:
        if captures.kind(data) is Kind.VALUE:
            found.add(captures, Kind.OPAQUE, 0, size, "", [one.hex() for one in data])
    else:
        taken = _addresses(captures, params, found)
        if taken.issuperset(varying(data)):  # most that differ are addresses in a pool
            return found
        left = remains(data, memories) - taken
        found.noise += sum(len({one[byte] for one in data}) > 1 for byte in left)
        taken |= left
        _moving(captures, data, taken, found)
        _values(captures, data, taken, found, all(param.is_descriptor for param in params))
    return found


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, type(None))) else repr(value)


def _addresses(captures: Captures, params: Sequence[Param], found: Differing) -> set[int]:
    """The bytes of words that some capture has an address in; named ones that lead elsewhere are noted."""
    known = [{pointer.offset: pointer.region for pointer in param.pointers} for param in params]
    words = {word for one in known for word in one}
    for word in sorted(words):
        regions = [one.get(word) for one in known]
        # sometimes an address and sometimes not is uninitialised; unnamed memory and pools are others by right
        if all(region is not None and region.kind in _NAMED for region in regions):
            texts = [str(region) for region in regions]
            if captures.kind(texts) is Kind.VALUE:
                found.add(captures, Kind.ADDRESS, word, 8, "address", texts)
    return {byte for word in words for byte in range(word, word + 8)}


def _moving(captures: Captures, data: Sequence[bytes], taken: set[int], found: Differing) -> None:
    """Words that move by themselves: host counters and draws. What they take is added to `taken`."""
    different = varying(data)
    for size in _sizes(data):
        for start in starts(different, size, len(data[0])):
            place = set(range(start, start + size))
            read = None if place & taken else guess([one[start : start + size] for one in data])
            if read is None:
                continue
            kind = captures.kind(read[1])
            if kind in EACH_CAPTURE and not (len(data[0]) > 8 and leaps(read[1])):
                assert kind is not None
                found.add(captures, kind, start, size, *read)
                taken |= place


def _sizes(data: Sequence[bytes]) -> tuple[int, ...]:
    """Sizes of numbers, likely ones first: four bytes, as two neighbours in a struct could pass for one of eight.

    But a parameter of eight is one number if both halves differ, or if the lower one is always zero (a double).
    """
    halves = [{one[:4] for one in data}, {one[4:] for one in data}]
    whole = len(data[0]) == 8 and len(halves[1]) > 1 and (len(halves[0]) > 1 or halves[0] == {bytes(4)})
    return (8, 4) if whole else (4, 8)


def leaps(values: Sequence[Number]) -> bool:
    """Whether the numbers go one way, far and unevenly: the bits of something that counts, a clock say, as a float."""
    told = [abs(value) for value in values]
    far = max(told) > _FAR * min(told)
    whole = all(value == int(value) for value in values)
    return far and not whole and (told == sorted(told) or told == sorted(told, reverse=True))


def _values(captures: Captures, data: Sequence[bytes], taken: set[int], found: Differing, is_descriptor: bool) -> None:
    """What is left: bytes that are constant for each input and differ between inputs, as numbers if they are some."""
    steady, noisy = set(), set()
    for byte in set(varying(data)) - taken:
        held = [one[byte] for one in data]
        if not captures.is_steady(held):
            noisy.add(byte)
        elif len(set(captures.of_inputs(held).values())) > 1:
            steady.add(byte)
    found.noise += len(noisy)
    opaque: list[int] = []
    for byte in sorted(steady):
        if byte not in steady:  # part of a number found before
            continue
        number = None if is_descriptor else _number_around(byte, data, noisy | taken)
        if number is None:
            opaque.append(byte)
            continue
        start, size, dtype, values = number
        found.add(captures, Kind.VALUE, start, size, dtype, values)
        steady -= set(range(start, start + size))
    numbers = [part.offset + at for part in found.parts.get(Kind.VALUE, []) for at in range(part.bytes)]
    if len(opaque) > len(numbers) > 0:  # among so many others, what reads as a number does so by chance
        opaque = sorted({*opaque, *numbers})
        del found.parts[Kind.VALUE]
    # no number, and other bytes at the same input where the host moved on: uninitialised, and the same by chance
    by_chance = {byte for byte in opaque if not captures.is_same([one[byte] for one in data])}
    found.noise += len(by_chance)
    for start, stop in _stretches([byte for byte in opaque if byte not in by_chance]):
        found.add(captures, Kind.OPAQUE, start, stop - start, "", [one[start:stop].hex() for one in data])


def _number_around(byte: int, data: Sequence[bytes], not_in: set[int]) -> tuple[int, int, str, list[Number]] | None:
    """(start, bytes, dtype, values) of the aligned number that the byte lies in; None if it lies in none.

    Any two bytes read as a number: they are tried only where the word around them is none that can be read.
    """
    whole = range(byte - byte % 4, byte - byte % 4 + 4)
    small = whole.stop > len(data[0]) or not_in & set(whole)
    for size in (*_sizes(data), *((2, 1) if small else ())):
        start = byte - byte % size
        words = [one[start : start + size] for one in data]
        if start + size > len(data[0]) or not_in & set(range(start, start + size)):
            continue
        read = guess(words)
        if read is not None and (size > 1 or all(word[0] < _FLAG for word in words)):
            return start, size, *read
    return None


def _stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring places as stretches: (first, one past the last)."""
    start = stop = -1
    for place in places:
        if start >= 0 and place > stop + _GAP:
            yield start, stop
            start = -1
        start, stop = (place if start < 0 else start), place + 1
    if start >= 0:
        yield start, stop
