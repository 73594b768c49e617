"""Where CUDA and the emulation differ on what a capture takes. Made by `capture_cases.py --list`."""

from __future__ import annotations

NOT_REFUSED: tuple[str, ...] = (
    "cholesky",
    "eigh",
    "histc",
    "inv",
    "lu_factor",
    "solve",
    "svd",
    "to_sparse",
)
"""What CUDA refuses and the emulation lets pass, by the names of the cases there."""

REFUSED_IN_VAIN: tuple[str, ...] = (
    "tensor from a list (compiled)",
    "index by a list (compiled)",
)
"""What CUDA takes and the emulation refuses."""
