"""What a target's optional members hold and return, checked where it is read: the one who wrote them is told in words.

`contract.py` looks at the members themselves and calls none. A member that is missing or None is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import torch

from cudagraph_doctor import contract
from cudagraph_doctor.errors import TargetError
from cudagraph_doctor.target import ENGINE_OPTIONAL, LOOP_OPTIONAL
from cudagraph_doctor.walk import has_memory

_SIGNATURES = {**LOOP_OPTIONAL, **ENGINE_OPTIONAL}
_EXAMPLES = {
    "state": '{"k_cache": self.k_cache}',
    "named": '{"k_cache": self.k_cache}',
    "reserved": '{"k_cache": [0]}',
    "roots": '{"engine": self.engine}',
    "generators": "[self.generator]",
    "interludes": '{"prefill": self.prefill}',
    "untouchable": "[self.peer_buffer]",
    "pipelined": "True",
}


def tensors(target: object, member: str) -> dict[str, torch.Tensor]:
    """What `state()` or `named()` returns. Raises TargetError if it is not tensors by name."""
    found = _mapping(target, member, "tensors by name")
    for name, value in found.items():
        if not isinstance(value, torch.Tensor) or not has_memory(value):
            what = "a tensor without memory of its own" if isinstance(value, torch.Tensor) else _a(value)
            raise _refusal(f'{member}()["{name}"] is {what}, and no tensor in device memory', member, value)
    return found


def reserved(target: object) -> dict[str, Any]:
    """What `reserved()` returns: rows by name; `given_names` looks at both. Raises TargetError if it is no mapping."""
    return _mapping(target, "reserved", "lists of rows by name")


def roots(target: object) -> dict[str, Any]:
    """What `roots()` returns, the target itself without it. Raises TargetError if it is not objects by name."""
    return _mapping(target, "roots", "objects by name") if contract.has(target, "roots") else {"": target}


def interludes(target: object) -> dict[str, Callable[[], object]]:
    """What `interludes()` returns. Raises TargetError if it is not callables by name."""
    found = _mapping(target, "interludes", "functions by name")
    for name, value in found.items():
        if not callable(value):
            raise _refusal(f'interludes()["{name}"] is {_a(value)}, and cannot be called', "interludes", value)
    return found


def untouchable(target: Any) -> tuple[torch.Tensor, ...]:
    """What `untouchable()` returns. Raises TargetError if it is not a list of tensors."""
    if not contract.has(target, "untouchable"):
        return ()
    given = target.untouchable()
    if not isinstance(given, Iterable) or isinstance(given, (torch.Tensor, str, Mapping)):
        raise _refusal(f"untouchable() returned {_a(given)}, and no list of tensors", "untouchable", given)
    found = tuple(given)
    for one in found:
        if not isinstance(one, torch.Tensor):
            raise _refusal(f"untouchable() returned a list with {_a(one)} in it", "untouchable", given)
    return found


def key(target: Any, step: int, rows: int) -> Hashable:
    """What `key(i, n)` returns, `rows` without it. Raises TargetError if nothing can be looked up by it."""
    if not contract.has(target, "key"):
        return rows
    found = target.key(step, rows)
    try:
        hash(found)
    except TypeError:
        hashable = False
    else:
        hashable = not isinstance(found, torch.Tensor)  # equal ones have other hashes
    if not hashable:
        raise TargetError(
            f"key({step}, {rows}) returned {_a(found)}, and no graph can be looked up by that",
            seen=_short(found),
            fix="return what the runner looks the graph of this step up by: a number, a string, a tuple of those; None "
            "where no graph serves the step",
        )
    return found  # type: ignore[no-any-return]


def generators(target: object) -> tuple[torch.Generator, ...]:
    """The target's random generators. Raises TargetError if they are something else."""
    if not contract.has(target, "generators"):
        return ()
    given = contract.get(target, "generators")
    if not isinstance(given, Iterable) or isinstance(given, torch.Tensor):
        raise _refusal(f"generators is {_a(given)}, and no list of torch.Generator", "generators", given)
    found = tuple(given)
    for one in found:
        if not isinstance(one, torch.Generator):
            raise _refusal(f"generators holds {_a(one)}, and no torch.Generator", "generators", given)
    return found


def pipelined(target: object) -> bool:
    """Whether steps may overlap. Raises TargetError if that is no bool."""
    if not contract.has(target, "pipelined"):
        return False
    given = contract.get(target, "pipelined")
    if not isinstance(given, bool):
        raise _refusal(f"pipelined is {_a(given)}, and no bool", "pipelined", given)
    return given


def _mapping(target: Any, member: str, expected: str) -> dict[str, Any]:
    if not contract.has(target, member):
        return {}
    found = getattr(target, member)()
    if not isinstance(found, Mapping):
        raise _refusal(f"{member}() returned {_a(found)}, and not {expected}", member, found)
    wrong = [name for name in found if not isinstance(name, str)]
    if wrong:
        raise _refusal(f"{member}() has {_a(wrong[0])} for a name", member, found)
    return dict(found)


def _refusal(what: str, member: str, given: object) -> TargetError:
    fix = f"write it as `{_SIGNATURES[member]}`; for example {_EXAMPLES[member]}"
    return TargetError(what, seen=_short(given), fix=fix)


def _a(value: object) -> str:
    """`a list`, `None`."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
