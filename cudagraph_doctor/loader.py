"""SPEC -> target: names it (`spec.py`), calls it with `device=` and the arguments, checks it (`contract.py`)."""

from __future__ import annotations

import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cudagraph_doctor import blame, contract, spec
from cudagraph_doctor.contract import Form
from cudagraph_doctor.errors import DoctorError, Inconclusive, TargetError, UsageError
from cudagraph_doctor.settings import Settings
from cudagraph_doctor.target import ENGINE_MEMBERS, LOOP_MEMBERS

_TRUE = frozenset({"1", "true", "yes", "on"})
_PLAIN_TYPES = {"int": int, "float": float, "bool": bool, "str": str, "None": type(None)}
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A target that keeps the contract."""

    target: object
    form: Form
    description: dict[str, Any]
    """What a report says about it: plain JSON."""
    warnings: tuple[str, ...] = ()
    """Sentences for the user: members that will be ignored because of a slip in their names."""


def load(settings: Settings, device: str) -> Loaded:
    """Load the target that `settings.spec` names, on `device`.

    Raises UsageError or TargetError if it cannot be loaded or breaks the contract, Inconclusive if memory runs out.
    """
    refuse_early(settings)
    named = spec.parse(settings.spec)
    if named.kind == "reference":
        target = _load_reference(named, settings, device)
    else:
        found = spec.resolve(named, settings.app_dir)
        with spec.as_script(named.where):
            target = _make(found, str(named), {"device": device}, settings)
    return _checked(target, settings)


def load_object(found: object, settings: Settings, device: str) -> Loaded:
    """The same for a target at hand, or for what makes one; `settings.spec` is its name in reports."""
    return _checked(_make(found, settings.spec, {"device": device}, settings), settings)


def _checked(target: object, settings: Settings) -> Loaded:
    form = contract.check(target)
    _check_buckets(target, form, settings)
    return Loaded(target, form, _describe(target, form, settings), tuple(contract.misspelt(target, form)))


def refuse_early(settings: Settings) -> None:
    """Raise UsageError on what can be seen to be wrong without importing torch or the target."""
    named = spec.parse(settings.spec)
    if settings.twin and not settings.fault:
        raise UsageError("--twin is the sound twin of a fault, and no fault is named.", fix="Add --fault NAME.")
    if not settings.fault:
        return
    if named.kind != "reference":
        raise UsageError(
            f'--fault {settings.fault} is for the bundled model, not for "{settings.spec}".',
            fix="Leave --fault out, or use the SPEC reference.",
        )
    from cudagraph_doctor.reference_models.runner_faults import ALL_FAULTS

    if settings.fault not in ALL_FAULTS:
        raise UsageError(
            f'There is no planted fault "{settings.fault}".{spec.near(settings.fault, ALL_FAULTS)}',
            fix="See `cudagraph-doctor faults` for their names.",
        )


def _load_reference(named: spec.Spec, settings: Settings, device: str) -> object:
    from cudagraph_doctor import reference_models

    fixed = {"form": named.attr, "device": device, "fault": settings.fault, "twin": settings.twin}
    return _make(reference_models.load, "reference", fixed, settings)


def _make(found: object, name: str, fixed: Mapping[str, object], settings: Settings) -> object:
    """Call what the SPEC named; an object that is a target already is taken as it is."""
    if not _is_factory(found):
        if settings.target_args:
            raise TargetError(
                f"{name} is an object, not a function: it takes no arguments.",
                seen=", ".join(f"{k}={v}" for k, v in settings.target_args.items()),
                fix="Leave --target-arg out, or name a function or class that makes the target.",
            )
        return found
    assert callable(found)
    arguments = {**fixed, **_arguments(found, name, fixed, settings)}
    try:
        target = found(**arguments)
    except (KeyboardInterrupt, DoctorError):
        raise
    except BaseException as error:
        if blame.is_out_of_memory(error):
            raise Inconclusive(
                f"There is not enough memory to make the target {name}.",
                seen=blame.describe(error),
                fix="Free memory on the device, or make a smaller target (--target-arg).",
                traceback=blame.user_traceback(error),
            ) from error
        raise TargetError(
            f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())}) raised an exception.",
            seen=blame.describe(error),
            fix="Mend it so that it returns a target; --debug shows the whole traceback.",
            traceback=blame.user_traceback(error),
        ) from error
    if inspect.iscoroutine(target):
        target.close()
    if target is None or inspect.isclass(target) or inspect.isawaitable(target):
        raise TargetError(
            f"{name}(...) did not return a target.",
            seen=f"it returned {target!r}",
            fix="Return the target object itself (a plain `def` that ends in `return`).",
        )
    return target


def _is_factory(found: object) -> bool:
    if inspect.isclass(found) or inspect.isroutine(found) or isinstance(found, functools.partial):
        return True
    members = {*LOOP_MEMBERS, *ENGINE_MEMBERS}
    return callable(found) and not any(contract.has(found, name) for name in members)


def _arguments(
    found: Callable[..., object], name: str, fixed: Mapping[str, object], settings: Settings
) -> dict[str, object]:
    """The arguments besides `fixed`, converted; `seed` where it is taken. Raises TargetError if one does not fit."""
    try:
        signature = inspect.signature(found, eval_str=True)
    except (TypeError, ValueError, NameError):
        try:
            signature = inspect.signature(found)
        except (TypeError, ValueError):
            return dict(settings.target_args)
    shown = f"{name}{signature}"
    parameters = signature.parameters
    by_name = {key for key, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    converted: dict[str, object] = {}
    for key, text in settings.target_args.items():
        if key in fixed:
            raise TargetError(f"--target-arg {key} is set by the doctor itself.", fix=f"Leave --target-arg {key} out.")
        if key not in by_name and not takes_any:
            others = sorted(by_name - set(fixed))
            raise TargetError(
                f'{name} takes no argument "{key}".{spec.near(key, others)}',
                seen=shown,
                fix=f"Use one of: {', '.join(others)}." if others else "Leave --target-arg out.",
            )
        converted[key] = _converted(key, text, parameters.get(key))
    if "seed" in by_name and "seed" not in converted:
        converted["seed"] = settings.seed
    if "device" not in by_name and not takes_any:
        raise TargetError(
            f"{name} does not take the argument device.", seen=shown, fix="Give it one: def target(device): ..."
        )
    for key, parameter in parameters.items():
        required = parameter.default is parameter.empty and key in by_name
        if required and key not in converted and key not in fixed:
            raise TargetError(
                f"{name} needs the argument {key}.",
                seen=shown,
                fix=f"Add --target-arg {key}=VALUE, or give it a default.",
            )
    return converted


def _converted(key: str, text: str, parameter: inspect.Parameter | None) -> object:
    """`text` as the parameter's annotation (or its default's type) asks: int, float, bool; else it stays text."""
    if parameter is None:
        return text
    wanted = parameter.annotation
    if wanted is parameter.empty:
        wanted = str if parameter.default in (parameter.empty, None) else type(parameter.default)
    if isinstance(wanted, str):  # could not be evaluated, perhaps for another parameter's sake
        kinds: tuple[object, ...] = tuple(_PLAIN_TYPES.get(part.strip()) for part in wanted.split("|"))
    elif isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union:
        kinds = typing.get_args(wanted)
    else:
        kinds = (wanted,)
    if type(None) in kinds and text.lower() == "none":
        return None
    plain = [kind for kind in (bool, int, float) if kind in kinds]
    for kind in plain:
        try:
            return _parsed(kind, text)
        except ValueError:
            continue
    if plain and str not in kinds:
        expected = " or ".join(kind.__name__ for kind in plain)
        raise TargetError(
            f'--target-arg {key}={text}: "{text}" is no {expected}.', fix=f"Give {key} a value of type {expected}."
        )
    return text


def _parsed(kind: type, text: str) -> object:
    if kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE
    return int(text) if kind is int else float(text)


def _check_buckets(target: object, form: Form, settings: Settings) -> None:
    if form != "loop" or not settings.buckets:
        return
    known = contract.sizes(contract.get(target, "buckets"), "buckets")
    unknown = [bucket for bucket in settings.buckets if bucket not in known]
    if unknown:
        raise UsageError(
            f"The target has no bucket {', '.join(map(str, unknown))}.",
            seen=f"its buckets are {', '.join(map(str, known))}",
            fix="Give --buckets some of these.",
        )


def _describe(target: object, form: Form, settings: Settings) -> dict[str, Any]:
    about: dict[str, Any] = {
        "spec": settings.spec,
        "form": form,
        "type": f"{type(target).__module__}.{type(target).__qualname__}",
        "arguments": dict(settings.target_args),
        "fault": settings.fault,
        "twin": settings.twin,
        "ignore": contract.ignored(target),
    }
    try:
        about["file"] = os.path.realpath(inspect.getfile(type(target)))
        about["line"] = inspect.getsourcelines(type(target))[1]
    except (OSError, TypeError):
        pass  # made at run time: there is no source to point at
    if form == "loop":
        about["buckets"] = list(contract.sizes(contract.get(target, "buckets"), "buckets"))
    return about
