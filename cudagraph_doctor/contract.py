"""Does an object keep the target contract, and in which form? The tables are in `target.py`; errors name the member.

Signatures are compared by what they can be called with: the checks call every member with positional arguments.
"""

from __future__ import annotations

import difflib
import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from cudagraph_doctor import blame
from cudagraph_doctor.errors import TargetError
from cudagraph_doctor.gate import selection
from cudagraph_doctor.spec import near
from cudagraph_doctor.target import ENGINE_MEMBERS, ENGINE_OPTIONAL, LOOP_MEMBERS, LOOP_OPTIONAL

Form = Literal["loop", "engine"]

_REQUIRED: Mapping[Form, Mapping[str, str]] = {"loop": LOOP_MEMBERS, "engine": ENGINE_MEMBERS}
_OPTIONAL: Mapping[Form, Mapping[str, str]] = {"loop": LOOP_OPTIONAL, "engine": ENGINE_OPTIONAL}
_NAMES: Mapping[Form, str] = {"loop": "LoopTarget", "engine": "EngineTarget"}
_MISSING = object()


def classify(target: object) -> Form:
    """Tell the two forms apart by their members. Raises TargetError if it is neither, or both."""
    missing = {form: [name for name in members if not has(target, name)] for form, members in _REQUIRED.items()}
    complete = [form for form, names in missing.items() if not names]
    if len(complete) == 2:
        raise TargetError(
            f"{_type(target)} has all members of a LoopTarget and all of an EngineTarget; it can be only one.",
            fix="Rename step and graphs for a LoopTarget, or buckets, next_inputs and forward for an EngineTarget.",
        )
    if complete:
        return complete[0]
    own = {form: sum(has(target, name) for name in _REQUIRED[form] if name != "reset") for form in missing}
    if not any(own.values()):
        raise TargetError(
            f"{_type(target)} is no target: it has no member of a LoopTarget or an EngineTarget.",
            seen=f"public members: {', '.join(_public(target)[:12]) or 'none'}",
            fix="Give it "
            + _signatures(LOOP_MEMBERS)
            + " -- or "
            + _signatures(ENGINE_MEMBERS)
            + ". `cudagraph-doctor init` writes a skeleton.",
        )
    form: Form = "loop" if own["loop"] > own["engine"] else "engine"
    lacking = missing[form]
    raise TargetError(
        f"{_type(target)} is no complete {_NAMES[form]}: it lacks {', '.join(lacking)}."
        + "".join(_misspelt_as(name, target) for name in lacking),
        seen=f"it has {', '.join(name for name in _REQUIRED[form] if name not in lacking)}",
        fix=f"Add {_signatures({name: _REQUIRED[form][name] for name in lacking})}.",
    )


def check(target: object) -> Form:
    """Classify, and check each member's kind, signature and value. Raises TargetError; no method is called."""
    form = classify(target)
    for name, signature in {**_REQUIRED[form], **_OPTIONAL[form]}.items():
        member = get(target, name)
        if member is not _MISSING and member is not None:
            _check_member(target, name, member, signature)
    return form


def misspelt(target: object, form: Form) -> list[str]:
    """Sentences on methods that look like an optional member with a slip in its name: they would be ignored."""
    known = {**_REQUIRED[form], **_OPTIONAL[form]}
    found = []
    for name in _public(target):
        hint = near(name, [m for m in _OPTIONAL[form] if m[0] == name[0]], cutoff=0.85) if name not in known else ""
        if hint and name in vars(type(target)) and callable(get(target, name)):
            found.append(f"{type(target).__name__}.{name} is no member of the contract and is ignored.{hint}")
    return found


def get(target: object, name: str) -> object:
    """The member, or a marker if there is none. An AttributeError from inside a property is not "missing"."""
    try:
        return getattr(target, name)
    except Exception as error:
        if isinstance(error, AttributeError) and inspect.getattr_static(target, name, _MISSING) is _MISSING:
            return _MISSING
        raise TargetError(
            f"Reading {type(target).__name__}.{name} raised an exception.",
            seen=blame.describe(error),
            fix=f"Mend the property {name}.",
            traceback=blame.user_traceback(error),
        ) from error


def has(target: object, name: str) -> bool:
    """Whether the target offers the member; one set to None is not offered."""
    member = get(target, name)
    return member is not _MISSING and member is not None


