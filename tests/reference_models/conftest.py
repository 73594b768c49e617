"""Where the reference models' tests run: on a CPU always, on CUDA where there is one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


@dataclass(frozen=True)
class Place:
    """A device, a dtype, and how far from the float64 result an operator may be there."""

    device: str
    dtype: torch.dtype
    error: float
    """Bound on ||out - reference|| / ||reference||."""

    def randn(self, *shape: int, seed: int) -> torch.Tensor:
        """Fresh random numbers, the same on every device."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(self.device, self.dtype)

    def ints(self, values: list[int] | list[list[int]], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """A tensor of integers on the device."""
        return torch.tensor(values, dtype=dtype, device=self.device)

    def poison(self) -> None:
        """Leave NaNs in the memory that the next allocations will be given."""
        if self.device == "cuda":
            held = [torch.full((size,), float("nan"), device="cuda") for size in (2**8, 2**12, 2**16, 2**19, 2**22)]
            del held


@pytest.fixture(
    params=[
        Place("cpu:0", torch.float32, 1e-6),
        Place("cpu:0", torch.bfloat16, 1e-2),
        pytest.param(Place("cuda", torch.bfloat16, 1e-2), marks=GPU),
    ],
    ids=["cpu-float32", "cpu-bfloat16", "cuda-bfloat16"],
)
def place(request: pytest.FixtureRequest) -> Place:
    """Each device and dtype in turn."""
    chosen: Place = request.param
    return chosen


@pytest.fixture
def cuda() -> Place:
    """A GPU; for tests that carry the marker themselves."""
    return Place("cuda", torch.bfloat16, 1e-2)
