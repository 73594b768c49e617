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


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """Lets `isinstance(g, torch.Generator)` hold for generators made before the stand-in was in place."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """Stand-in for `torch.Generator`: a CPU generator that remembers whether it was made for the device."""

    on_device: bool

    def __new__(cls, device: Any = "cpu") -> Generator:
        """`device` as torch takes it; "cuda" and "cpu:0" mean the emulated device."""
        asked = torch.device(device)
        generator = super().__new__(cls, torch.device("cpu"))
        generator.on_device = asked.type == "cuda" or asked.index is not None
        return generator

    @property
    def device(self) -> torch.device:
        """Where the generator belongs."""
        return torch.device("cpu", 0) if self.on_device else torch.device("cpu")


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
