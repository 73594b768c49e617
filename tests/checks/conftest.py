"""Backends for the checks' tests."""

from __future__ import annotations

import pytest

from cudagraph_doctor.graph.backend import Backend


@pytest.fixture
def emulated() -> Backend:
    """A fresh emulated backend."""
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    return EmulatedBackend()


@pytest.fixture
def cuda() -> Backend:
    """A fresh CUDA backend; skips, with the reason, where there is none."""
    from cudagraph_doctor.graph.cuda import CudaBackend

    reason = CudaBackend.why_unusable()
    if reason:
        pytest.skip(reason)
    return CudaBackend()
