"""Frozen dataclasses as plain JSON and back, by their annotations. Bytes are hexadecimal text."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from enum import StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Plain JSON of dataclasses, tuples, dicts, bytes, enums. Fields that have their default value are left out."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, StrEnum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: to_plain(held) for field, held in told if not _is_default(field, held)}
    if isinstance(value, dict):
        return {str(key): to_plain(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(held) for held in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no numbers for them
    return str(value) if isinstance(value, complex) else value


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(type(value) is type(field.default) and value == field.default)
    return field.default_factory is not dataclasses.MISSING and value == field.default_factory()


def from_plain(kind: type[T], data: Any) -> T:
    """Inverse of `to_plain` for a `kind`. Raises KeyError, TypeError or ValueError on something else."""
    made: T = _made(kind, data)
    return made


def _made(kind: Any, data: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _of_union(inner, data)
    if origin is tuple:
        several = (inner[0],) * len(data) if inner[-1] is Ellipsis else inner
        return tuple(_made(one, held) for one, held in zip(several, data, strict=True))
    if origin is dict:
        return {_made(inner[0], key): _made(inner[1], held) for key, held in data.items()}
    if kind is Any:
        return data
    if kind is bytes:
        return bytes.fromhex(data)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _made(hints[name], held) for name, held in data.items()})
    if isinstance(kind, type) and issubclass(kind, (StrEnum, int, float)) and kind is not bool:
        return kind(data)
    return data


def _of_union(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None:
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    if len(rest) == 1:
        return _made(rest[0], data)
    return float(data) if float in rest and isinstance(data, str) else data


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
