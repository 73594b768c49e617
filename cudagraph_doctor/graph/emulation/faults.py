"""What CUDA and torch raise when a capture is not legal, in their own words (torch 2.11, CUDA 13.0)."""

from __future__ import annotations

import torch

from cudagraph_doctor.errors import Inconclusive

_TEXTS = {
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
    904: "capturing stream has unjoined work",
    710: "device-side assert triggered",
    905: "dependency created on uncaptured work in another stream",
}

PAGEABLE_COPY = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. "
    "Please use tensor.pin_memory() or allocate the tensor with pin_memory=True."
)
UNREGISTERED_GENERATOR = "Attempt to increase offset for a CUDA generator not in capture mode."
WRONG_GENERATOR = "Expected a 'cuda' device type for generator but found 'cpu'"
DEFAULT_STREAM = (
    "CUDA graphs must be captured on a non-default stream. "
    "(However, after capture, it's ok to replay them on the default stream.)"
)
OTHER_STREAM = "Capture must end on the same stream it began on."
SECOND_CAPTURE = "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
NO_NUMPY = "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."


def cuda_error(code: int, where: str = "") -> RuntimeError:
    """The exception that torch raises for a CUDA error; `where` adds what the emulation knows."""
    error: RuntimeError = torch.AcceleratorError(f"CUDA error: {_TEXTS[code]}" + (f"\n{where}" if where else ""))
    vars(error)["error_code"] = code
    return error


def reseeded(what: str) -> RuntimeError:
    """A generator was seeded (or its state read or set) inside a capture."""
    return RuntimeError(f"Cannot call CUDAGeneratorImpl::{what} during CUDA graph capture.")


def other_seed() -> RuntimeError:
    """A generator was given another seed inside a capture."""
    return RuntimeError(
        "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same as the "
        "original seed."
    )


def no_capture(method: str) -> RuntimeError:
    """A graph was used that holds no capture."""
    return RuntimeError(f"Called CUDAGraph::{method} without a preceding successful capture.")


def not_emulated(what: str) -> Inconclusive:
    """Something of torch.cuda has no stand-in."""
    return Inconclusive(
        f"{what} is not emulated",
        seen="the emulated backend, on a machine without a CUDA GPU",
        fix="run with --backend cuda on a GPU, or keep this call out of the target when torch.version.cuda is None",
    )
