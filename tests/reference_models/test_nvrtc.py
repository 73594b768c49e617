"""Compiling: what is kept, what is done without; and that every kernel compiles, with no GPU."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.reference_models import nvrtc
from cudagraph_doctor.reference_models.kernels import FOLDER


@pytest.fixture(autouse=True)
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache folder, nothing remembered in the process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget = nvrtc._cuda_core.cache_clear
    forget()
    yield
    forget()


class Compiler:
    """Stands in for cuda-core: counts, and makes code of what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compiled: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(nvrtc, "_cuda_core", lambda: self)
        monkeypatch.setattr(nvrtc, "_compiler_version", lambda: (13, 0))

    def ProgramOptions(self, **options: Any) -> dict[str, Any]:
        return options

    def Program(self, source: str, code_type: str, options: dict[str, Any]) -> Any:
        assert code_type == "c++"
        self.compiled.append((source, options))
        return SimpleNamespace(compile=lambda kind: SimpleNamespace(code=f"{kind} {len(self.compiled)}".encode()))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(monkeypatch)


def test_compiles_once(compiler: Compiler) -> None:
    assert nvrtc.cubin("rms_norm", "sm_90") == nvrtc.cubin("rms_norm", "sm_90") == b"cubin 1"
    [(source, options)] = compiler.compiled
    assert "void rms_norm(" in source
    assert options["arch"] == "sm_90" and options["include_path"] == [str(FOLDER)]


def test_other_macros_devices_and_compilers_are_other_code(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.cubin("rotary_embedding", "sm_90", HEAD_DIM=64)
    nvrtc.cubin("rotary_embedding", "sm_90", HEAD_DIM=128)
    nvrtc.cubin("rotary_embedding", "sm_100", HEAD_DIM=64)
    monkeypatch.setattr(nvrtc, "_compiler_version", lambda: (13, 1))
    nvrtc.cubin("rotary_embedding", "sm_90", HEAD_DIM=64)
    assert [options["define_macro"] for _, options in compiler.compiled] == [
        [("HEAD_DIM", "64")], [("HEAD_DIM", "128")], [("HEAD_DIM", "64")], [("HEAD_DIM", "64")]
    ]  # fmt: skip


def test_a_changed_source_or_header_is_compiled_again(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "FOLDER", tmp_path)
    (tmp_path / "k.cu").write_text("one")
    (tmp_path / "h.cuh").write_text("one")
    nvrtc.cubin("k", "sm_90")
    (tmp_path / "k.cu").write_text("two")
    nvrtc.cubin("k", "sm_90")
    (tmp_path / "h.cuh").write_text("two")
    nvrtc.cubin("k", "sm_90")
    assert len(compiler.compiled) == 3


def test_a_cache_that_cannot_be_written_is_done_without(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert nvrtc.cubin("rms_norm", "sm_90") == b"cubin 1"
    assert nvrtc.cubin("rms_norm", "sm_90") == b"cubin 2"


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvrtc.cache_folder().parts[-3:] == ("cache", "cudagraph-doctor", "kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert nvrtc.cache_folder() == Path.home() / ".cache" / "cudagraph-doctor" / "kernels"


def test_without_cuda_core_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.setitem(sys.modules, "cuda.core.experimental", None)
    with pytest.raises(Inconclusive, match=r"pip install 'cudagraph-doctor\[cuda13\]'"):
        nvrtc._cuda_core()


def test_an_older_cuda_core_is_found_under_its_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("cuda.core.experimental")
    old.Program = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.core", ModuleType("cuda.core"))
    monkeypatch.setitem(sys.modules, "cuda.core.experimental", old)
    assert nvrtc._cuda_core() is old


def test_arguments_arrive_in_the_width_that_kernels_expect() -> None:
    tensor = torch.zeros(3)
    assert nvrtc._parameter(tensor) == tensor.data_ptr()
    assert nvrtc._parameter(7) == 7
    converted = nvrtc._parameter(0.1)
    assert isinstance(converted, ctypes.c_float) and converted.value == pytest.approx(0.1)


def test_a_launch_with_a_struct_goes_to_the_driver_with_every_argument_in_its_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    def launch(*arguments: Any) -> tuple[int]:
        function, *blocks, stream, parameters, extra = arguments
        addresses = [int(address or 0) for address in (ctypes.c_void_p * 4).from_address(parameters)]
        held = [
            ctypes.string_at(addresses[0], 128),
            ctypes.c_longlong.from_address(addresses[1]).value,
            ctypes.c_longlong.from_address(addresses[2]).value,
            ctypes.c_float.from_address(addresses[3]).value,
        ]
        seen.append((function, blocks, stream, held, extra))
        return (status,)

    status = 0
    driver = SimpleNamespace(CUfunction=lambda handle: ("function", handle), cuLaunchKernel=launch)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))
    tensor = torch.zeros(3)
    kernel = nvrtc.Kernel(SimpleNamespace(handle=5))
    kernel((2, 3), 64, b"x" * 128, tensor, 2**40, 0.5)
    blocks = [2, 3, 1, 64, 1, 1, 0]
    assert seen == [(("function", 5), blocks, 77, [b"x" * 128, tensor.data_ptr(), 2**40, 0.5], 0)]
    status = 1
    with pytest.raises(RuntimeError, match="cuLaunchKernel: 1"):
        kernel((2, 3), 64, b"x" * 128, tensor, 2**40, 0.5)


def needs_nvrtc() -> None:
    pytest.importorskip("cuda.core", reason="needs cuda-core")
    try:
        importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except Exception as error:  # the library itself is missing
        pytest.skip(f"needs NVRTC: {error}")


MACROS: dict[str, dict[str, int]] = {
    "fingerprint_chunks": {},
    "rms_norm": {},
    "rotary_embedding": {"HEAD_DIM": 64},
    "reshape_and_cache": {},
    "paged_attention_decode": {"HEAD_DIM": 64, "GROUP": 2, "BLOCK_SIZE": 16},
    "silu_and_mul": {},
    "key_amax": {"BLOCK_SIZE": 16, "SPLIT": 16, "STRIDED": 1},
    "load_rows": {},
}


def test_the_table_above_names_every_kernel() -> None:
    assert sorted(MACROS) == sorted(path.stem for path in FOLDER.glob("*.cu"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", MACROS)
def test_every_kernel_compiles(name: str, arch: str) -> None:
    needs_nvrtc()
    code = nvrtc.cubin(name, arch, **MACROS[name])
    assert code.startswith(b"\x7fELF") and name.encode() in code


def test_a_size_that_the_kernel_does_not_do_is_refused_with_the_compilers_words() -> None:
    needs_nvrtc()
    with pytest.raises(Inconclusive, match="a team is 2 to 32 lanes"):
        nvrtc.cubin("paged_attention_decode", "sm_90", HEAD_DIM=24, GROUP=1, BLOCK_SIZE=16)
