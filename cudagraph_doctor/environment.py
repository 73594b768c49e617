"""What this machine has, and what can be checked on it. Never raises: what is missing is said.

Importing this module does not import torch; calling its functions does.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
from typing import Any

_PACKAGES = ("torch", "triton", "cuda-bindings", "cuda-core", "cupti-python", "nvtx")


def version(package: str) -> str:
    """The installed version of a distribution, "" if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def base() -> dict[str, Any]:
    """What can be told without importing torch."""
    return {"python": platform.python_version(), "platform": platform.platform()}


def cuda_obstacle() -> str:
    """Why the CUDA backend cannot be used here, in a sentence; "" if it can. Imports torch."""
    try:
        import torch
    except Exception as error:
        return f"torch cannot be imported ({type(error).__name__}: {error})"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no usable GPU"
    try:
        importlib.import_module("cuda.bindings.driver")
    except Exception as error:
        major = torch.version.cuda.partition(".")[0]
        return (f"there is a GPU, but cuda-bindings cannot be imported ({error}): "
                f"pip install 'cudagraph-doctor[cuda{major}]'")
    return ""


def runtime() -> dict[str, Any]:
    """What a report says about where it was made. Imports torch."""
    facts = base() | {"packages": {name: found for name in _PACKAGES if (found := version(name))}}
    import torch

    facts["torch_cuda"] = torch.version.cuda or ""
    if torch.version.cuda and torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["gpu_count"] = torch.cuda.device_count()
        facts["compute_capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
        facts["driver"] = _driver()
    return facts


def _driver() -> str:
    """The driver's version, as nvidia-smi tells it; "" if it does not."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ""
    try:
        asked = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip().partition("\n")[0]
