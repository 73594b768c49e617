"""What the engine's captures meet for the first time, each beside a twin that warms it up (see `capture_faults.py`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch

from cudagraph_doctor.reference_models.decode import DecoderConfig, RMSNorm
from cudagraph_doctor.reference_models.engine import ReferenceEngine
from cudagraph_doctor.reference_models.inputs import DecodeInputs

LARGEST = 1e4
"""Numbers above have run away."""


class Starting(ReferenceEngine):
    """An engine with another last norm, which captures when its graphs are first switched on.

    Args:
        config: sizes of the model.
        device: where it runs.
        dtype: of weights and caches.
        seed: of weights, caches and tokens.
        norm: what the last norm is; its results are the same.
    """

    def __init__(
        self, config: DecoderConfig, device: str, dtype: torch.dtype, seed: int, *, norm: type[RMSNorm]
    ) -> None:
        super().__init__(config, device, dtype, seed, enforce_eager=True)
        self.model.norm = norm(config.hidden_size, config.rms_eps, device, dtype).requires_grad_(False)


class WarmedOnce(Starting):
    """Warming up all buckets took too long."""

    def warm_up(self, bucket: int, static: DecodeInputs) -> None:
        """The largest bucket only."""
        if bucket == self.captured_sizes[-1]:
            super().warm_up(bucket, static)


# autotune-not-warmed


class Tuned(RMSNorm):
    """Measures two ways of launching, once for each number of rows, and keeps the faster one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fastest: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        if len(x) not in self.fastest:
            ways = (super().forward, self.copied)
            self.fastest[len(x)] = min(ways, key=lambda way: self.milliseconds(way, x))
        return self.fastest[len(x)](x)

    def copied(self, x: torch.Tensor) -> torch.Tensor:
        """The other way: from a copy."""
        return super().forward(x.clone())

    def milliseconds(self, way: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> float:
        """How long one way takes."""
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        way(x)
        stop.record()
        stop.synchronize()  # planted: autotune-not-warmed CGD213
        return float(start.elapsed_time(stop))


# compile-not-warmed


def clamped(x: torch.Tensor) -> torch.Tensor:
    """x, but where it has run away."""
    return torch.where(x > LARGEST, LARGEST, x)


class Compiled(RMSNorm):
    """Is compiled for each number of rows that it meets: two ways of launching are measured.

    Nothing is looked up that another process has measured, so that it always is; and it is quick for so small a kernel
    not to have processes compile it.
    """

    OPTIONS: ClassVar[dict[str, Any]] = {"autotune_local_cache": False, "fx_graph_cache": False, "compile_threads": 1}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.clamped = torch.compile(clamped, dynamic=False, options=self.OPTIONS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        return self.clamped(super().forward(x))  # planted: compile-not-warmed CGD213


# solver-not-warmed


class Whitened(RMSNorm):
    """Factorises a matrix in each step."""

    gram: torch.Tensor
    factor: torch.Tensor

    def __init__(self, hidden_size: int, eps: float, device: str, dtype: torch.dtype) -> None:
        super().__init__(hidden_size, eps, device, dtype)
        self.register_buffer("gram", 2.0 * torch.eye(64, device=device), persistent=False)
        self.register_buffer("factor", torch.zeros(64, 64, device=device), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        factor, _ = torch.linalg.cholesky_ex(self.gram)  # planted: solver-not-warmed CGD213
        self.factor.copy_(factor)
        return super().forward(x)


class CapturesTwo(Starting):
    """Two buckets, of so many rows that there is more than one way of launching; compiling takes its time."""

    captured_sizes = (8, 16)
    batch_sizes = (8, 16)


class CapturesTwoWarmedOnce(CapturesTwo, WarmedOnce):
    """The same, with the largest one warmed up."""


class WarmedInPart(Starting):
    """Warms up what takes long: the layers."""

    def warm_up(self, bucket: int, static: DecodeInputs) -> None:
        """All but the last norm."""
        inputs = static.rows(bucket)
        hidden = self.model.embed(inputs.input_ids)
        for layer in self.model.layers:
            hidden = layer(hidden, inputs)
        self.model.lm_head(hidden).argmax(dim=-1)


PLANTED: dict[str, tuple[Callable[..., ReferenceEngine], Callable[..., ReferenceEngine]]] = {
    "autotune-not-warmed": (partial(WarmedOnce, norm=Tuned), partial(Starting, norm=Tuned)),
    "compile-not-warmed": (partial(CapturesTwoWarmedOnce, norm=Compiled), partial(CapturesTwo, norm=Compiled)),
    "solver-not-warmed": (partial(WarmedInPart, norm=Whitened), partial(Starting, norm=Whitened)),
}
"""Fault and clean twin by the fault's name."""
