"""Bytes as numbers."""

from __future__ import annotations

import struct

import pytest
import torch

from cudagraph_doctor.graph.values import guess, numbers


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    ],
)
def test_elements_are_read_as_torch_reads_them(dtype: torch.dtype) -> None:
    tensor = torch.tensor([0, 1, 3, 100], dtype=dtype)
    data = bytes(tensor.view(torch.uint8).tolist())
    assert numbers(data, str(dtype).removeprefix("torch.")) == tuple(tensor.tolist())


def test_a_dtype_that_is_not_unpacked_is_none() -> None:
    assert numbers(bytes(8), "complex64") is None and numbers(bytes(8), "float8_e4m3fn") is None


@pytest.mark.parametrize(
    ("code", "values", "dtype"),
    [
        ("<i", (5, 6), "int32"),
        ("<i", (-1, 0), "int32"),
        ("<f", (5.0, 6.0), "float32"),
        ("<f", (0.0, 0.7), "float32"),  # zero alone could be an integer
        ("<f", (0.0883883476, 0.125), "float32"),
        ("<q", (128, 4096), "int64"),
        ("<d", (0.0, 2.5), "float64"),
        ("<B", (0, 1), "uint8"),
        ("<h", (5, 7), "int16"),
    ],
)
def test_a_parameter_is_read_as_what_fits_all_its_values(code: str, values: tuple[float, ...], dtype: str) -> None:
    read = guess([struct.pack(code, value) for value in values])
    assert read is not None
    assert read[0] == dtype and list(read[1]) == pytest.approx(list(values), rel=1e-5)


def test_brain_floats_are_read_as_such() -> None:
    words = [bytes(torch.tensor([x], dtype=torch.bfloat16).view(torch.uint8).tolist()) for x in (1.0, 1.5)]
    assert guess(words) == ("bfloat16", [1.0, 1.5])


@pytest.mark.parametrize("words", [[b"\xff\xff\xff\x7e"], [bytes(3)], [struct.pack("<f", 1e-30), bytes(4)]])
def test_what_looks_like_no_number_is_none(words: list[bytes]) -> None:
    assert guess(words) is None
