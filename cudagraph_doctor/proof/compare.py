"""How two results differ: bit for bit first, then by how much.

Bits are compared as integers, so NaN equals the same NaN and -0 differs from +0. "Large" needs a tolerance: given by
the user, or by dtype.
"""

from __future__ import annotations

import reprlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch

from cudagraph_doctor.graph.unseen import unseen
from cudagraph_doctor.settings import Tolerance


class Level(StrEnum):
    """How much two leaves differ."""

    EQUAL = "equal"
    """Bit for bit."""
    SMALL = "small"
    """Within the tolerance: rounding."""
    LARGE = "large"
    """Beyond the tolerance; or integers, shapes or non-finite values that differ."""


_RTOL = {
    torch.float64: 1e-6,
    torch.float32: 1e-2,
    torch.float16: 5e-2,
    torch.bfloat16: 1e-1,
    torch.complex128: 1e-6,
    torch.complex64: 1e-2,
}
"""Relative to the largest reference value of the leaf. Chosen well above measured graph-against-eager rounding (bf16
logits of a small Qwen3: 0.06 of about 4; fp32 includes TF32) and below the effect of a wrong input (order 1)."""
_RTOL_FP8 = 0.5


@dataclass(frozen=True, slots=True)
class Difference:
    """How one leaf differs from its reference."""

    path: str
    level: Level
    max_abs: float = 0.0
    """Largest absolute difference of finite values; 0 for integers that differ only by meaning."""
    scale: float = 0.0
    """Largest absolute finite value of the reference."""
    count: int = 0
    """Number of elements whose bits differ."""
    total: int = 0
    rows: tuple[int, ...] = ()
    """Indices in dimension 0 that differ (at most 64)."""
    reason: str = ""
    """What differs when it is not numbers: shape, dtype, type, NaN, a host value."""
    values: str = ""
    """Both host values, shortened."""
    integral: bool = False
    """An integer, bool or non-tensor leaf: it has no rounding of its own."""
    exact: bool = False
    """No rounding can have reached the reference: whole numbers are right or wrong, whatever differs beside them."""

    @property
    def relative(self) -> float:
        """`max_abs` over `scale` (inf if the reference is all zero)."""
        return self.max_abs / self.scale if self.scale else (float("inf") if self.max_abs else 0.0)

    def __str__(self) -> str:
        name = self.path or "output"
        if self.reason:
            return f"{name}: {self.values or self.reason}"
        size = f", up to {self.max_abs:.3g} of {self.scale:.3g}" if not self.integral else ""
        exact = ", in whole numbers that no rounding reaches" if self.exact else ""
        return f"{name}: {self.count} of {self.total} values differ{size}{exact}"


def without_values(differences: Iterable[Difference]) -> list[Difference]:
    """The same, without host values in them."""
    return [replace(difference, values="") for difference in differences]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes, contiguous, as uint8: shape (rows, bytes a row), or (1, bytes) for a scalar."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not tensor.numel():
        return tensor.new_empty((rows, 0), dtype=torch.uint8)
    # a contiguous tensor may still have odd strides in dimensions of size 1, which `view` refuses
    flat = tensor.detach().contiguous().as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8).view(rows, -1)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether shape, dtype and every bit are the same."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    b = b.to(a.device)
    with unseen(a, b):
        return torch.equal(bits(a), bits(b))


def relative_tolerance(dtype: torch.dtype) -> float:
    """Rounding of a float dtype between two right ways to compute, relative to the largest value."""
    return _RTOL.get(dtype, _RTOL_FP8)


def is_given(path: str, given: Mapping[str, Tolerance]) -> bool:
    """Whether the user has said how much an output may differ by."""
    return path in given or "" in given


def _tolerance(path: str, dtype: torch.dtype, given: Mapping[str, Tolerance]) -> Tolerance:
    return given.get(path) or given.get("") or Tolerance(rtol=relative_tolerance(dtype), atol=0.0)