def sizes(value: object, name: str) -> tuple[int, ...]:
    """`buckets` or `batch_sizes` as integers >= 1. Raises TargetError, in words, on anything else."""
    expected = f"Make {name} a list of integers, ascending and each once, such as [1, 2, 4, 8]."
    if callable(value):
        raise TargetError(f"{name} is a method.", fix=f"Make it an attribute, or put @property above it. {expected}")
    if isinstance(value, Iterator):
        raise TargetError(f"{name} is a {type(value).__name__}: it is used up at the first reading.", fix=expected)
    if isinstance(value, (str, bytes, Mapping)) or not (isinstance(value, Sequence) or hasattr(value, "__array__")):
        raise TargetError(f"{name} is no list of integers.", seen=_short(value), fix=expected)
    assert isinstance(value, Iterable)
    try:
        if any(isinstance(item, bool) for item in value):
            raise TypeError
        found = tuple(operator.index(item) for item in value)
    except TypeError:
        raise TargetError(f"{name} holds something that is no integer.", seen=_short(value), fix=expected) from None
    if not found:
        raise TargetError(f"{name} is empty.", fix=expected)
    if min(found) < 1:
        raise TargetError(f"{name} holds a size below 1.", seen=_short(found), fix=expected)
    return found


def ignored(target: object) -> dict[str, str]:
    """The rules that the target wants ignored, by prefix of their codes, with the reasons. Raises TargetError."""
    if not has(target, "ignore"):
        return {}
    try:
        entries = selection.reasoned(get(target, "ignore"), selection.TARGET)
    except ValueError as error:
        raise TargetError(
            f"{type(target).__name__}.ignore is not usable: {error}",
            seen=_short(get(target, "ignore")),
            fix='Write ignore = {"CGD217": "why this may be ignored here"}.',
        ) from None
    return {entry.prefix: entry.reason for entry in entries}


def _misspelt_as(name: str, target: object) -> str:
    """` Is its "graph" meant as "graphs"?` or nothing."""
    close = difflib.get_close_matches(name, [other for other in _public(target) if other != name], n=1)
    return f' Is its "{close[0]}" meant as "{name}"?' if close else ""


def _check_member(target: object, name: str, member: object, signature: str) -> None:
    owner = type(target).__name__
    if name == "buckets":
        found = sizes(member, f"{owner}.buckets")
        if list(found) != sorted(set(found)):
            why = "hold a size twice" if len(set(found)) < len(found) else "are not ascending"
            raise TargetError(
                f"{owner}.buckets {why}.",
                seen=_short(found),
                fix=f"Write {sorted(set(found))}.",
            )
    elif name == "batch_sizes":
        sizes(member, f"{owner}.batch_sizes")
    elif name == "ignore":
        ignored(target)
    elif not signature.startswith("def "):
        if callable(member) and not isinstance(member, Iterable):
            raise TargetError(f"{owner}.{name} is a method.", fix=f"Make it an attribute or a @property: {signature}.")
    else:
        _check_method(owner, name, member, signature)


def _check_method(owner: str, name: str, member: object, signature: str) -> None:
    fix = f"Write it as: {signature}."
    if not callable(member):
        raise TargetError(f"{owner}.{name} is a {type(member).__name__}, not a method.", seen=_short(member), fix=fix)
    if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
        raise TargetError(f"{owner}.{name} is asynchronous; the doctor calls it and takes what it returns.", fix=fix)
    if inspect.isgeneratorfunction(member):
        raise TargetError(f"{owner}.{name} is a generator (it yields); it has to return.", fix=fix)
    try:
        actual = inspect.signature(member)
    except (TypeError, ValueError):
        return  # builtins and scripted functions show no signature: the call will tell
    expected = _argument_names(signature)
    try:
        actual.bind(*expected)
    except TypeError as error:
        raise TargetError(
            f"{owner}.{name}{_plain(actual)} cannot be called with ({', '.join(expected)}): {error}.", fix=fix
        ) from None
    names = [p.name for p in actual.parameters.values()][: len(expected)]
    if names != expected and sorted(names) == sorted(expected):
        raise TargetError(
            f"{owner}.{name} takes its arguments in another order: ({', '.join(names)}).",
            seen=f"it is called as {name}({', '.join(expected)})",
            fix=fix,
        )


def _argument_names(signature: str) -> list[str]:
    inside = signature[signature.index("(") + 1 : signature.index(")")]
    return [part.partition(":")[0].strip() for part in inside.split(",") if part.strip() != "self"]


def _plain(signature: inspect.Signature) -> str:
    """The parameter list without annotations."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))


def _public(target: object) -> list[str]:
    return [name for name in dir(target) if not name.startswith("_")]


def _signatures(members: Mapping[str, str]) -> str:
    return "; ".join(f"`{signature}`" for signature in members.values())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _type(target: object) -> str:
    return f"The object ({type(target).__module__}.{type(target).__qualname__})"
