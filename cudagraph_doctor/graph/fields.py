"""Copies and fills: which fields of their parameter structs are shown as parameters, and can be patched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cudagraph_doctor.graph.functions import Unreadable


@dataclass(frozen=True, slots=True)
class Field:
    """A number in a node's parameter struct that the model shows as a parameter."""

    name: str
    attribute: str
    address: str = ""
    """"device" or "host" if it is an address of such memory."""


def copy_fields(params: Any) -> tuple[Field, ...]:
    """What is shown of a CUDA_MEMCPY3D. Raises Unreadable for copies of CUDA arrays and with an offset."""
    sides = [_copy_side(params, side) for side in ("dst", "src")]
    return (
        *sides,
        Field("width_bytes", "WidthInBytes"),
        Field("height", "Height"),
        Field("depth", "Depth"),
        *((Field("dst_pitch", "dstPitch"), Field("src_pitch", "srcPitch")) if params.Height > 1 else ()),
    )


def _copy_side(params: Any, side: str) -> Field:
    if any(getattr(params, side + axis) for axis in ("XInBytes", "Y", "Z")):
        raise Unreadable("copies of a part of a CUDA array are not read")
    try:
        kind = int(getattr(params, f"{side}MemoryType"))
    except ValueError as error:
        raise Unreadable(f"the driver does not tell the memory type of the copy's {side}: {error}") from error
    match kind:
        case 1:  # CU_MEMORYTYPE_HOST
            return Field(side, f"{side}Host", "host")
        case 2 | 4:  # CU_MEMORYTYPE_DEVICE, _UNIFIED
            return Field(side, f"{side}Device", "device")
        case _:
            raise Unreadable("copies of CUDA arrays are not read")


def fill_fields(params: Any) -> tuple[Field, ...]:
    """What is shown of a CUDA_MEMSET_NODE_PARAMS."""
    return (
        Field("dst", "dst", "device"),
        Field("value", "value"),
        Field("element_bytes", "elementSize"),
        Field("width", "width"),
        Field("height", "height"),
        *((Field("pitch", "pitch"),) if params.height > 1 else ()),
    )
