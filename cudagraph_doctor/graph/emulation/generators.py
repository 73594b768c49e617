"""Random numbers of the emulated device: its own default generator, and generators that know where they belong.

CUDA keeps device draws apart from host draws, and a capture does not advance a generator; a replay does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_SEED = 67280421310721
"""torch's default seed, on every device."""


_ON_DEVICE: dict[int, bool] = {}
"""For each generator made by the stand-in, by the address of torch's own object: whether it is the device's."""
_Base: Any = torch._C.Generator  # its constructor and fields are not in torch's type stubs


class _AnyGenerator(type(_Base)):  # type: ignore[misc]
    """Lets `isinstance(g, torch.Generator)` hold for generators made before the stand-in was in place."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Base)


class Generator(_Base, metaclass=_AnyGenerator):  # type: ignore[misc]
    """Stand-in for `torch.Generator`: a CPU generator that remembers whether it was made for the device."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        """`device` as torch takes it; "cuda" and "cpu:0" mean the emulated device."""
        asked = torch.device(device)
        generator: Generator = super().__new__(cls, torch.device("cpu"))
        _ON_DEVICE[generator._cdata] = asked.type == "cuda" or asked.index is not None
        return generator

    @property
    def device(self) -> torch.device:
        """Where the generator belongs."""
        return torch.device("cpu", 0) if _ON_DEVICE[self._cdata] else torch.device("cpu")

    def __del__(self) -> None:
        _ON_DEVICE.pop(self._cdata, None)


def is_hosts(generator: Any) -> bool:
    """Whether the generator was made for the host; one made before the stand-in was in place may be either's."""
    return not _ON_DEVICE.get(generator._cdata, True)


def same(a: Any, b: Any) -> bool:
    """Whether two Python objects are one generator: an operator gets its generator in a new object."""
    return bool(a._cdata == b._cdata)


def default_generator() -> Generator:
    """The device's default generator, freshly seeded as torch does."""
    generator = Generator("cpu:0")
    generator.manual_seed(_SEED)
    return generator


@contextmanager
def drawing_from(generator: torch._C.Generator) -> Iterator[None]:
    """Operators that take no generator draw from this one inside the block, and advance it."""
    host = torch.default_generator
    before = host.get_state()
    host.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(host.get_state())
        host.set_state(before)
