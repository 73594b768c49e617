"""Errors in CUDA's words."""

from __future__ import annotations

import pytest

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.emulation.faults import cuda_error, no_capture, not_emulated, reseeded


@pytest.mark.parametrize("code", [900, 901, 904, 905, 710])
def test_cuda_errors_are_torchs_class_and_carry_the_code(code: int) -> None:
    error = cuda_error(code, "aten.nonzero.default")
    assert isinstance(error, RuntimeError) and type(error).__name__ == "AcceleratorError"
    assert vars(error)["error_code"] == code
    assert str(error).startswith("CUDA error: ") and str(error).endswith("\naten.nonzero.default")


def test_torchs_own_refusals() -> None:
    assert "Cannot call CUDAGeneratorImpl::set_state during CUDA graph capture" in str(reseeded("set_state"))
    assert "Called CUDAGraph::replay without a preceding successful capture" in str(no_capture("replay"))


def test_what_is_missing_is_said_with_what_to_do() -> None:
    error = not_emulated("torch.cuda.nccl")
    assert isinstance(error, Inconclusive) and "torch.cuda.nccl" in error.what and "--backend cuda" in error.fix
