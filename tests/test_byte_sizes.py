"""Amounts of memory as people write them."""

from __future__ import annotations

import pytest

from cudagraph_doctor.byte_sizes import in_bytes


@pytest.mark.parametrize(("count", "said"), [(12, "12 B"), (1536, "1.5 KiB"), (3 << 20, "3 MiB"), (5 << 30, "5 GiB")])
def test_bytes(count: int, said: str) -> None:
    assert in_bytes(count) == said
