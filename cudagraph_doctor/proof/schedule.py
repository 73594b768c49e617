"""Which steps, with how many rows, in which order: one that finds stale tails. Plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def choose(values: Sequence[int], exhaustive: bool) -> list[int]:
    """The smallest, a middle and the largest of ascending `values`; all of them if `exhaustive`."""
    if exhaustive or len(values) <= 3:
        return list(values)
    return [values[0], values[len(values) // 2], values[-1]]


def left_out(what: str, values: Sequence[int], played: Iterable[object]) -> list[str]:
    """What a plan made by `choose` did not look at, as a sentence for `not_checked`: none, or one.

    Args:
        what: what the values are, in the singular: "bucket".
        values: all there are.
        played: those that steps of the plan are played with.
    """
    rest = sorted(set(values).difference(played))
    plural = "s" if len(rest) > 1 else ""
    return [f"{what}{plural} {', '.join(map(str, rest))}: use --exhaustive"] if rest else []


def schedule_interludes(names: Sequence[str], steps: int) -> list[str]:
    """Which interlude goes before each of `steps` steps, "" for none: one before every third step, in turn."""
    return [names[i // 3 % len(names)] if names and i % 3 == 2 else "" for i in range(steps)]


def sizes_within(bucket: int, below: int) -> list[int]:
    """Batch sizes served by `bucket` when the next smaller bucket is `below` (0 if none): b, b-1, the smallest, b.

    A full batch leaves values in every row; the shrink after it is what shows a stale tail, and the step after that
    one what the tail did.
    """
    return [bucket, max(bucket - 1, below + 1), below + 1, bucket]


def schedule(keys: Sequence[int], all_keys: Sequence[int], steps: int) -> list[int]:
    """Batch sizes for `steps` steps of each of `keys`.

    Blocks of four sizes in one bucket, bucket after bucket and round again, so that every bucket is left for another
    and returned to: (b, b-1, smallest, b), another bucket, ...
    """
    if not keys:
        return []
    below = {key: max((other for other in all_keys if other < key), default=0) for key in all_keys}
    left = dict.fromkeys(keys, steps)
    order: list[int] = []
    while any(left.values()):
        for key in sorted(keys, reverse=True):
            block = sizes_within(key, below[key])[: left[key]]
            order += block
            left[key] -= len(block)
    return order