def compare_leaf(
    path: str,
    value: Any,
    reference: Any,
    given: Mapping[str, Tolerance] | None = None,
    exact: Container[str] = (),
) -> Difference:
    """Compare one leaf with its reference.

    Args:
        path: its name.
        value: a tensor or a host value.
        reference: the same from the reference arm.
        given: tolerances by output path, "" for all.
        exact: paths of references that no rounding can have reached, see `exact.py`.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(reference, torch.Tensor):
        same = type(value) is type(reference) and (value == reference or (value != value and reference != reference))
        return Difference(
            path,
            Level.EQUAL if same else Level.LARGE,
            total=1,
            count=0 if same else 1,
            reason="" if same else "another value",
            values="" if same else f"{reprlib.repr(value)} instead of {reprlib.repr(reference)}",
            integral=True,
        )
    if value.shape != reference.shape or value.dtype != reference.dtype:
        return Difference(
            path,
            Level.LARGE,
            total=reference.numel(),
            count=reference.numel(),
            integral=True,
            reason=f"{tuple(value.shape)} {value.dtype} instead of {tuple(reference.shape)} {reference.dtype}",
        )
    reference = reference.to(value.device)
    if same_bits(value, reference):
        return Difference(path, Level.EQUAL, total=value.numel())
    with unseen(value, reference):
        return _unequal(path, value, reference, given or {}, exact)


def _unequal(
    path: str, value: torch.Tensor, reference: torch.Tensor, given: Mapping[str, Tolerance], exact: Container[str]
) -> Difference:
    """How much tensors of one shape, dtype and device differ that are not the same."""
    width = value.element_size()
    unequal = (bits(value) != bits(reference)).reshape(bits(value).shape[0], -1, width).any(-1)
    rows = tuple(unequal.any(-1).nonzero().flatten()[:64].tolist())
    common: dict[str, Any] = {"path": path, "count": int(unequal.sum()), "total": value.numel(), "rows": rows}
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        return Difference(level=Level.LARGE, integral=True, exact=path in exact, **common)
    wide = torch.complex128 if value.dtype.is_complex else torch.float64
    a, b = value.to(wide), reference.to(wide)
    finite = a.isfinite() & b.isfinite()
    gap = torch.where(finite, (a - b).abs(), torch.zeros_like(a.abs()))
    size = torch.where(b.isfinite(), b.abs(), torch.zeros_like(b.abs()))
    max_abs, scale = float(gap.max()), float(size.max())
    # NaN against any NaN is not a difference in value; NaN against a number, or another infinity, is
    odd = ~finite & ~(a.isnan() & b.isnan()) & ~(a == b)
    if bool(odd.any()):
        kind = (
            "NaN or Inf where eager has a number"
            if bool((~a.isfinite() & b.isfinite()).any())
            else "a number where eager has NaN or Inf"
        )
        return Difference(
            level=Level.LARGE, max_abs=max_abs, scale=scale, reason=f"{int(odd.sum())} values: {kind}", **common
        )
    allowed = _tolerance(path, value.dtype, given)
    counts = path in exact and max_abs >= 1 and not is_given(path, given)
    level = Level.SMALL if max_abs <= allowed.atol + allowed.rtol * scale and not counts else Level.LARGE
    return Difference(level=level, max_abs=max_abs, scale=scale, exact=counts, **common)


def compare(
    values: Mapping[str, Any],
    reference: Mapping[str, Any],
    given: Mapping[str, Tolerance] | None = None,
    exact: Container[str] = (),
) -> list[Difference]:
    """Compare all leaves; only those that differ are returned. A leaf missing on one side differs.

    For `given` and `exact` see `compare_leaf`.
    """
    differences = []
    for path in dict.fromkeys((*reference, *values)):
        if path not in values or path not in reference:
            side = "is missing" if path not in values else "is not in the reference"
            differences.append(Difference(path, Level.LARGE, reason=f"the leaf {side}", integral=True))
            continue
        found = compare_leaf(path, values[path], reference[path], given, exact)
        if found.level is not Level.EQUAL:
            differences.append(found)
    return differences


def worst(differences: list[Difference]) -> Level:
    """The level of a whole result.

    Integers follow floats (a token is the argmax of logits that rounding moved): where floats differ a little and
    none differs much, integers that differ are rounding as well. Integers alone are large, and so are those that no
    rounding can have reached.
    """
    floats = [d for d in differences if not d.integral]
    if any(d.level is Level.LARGE and (d.exact or not d.integral) for d in differences):
        return Level.LARGE
    odd = [d for d in differences if d.integral and d.level is Level.LARGE]
    if any(d.reason for d in odd) or (odd and not floats):
        return Level.LARGE
    return Level.SMALL if differences else Level.EQUAL
