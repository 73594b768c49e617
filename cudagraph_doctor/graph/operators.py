"""What an operator does, learnt once from its schema and tags: what it writes, whether the host reads, and the like."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from cudagraph_doctor.graph.model import NodeKind


class Role(Enum):
    """How the watch treats an operator."""

    ORDINARY = "ordinary"
    COPY = "copy"
    """Moves between host and device: copy_, _to_copy."""
    INDEX = "index"
    """Takes indices that may lie on the host or be a mask."""
    HOST_READ = "host read"
    """Gives a Python number, or an output whose shape depends on values: the host has to wait for the device."""
    IS_PINNED = "is pinned"
    PIN = "pin"


_ROLES = {
    "aten::copy_": Role.COPY,
    "aten::_to_copy": Role.COPY,
    "aten::index": Role.INDEX,
    "aten::_unsafe_index": Role.INDEX,
    "aten::index_put": Role.INDEX,
    "aten::index_put_": Role.INDEX,
    "aten::_index_put_impl_": Role.INDEX,
    "aten::_unsafe_index_put": Role.INDEX,
    "aten::is_pinned": Role.IS_PINNED,
    "aten::_pin_memory": Role.PIN,
}
_COPIES = {"aten::copy_", "aten::_to_copy", "aten::clone", "aten::_copy_from"}
_FILLS = {"aten::zero_", "aten::fill_", "aten::zeros", "aten::zeros_like", "aten::new_zeros"}
_ALLOCATES_ONLY = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::empty_permuted",
    "aten::new_empty",
    "aten::new_empty_strided",
}
_KEYS: Any = torch._C.DispatchKey
_COMPOSITE = _KEYS.CompositeImplicitAutograd
_HOST_READ_TAGS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


@dataclass(frozen=True, slots=True)
class Operator:
    """The facts about one operator overload."""

    func: Callable[..., Any]
    name: str
    """"aten.add.Tensor"."""
    base: str
    """"aten::add"."""
    arguments: tuple[str, ...]
    """Argument names, positional ones first; empty for an operator without a schema."""
    positional: int
    """How many of them are positional."""
    defaults: tuple[Any, ...]
    """Default values of the last positional arguments: the dispatcher leaves out what equals them."""
    written: tuple[tuple[int, str], ...]
    """(position, name) of the arguments that are written."""
    role: Role
    dynamic_shape: bool
    """The shape of its output depends on values."""
    kind: NodeKind
    launches: bool
    """Does something on the device: neither a view nor a bare allocation."""
    takes_device: bool
    random: bool
    takes_generator: bool
    composite: bool
    """Made of other operators, which are what counts. In inference mode it arrives whole."""
    torchs: bool
    """One of torch's own (not a custom operator, whose host arguments are its own business)."""

    def complete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The positional arguments with the defaults that were left out, so that two captures have the same ones."""
        positional = len(args)
        first = self.positional - len(self.defaults)
        names = self.arguments[positional : self.positional]
        if positional < first or any(name in kwargs for name in names):
            return args
        return (*args, *self.defaults[positional - first :])

    def written_tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
        """The tensors among the arguments that it writes."""
        for at, name in self.written:
            yield from tensors_in(args[at] if at < len(args) else kwargs.get(name))

    def argument(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value passed for `name`, or None."""
        if name in kwargs:
            return kwargs[name]
        at = self.arguments.index(name) if name in self.arguments else len(args)
        return args[at] if at < len(args) else None


def learn(func: Callable[..., Any]) -> Operator:
    """Read an operator's schema and tags. A higher-order operator has neither: it is taken to write nothing."""
    name = str(func)
    if not isinstance(func, torch._ops.OpOverload):
        return Operator(
            func=func,
            name=name,
            base=name,
            arguments=(),
            positional=0,
            defaults=(),
            written=(),
            role=Role.ORDINARY,
            dynamic_shape=False,
            kind=NodeKind.KERNEL,
            launches=True,
            takes_device=False,
            random=False,
            takes_generator=False,
            composite=False,
            torchs=False,
        )
    schema, tags = func._schema, set(func.tags)
    role = _ROLES.get(schema.name, Role.ORDINARY)
    if role is Role.ORDINARY and tags & _HOST_READ_TAGS:
        role = Role.HOST_READ
    kind = NodeKind.KERNEL
    if schema.name in _COPIES:
        kind = NodeKind.MEMCPY
    elif schema.name in _FILLS:
        kind = NodeKind.MEMSET
    names = tuple(argument.name for argument in schema.arguments)
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    written = tuple(
        (at, argument.name)
        for at, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return Operator(
        func=func,
        name=name,
        base=schema.name,
        arguments=names,
        positional=len(positional),
        defaults=tuple(argument.default_value for argument in positional if argument.has_default_value()),
        written=written,
        role=role,
        dynamic_shape=torch.Tag.dynamic_output_shape in tags,
        kind=kind,
        launches=not ((func.is_view and not written) or schema.name in _ALLOCATES_ONLY),
        takes_device="device" in names,
        random=torch.Tag.nondeterministic_seeded in tags,
        takes_generator="generator" in names,
        composite=torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        torchs=schema.name.startswith(("aten::", "prims::")),
    )


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors of an argument or result, in order; lists and dicts are entered. Called for every operator."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    found: list[torch.Tensor] = []
    for item in value:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple, dict)):
            found += tensors_in(item)
    return found


def decomposed(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a composite operator as what it is made of; in a dispatch mode's handler, these then reach the mode."""
    with _lazy_bits_resolved():
        return operator.func._op_dk(_COMPOSITE, *args, **kwargs)  # type: ignore[attr-defined]


def _lazy_bits_resolved() -> AbstractContextManager[None]:
    """Inside, operators find conjugated and negated views resolved, as outside of a dispatch mode's handler."""
    excluded: Any = torch._C._dispatch_tls_local_exclude_set()
    for key in (_KEYS.Conjugate, _KEYS.Negative, _KEYS.ZeroTensor):
        excluded = excluded.remove(key)
    guard: AbstractContextManager[None] = torch._C._ForceDispatchKeyGuard(
        torch._C._dispatch_tls_local_include_set(), excluded
    )
    return guard


@functools.cache
def dispatches_itself(kind: type) -> bool:
    """Whether a tensor class has operators of its own, below which the plain ones are seen."""
    own = getattr(kind, "__torch_dispatch__", None)
    return own is not None and own is not torch._C._disabled_torch_dispatch_impl
