"""Attributes are put back as their owner had them: its own, or inherited, or none."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.graph.attributes import replaced


class Base:
    inherited = 1


class Owner(Base):
    own = 2


def test_own_inherited_and_new_ones() -> None:
    before = dict(vars(Owner))
    owner: Any = Owner
    with pytest.raises(KeyError), replaced(Owner, {"own": 3, "inherited": 4, "new": 5}):
        assert (owner.own, owner.inherited, owner.new) == (3, 4, 5)
        raise KeyError
    assert dict(vars(Owner)) == before and owner.inherited == 1


def test_one_that_was_deleted_meanwhile() -> None:
    owner: Any = Owner
    with replaced(Owner, {"new": 5}):
        del owner.new
    assert not hasattr(owner, "new")
