"""Names out of paths."""

from __future__ import annotations

import pytest

from cudagraph_doctor.path_names import own_name


@pytest.mark.parametrize(
    ("path", "name"),
    [("x", "x"), ("model.head.weight", "weight"), ("buffers.8.k.4", "k[4]"), ("4", "4"), ("kept[1]", "kept[1]")],
)
def test_own_names(path: str, name: str) -> None:
    assert own_name(path) == name
