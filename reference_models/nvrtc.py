"""Compile a `.cu` file with NVRTC and launch it on torch's current stream. No nvcc; cuda-core does the work.

Cubins are kept in the user's cache folder, under a name made from everything that went into them. Nothing of CUDA is
imported before the first kernel is asked for. Next on the path: `operators.py`, which launches these kernels.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.reference_models.kernels import FOLDER

Argument = torch.Tensor | int | float | bytes


class Kernel:
    """A kernel that is ready to be launched: `kernel(grid, threads, *arguments)`.

    Arguments are tensors (passed by address), ints, floats, and bytes (a struct by value). The kernels keep one
    convention, so that no argument can arrive in the wrong width: every integer parameter is 64 bits, every
    floating-point parameter a float.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __call__(self, grid: tuple[int, ...], threads: int, *arguments: Argument) -> None:
        """Launch on torch's current stream. Returns at once; an invalid launch raises cuda-core's CUDAError."""
        stream = torch.cuda.current_stream().cuda_stream
        if any(isinstance(argument, bytes) for argument in arguments):
            self._launch_by_the_driver(stream, grid, threads, arguments)
        else:
            parameters = [_parameter(argument) for argument in arguments if not isinstance(argument, bytes)]
            _cuda_core().launch(_stream(stream), _config(grid, threads), self._handle, *parameters)

    def _launch_by_the_driver(
        self, stream: int, grid: tuple[int, ...], threads: int, arguments: tuple[Argument, ...]
    ) -> None:
        """As above, with structs, which cuda-core does not pass. Raises RuntimeError for an invalid launch."""
        driver = importlib.import_module("cuda.bindings.driver")
        held = [_in_memory(argument) for argument in arguments]
        addresses = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        function = driver.CUfunction(int(self._handle.handle))  # a CUkernel, which a launch takes as well
        blocks = (*grid, 1, 1)[:3]
        (status,) = driver.cuLaunchKernel(function, *blocks, threads, 1, 1, 0, stream, ctypes.addressof(addresses), 0)
        if int(status):
            raise RuntimeError(f"cuLaunchKernel: {status}")


@functools.cache
def kernel(name: str, **defines: int) -> Kernel:
    """The kernel `name` for the current device, compiled with `defines` as macros; the same object every time.

    Raises:
        Inconclusive: cuda-core is not installed, or the source does not compile for this device.
    """
    major, minor = torch.cuda.get_device_capability()
    code = cubin(name, f"sm_{major}{minor}", **defines)
    return Kernel(_cuda_core().ObjectCode.from_cubin(code, name=name).get_kernel(name))


def cubin(name: str, arch: str, **defines: int) -> bytes:
    """Machine code of the kernel `name` for `arch` ("sm_90"), from the cache folder or compiled now. Needs no GPU.

    Raises:
        Inconclusive: cuda-core is not installed, or the source does not compile.
    """
    source = (FOLDER / f"{name}.cu").read_text()
    headers = "".join(path.read_text() for path in sorted(FOLDER.glob("*.cuh")))
    made_from = (source, headers, arch, sorted(defines.items()), _compiler_version())
    kept = cache_folder() / f"{name}-{hashlib.sha256(repr(made_from).encode()).hexdigest()[:24]}.cubin"
    if kept.exists():
        return kept.read_bytes()
    core = _cuda_core()
    options = core.ProgramOptions(
        std="c++17",
        arch=arch,
        include_path=[str(FOLDER)],
        define_macro=([(macro, str(value)) for macro, value in defines.items()]) or None,
        lineinfo=True,
    )
    try:
        code = bytes(core.Program(source, code_type="c++", options=options).compile("cubin").code)
    except Exception as error:
        raise Inconclusive(
            f"The kernel {name} does not compile for {arch}.",
            seen=str(error),
            fix="The kernels need sm_80 or later and an NVRTC that knows the device: see `cudagraph-doctor env`.",
        ) from error
    _keep(kept, code)
    return code


def cache_folder() -> Path:
    """Where cubins are kept: `cudagraph-doctor/kernels` below XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cudagraph-doctor" / "kernels"


def _keep(path: Path, code: bytes) -> None:
    """Write all or nothing: another process may be reading. A folder that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        os.replace(file.name, path)
    except OSError:
        pass


@functools.cache
def _cuda_core() -> Any:
    for module in ("cuda.core", "cuda.core.experimental"):  # the latter before cuda-core 0.5
        try:
            core = importlib.import_module(module)
        except ImportError:
            continue
        if hasattr(core, "Program"):
            return core
    raise Inconclusive(
        "The reference model's kernels need cuda-core, which is not installed.",
        fix="pip install 'cudagraph-doctor[cuda13]' (or [cuda12], whichever CUDA your torch was built with).",
    )


@functools.cache
def _compiler_version() -> tuple[Any, ...]:
    return tuple(importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()[1:])


@functools.cache
def _stream(handle: int) -> Any:
    return _cuda_core().Stream.from_handle(handle)


@functools.cache
def _config(grid: tuple[int, ...], threads: int) -> Any:
    return _cuda_core().LaunchConfig(grid=grid, block=threads)


def _parameter(argument: torch.Tensor | int | float) -> Any:
    if isinstance(argument, torch.Tensor):
        return argument.data_ptr()
    return ctypes.c_float(argument) if isinstance(argument, float) else argument


def _in_memory(argument: Argument) -> Any:
    """The argument in the width that kernels expect, in memory that the driver can read it from."""
    if isinstance(argument, bytes):
        return (ctypes.c_char * len(argument)).from_buffer_copy(argument)
    parameter = _parameter(argument)
    return parameter if isinstance(parameter, ctypes.c_float) else ctypes.c_longlong(parameter)
