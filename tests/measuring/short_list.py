"""The bundled loop with a list of buckets that ends at 8, while up to 16 requests run: what is larger runs eager."""

from __future__ import annotations

from typing import Any

from cudagraph_doctor import reference_models


def target(device: str, preset: str = "default", seed: int = 0) -> Any:
    """Its own buckets are a class's: this object's are shorter."""
    loop: Any = reference_models.load("loop", device=device, preset=preset, seed=seed)
    loop.buckets = [1, 2, 4, 8]
    return loop
