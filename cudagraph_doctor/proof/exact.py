"""Which outputs of an eager step no rounding can have reached: counts and ids, in whatever dtype they are held.

Two right ways to compute a float differ by rounding, and so does what is decided or rounded by it. What was made from
whole numbers alone, small enough for their dtype to hold each of them, is the same in every right way. One eager run is
watched operator by operator; what nobody can vouch for counts as rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf, prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor import blame, tree
from cudagraph_doctor.proof.arms import Arm, Arms, span
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.subject import Planned

_VOUCHED = 1 << 20
"""Bytes: of larger storages nobody vouches that everybody who writes to them was seen."""
_TF32 = 1 << 11
"""Whole numbers up to this one survive where a product of matrices rounds its operands."""
_FILLS = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
_READS = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"})


def exact_outputs(arms: Arms, at: Planned) -> frozenset[str]:
    """Paths of the outputs of step `at` that no rounding can have reached; it is run once more, from the saved state.

    None where the step cannot be watched; why is added to the subject's `not_checked`.
    """
    watch = _Watch(arms.backend.is_host, lambda tensor: _as_saved(arms, tensor))
    try:
        result = arms.run(Arm.EAGER, at, around=watch)
    except Exception as error:
        if blame.is_out_of_memory(error) or "CUDA error" in str(error):
            raise
        arms.subject.not_checked.append(
            f"whether whole numbers that differ by little are rounded: watched, the step raised {blame.describe(error)}"
        )
        return frozenset()
    with arms.backend.own_memory(), torch.no_grad():
        return frozenset(path for path, tensor in tree.tensors(result.outputs).items() if watch.vouches(tensor))


def _as_saved(arms: Arms, tensor: torch.Tensor) -> bool:
    """Whether what of it is state is as it was before the step: kernels write without an operator too."""
    here, before = Extent(*span(tensor)), arms.saved.memory
    with arms.backend.own_memory(), torch.no_grad():
        for extent in (extent for extent in before if extent.meets(here)):
            now = arms.memory.view(extent)
            if now is None or not torch.equal(now, before[extent]):
                return False
    return True


class _Watch(TorchDispatchMode):
    """Keeps the bytes of every storage that holds exact numbers, and vouches for those that are as they were left.

    Args:
        is_host: whether a tensor is one of the host.
        untouched: whether a tensor from before the step is as it was then.
    """

    def __init__(self, is_host: Callable[[torch.Tensor], bool], untouched: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._is_host = is_host
        self._untouched = untouched
        self._left: dict[int, torch.Tensor | None] = {}
        """Address of a storage -> its bytes when it was written last; None: rounded, or not known."""
        self._told = False
        """Whether the host has seen something rounded: any number it passes on may come from that."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and note whether what it writes is exact."""
        kwargs = kwargs or {}
        given = list(tree.leaves((args, kwargs)).values())
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        written = _written(func, args, kwargs)
        fills = func._schema.name in _FILLS and _is_whole_storage(written[0])
        sources = [t for t in tensors if not any(t is other for other in written)]
        # all of them: who is met for the first time is looked at before it is written
        known = [self.vouches(tensor) for tensor in (sources if fills else tensors)]
        exact = all(known) and not self._told and _keeps_exact(func, sources, given)
        result = func(*args, **kwargs)
        storages = {_address(tensor) for tensor in tensors}
        made = [*written, *(t for t in tree.tensors(result).values() if _address(t) not in storages)]
        for tensor in made:
            self._leave(tensor, exact)
        if not all(known) and (func._schema.name in _READS or any(map(self._is_host, made))):
            self._told = True
        return result

    def vouches(self, tensor: torch.Tensor) -> bool:
        """Whether all that lies in the tensor's storage is exact."""
        address = _address(tensor)
        if address not in self._left:
            self._leave(tensor, self._untouched(tensor))
        left = self._left[address]
        return left is not None and torch.equal(left, _flat(tensor, torch.uint8))

    def _leave(self, tensor: torch.Tensor, exact: bool) -> None:
        exact = exact and tensor.untyped_storage().nbytes() <= _VOUCHED and _is_whole(_flat(tensor, tensor.dtype))
        self._left[_address(tensor)] = _flat(tensor, torch.uint8).clone() if exact else None


def _keeps_exact(func: Any, sources: Sequence[torch.Tensor], given: Sequence[Any]) -> bool:
    """Whether the operator makes exact numbers of exact numbers, in any order that a kernel may add them in."""
    if torch.Tag.nondeterministic_seeded in func.tags or "empty" in func._schema.name:
        return False
    if any(isinstance(number, float) and not isinf(number) and not number.is_integer() for number in given):
        return False
    floats = [source for source in sources if source.is_floating_point() and source.numel()]
    if not floats or torch.Tag.pointwise in func.tags:
        return True
    largest = [float(source.abs().max()) for source in floats]
    if len(floats) > 1 and max(largest) > _TF32:
        return False
    terms = max(source.numel() for source in floats)
    return terms * prod(max(1.0, size) for size in largest) <= min(_limit(source.dtype) for source in floats)


def _is_whole(flat: torch.Tensor) -> bool:
    """Whether all of it are whole numbers, none larger than its dtype tells from its neighbours."""
    if flat.is_complex():
        return False
    if not flat.is_floating_point() or not flat.numel():
        return True
    wide = flat.double()
    return bool((wide == wide.trunc()).all()) and float(wide.abs().max()) <= _limit(flat.dtype)


def _limit(dtype: torch.dtype) -> float:
    return 1 / torch.finfo(dtype).eps


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors among its arguments that the operator writes to."""
    values = [
        (spec, args[i] if i < len(args) else kwargs.get(spec.name)) for i, spec in enumerate(func._schema.arguments)
    ]
    mutated = [value for spec, value in values if spec.alias_info is not None and spec.alias_info.is_write]
    return list(tree.tensors(mutated).values())


def _is_whole_storage(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _flat(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """All of the tensor's storage, as elements of a dtype."""
    return torch.empty(0, dtype=dtype, device=tensor.device).set_(tensor.untyped_storage())
