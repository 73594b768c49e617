"""Regions by name: as a user writes one, whole or from a dot on. Plain Python."""

from __future__ import annotations

from collections.abc import Sequence

from cudagraph_doctor.replays.model import Region


def called(regions: Sequence[Region], name: str) -> list[Region]:
    """Regions that have this name; if there are none, those that one of whose paths ends in it, after a dot."""
    whole = [region for region in regions if name in (region.name, *region.aliases)]
    ending = f".{name}"
    return whole or [r for r in regions if any(path.endswith(ending) for path in (r.name, *r.aliases))]
