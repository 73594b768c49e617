"""What this machine has, and what can be checked on it. Nothing raises: what is missing is said.

Importing this module does not import torch; calling its functions does.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from cudagraph_doctor import __version__
from cudagraph_doctor.report.paths import working_tree

_PACKAGES = ("torch", "triton", "cuda-bindings", "cuda-core", "cupti-python", "nvtx")


_ON_TARGETS = "checkup, capture, diff, inputs and audit --target"
"""Commands that run a target."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The answer of `cudagraph-doctor env`."""

    parts: dict[str, str]
    """What was looked for -> what was found, or why it cannot be used."""
    can: tuple[str, ...]
    """What can be checked here, in sentences."""
    cannot: tuple[str, ...]
    """What cannot, and what it takes."""


def version(package: str) -> str:
    """The installed version of a distribution, "" if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def tool(started: float) -> dict[str, Any]:
    """What a report says about this program and its run, which began at `started` (seconds since 1970)."""
    return {
        "name": "cudagraph-doctor",
        "version": __version__,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 3),
        "working_tree": working_tree(),
    }


def base() -> dict[str, Any]:
    """What a report says about the machine if torch could not be asked."""
    return {"python": platform.python_version(), "platform": platform.platform()}


def runtime() -> dict[str, Any]:
    """What a report says about the machine, but for the GPU: `base` and the versions of what is installed."""
    import torch

    packages = {name: found for name in _PACKAGES if (found := version(name))}
    return base() | {"packages": packages, "torch_cuda": torch.version.cuda or ""}


def gpu() -> dict[str, Any]:
    """What a report says about the GPU. Makes a CUDA context on the current device: ask when the target has one."""
    import torch

    return {
        "gpu": torch.cuda.get_device_name(),
        "gpu_count": torch.cuda.device_count(),
        "compute_capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "driver": _answer("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    }


def gpu_obstacle() -> str:
    """Why torch cannot use a GPU here, in a sentence; "" if it can."""
    try:
        import torch
    except Exception as error:
        return f"torch cannot be imported ({type(error).__name__}: {error})"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no usable GPU"
    return ""


def cuda_obstacle() -> str:
    """Why the CUDA backend cannot be used here, in a clause; "" if it can."""
    if obstacle := gpu_obstacle():
        return obstacle
    import torch

    if not hasattr(torch._C._CUDAGraph, "raw_cuda_graph"):
        return f"torch {torch.__version__} cannot keep a captured graph (CUDAGraph(keep_graph=True)); 2.8 or newer can"
    if missing := _cannot_import("cuda.bindings.driver"):
        major = (torch.version.cuda or "").partition(".")[0]
        return f"there is a GPU, but {missing}: pip install 'cudagraph-doctor[cuda{major}]'"
    from cudagraph_doctor.graph import driver

    try:
        found = driver.version()
    except driver.DriverError as error:
        return f"the CUDA driver does not answer ({error})"
    if found < driver.OLDEST:
        return "the driver supports CUDA {}.{}; {}.{} is needed to read a kernel's parameters".format(
            *found, *driver.OLDEST
        )
    return ""


def survey() -> Survey:
    """Look at everything that any command makes use of."""
    no_torch = _cannot_import("torch")
    no_gpu = gpu_obstacle()
    no_backend = cuda_obstacle()
    no_compiler = _cannot_import("cuda.core")
    no_cupti = _cannot_import("cupti.cupti")
    nsys = _answer("nsys", "--version")
    smi = _answer("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    parts = {
        "cudagraph-doctor": version("cudagraph-doctor") or "plain checkout, not installed",
        "Python": platform.python_version(),
        "torch": no_torch or version("torch"),
        "GPU and driver": smi or "nvidia-smi finds none",
        "GPU as torch sees it": no_gpu or gpu()["gpu"],
        "CUDA of torch": "" if no_torch else runtime()["torch_cuda"] or "none",
        "cuda-bindings": version("cuda-bindings") or "not installed",
        "cuda-core": version("cuda-core") or "not installed",
        "Triton": version("triton") or "not installed",
        "CUPTI": version("cupti-python") or "cupti-python is not installed",
        "nsys": nsys or "not found on PATH",
    }
    can, cannot = [], []
    if no_torch:
        cannot.append(f"any target: {no_torch}.")
    else:
        can.append(f"{_ON_TARGETS}, emulated: targets in plain PyTorch, and your staging code, on the CPU.")
    if no_backend:
        cannot.append(f"{_ON_TARGETS}, on real graphs: {no_backend}.")
        cannot.append("Triton and CUDA kernels, overlap of streams, real memory pools: they need the CUDA backend.")
    else:
        can.append(f"{_ON_TARGETS}, on real graphs: nodes are read and patched through cuda-bindings.")
        recorder = "nsys or torch.profiler" if nsys else "torch.profiler, for nsys is not found"
        can.append(f"traces of a target being served (record): by {recorder}.")
        if no_compiler:
            cannot.append(f"the bundled model with its own CUDA kernels: {no_compiler}.")
        else:
            can.append("the bundled model with its own CUDA kernels (compiled by NVRTC).")
    if no_ijson := _cannot_import("ijson"):
        cannot.append(f"traces of torch.profiler (buckets): {no_ijson}.")
        can.append("traces (buckets): SQLite exports of nsys, from any machine.")
    else:
        can.append("traces (buckets): SQLite exports of nsys and torch.profiler traces, from any machine.")
    can.append("lists of buckets against traffic (audit): configurations and logs, without a GPU.")
    can.append("saved reports (report), rule pages (explain).")
    if not no_backend and no_cupti:
        cannot.append(f"the line that launches a kernel without torch's dispatcher (Triton, CUDA C++): {no_cupti}.")
    return Survey(parts, tuple(can), tuple(cannot))


def _cannot_import(module: str) -> str:
    """Why a module cannot be imported, "" if it can."""
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{module} cannot be imported ({' '.join(str(error).split())})"
    return ""


def _answer(*command: str) -> str:
    """The first line that a command prints, "" if it is not there or fails."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().partition("\n")[0]
