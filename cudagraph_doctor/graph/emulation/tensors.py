"""Stand-ins for the few tensor methods and functions that pass no dispatcher, or look at the device in C++."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from cudagraph_doctor.graph.emulation import faults
from cudagraph_doctor.graph.emulation.device import active
from cudagraph_doctor.graph.emulation.memory import memory_of, place_of
from cudagraph_doctor.graph.emulation.watch import DEVICE, HOST, means_device
from cudagraph_doctor.graph.illegal import Place
from cudagraph_doctor.graph.operators import tensors_in

_Base: Any = torch._C.TensorBase
_DEVICE_OF = _Base.device.__get__
_TO, _TYPE, _TOLIST, _NUMPY = _Base.to, _Base.type, _Base.tolist, _Base.numpy
_Tensor: Any = torch.Tensor  # not all of its methods are typed
_REPR, _DEEPCOPY = _Tensor.__repr__, _Tensor.__deepcopy__
_TENSOR, _AS_TENSOR, _ASARRAY = torch.tensor, torch.as_tensor, torch.asarray
_LOAD: Any = torch.load
_FROM_NUMPY, _FROMBUFFER, _NEW_TENSOR = torch.from_numpy, torch.frombuffer, _Base.new_tensor


def _on_device(tensor: torch.Tensor) -> bool:
    memory = memory_of(tensor)
    return memory is not None and memory.place is Place.DEVICE


def _device(self: torch.Tensor) -> torch.device:
    device: torch.device = _DEVICE_OF(self)
    return DEVICE if device.type == "cpu" and _on_device(self) else device


def _target(device: Any) -> torch.device:
    """The device that an argument names; a bare number is a CUDA device."""
    return DEVICE if isinstance(device, int) else torch.device(device)


def _to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.to`: a device tensor is not copied to the device again, and always copied to the host."""
    as_usual: Callable[..., torch.Tensor] = functools.partial(_TO, self)
    asked = kwargs.get("device")
    rest = args
    if asked is None and args:
        first = args[0]
        if isinstance(first, torch.Tensor):
            asked, rest = first.device, (first.dtype, *args[1:])
        elif first is None or isinstance(first, (str, int, torch.device)):
            asked, rest = first, args[1:]
    if asked is None:
        return as_usual(*args, **kwargs)
    device = _target(asked)
    kwargs.pop("device", None)
    names = ("dtype", "non_blocking", "copy", "memory_format")
    options = {name: value for name, value in zip(names, rest, strict=False) if value is not None} | kwargs
    if device.type not in ("cpu", "cuda") or _DEVICE_OF(self).type != "cpu":
        return as_usual(device=device, **options)
    if means_device(device) == _on_device(self):
        return as_usual(**{"dtype": self.dtype, **options})
    options.pop("copy", None)
    return _copied_across(self, DEVICE if means_device(device) else HOST, options)


def _copied_across(self: torch.Tensor, device: torch.device, options: dict[str, Any]) -> torch.Tensor:
    """A copy on the other side. The watch is told, for C++ asks for "cpu" too when it means "where it is"."""
    emulated = active()
    emulated.moving_to_host = device == HOST
    try:
        copied: torch.Tensor = torch.ops.aten._to_copy(self, device=device, **options)
    finally:
        emulated.moving_to_host = False
    return copied


def _type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """`Tensor.type`: a name such as "torch.LongTensor" is a place as well, the host."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return _TYPE(self, dtype, non_blocking, **kwargs)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    kind: Any = getattr(torch, name.rpartition(".")[2])
    return _to(self, DEVICE if ".cuda." in name else HOST, kind.dtype, non_blocking)


def _cpu(self: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
    return _to(self, HOST, memory_format=memory_format)


def _cuda(
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    return _to(self, DEVICE, non_blocking=non_blocking, memory_format=memory_format)


def _numpy(self: torch.Tensor, *, force: bool = False) -> Any:
    if not _on_device(self):
        return _NUMPY(self, force=force)
    if not force:
        raise TypeError(faults.NO_NUMPY)
    return _NUMPY(_cpu(self.detach()), force=True)


def _tolist(self: torch.Tensor) -> Any:
    if not _on_device(self):
        return _TOLIST(self)
    return self.item() if self.dim() == 0 else _TOLIST(_cpu(self.detach()))


def _repr(self: torch.Tensor, *, tensor_contents: str | None = None) -> str:
    if tensor_contents is None and _on_device(self):
        active().host_reads("printing a tensor")
    return str(_REPR(self, tensor_contents=tensor_contents))


def _deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> Any:
    copied = _DEEPCOPY(self, memo)
    active().heap.move(copied, place_of(self) or Place.HOST)
    return copied


def _default_device() -> torch.device:
    """The default device that is set; `torch.get_default_device` would make a tensor to find out."""
    for mode in reversed(_get_current_function_mode_stack()):
        if isinstance(mode, DeviceContext):
            device: torch.device = mode.device
            return device
    return HOST


def _made(
    make: Callable[..., torch.Tensor], data: Any, device: torch.device, pinned: bool, kwargs: dict[str, Any]
) -> torch.Tensor:
    """A tensor from Python data, put where it was asked for."""
    if not means_device(device):
        tensor = make(data, **kwargs) if device.type in ("cpu", "cuda") else make(data, device=device, **kwargs)
        active().heap.move(tensor, Place.PINNED if pinned else Place.HOST)
        return tensor
    if active().recording() is not None:
        raise RuntimeError(faults.PAGEABLE_COPY)
    tensor = make(data, device=HOST, **kwargs)
    active().heap.move(tensor, Place.DEVICE)
    return tensor


def _tensor(data: Any, *, device: Any = None, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
    inherited = data.device if isinstance(data, torch.Tensor) else _default_device()
    return _made(_TENSOR, data, inherited if device is None else _target(device), pin_memory, kwargs)


def _new_tensor(
    self: torch.Tensor, data: Any, *, device: Any = None, pin_memory: bool = False, **kwargs: Any
) -> torch.Tensor:
    def make(data: Any, **options: Any) -> torch.Tensor:
        made: torch.Tensor = _NEW_TENSOR(self, data, **options)
        return made

    return _made(make, data, self.device if device is None else _target(device), pin_memory, kwargs)


def _as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        return data.to(device=device or data.device, dtype=dtype or data.dtype)
    tensor = _AS_TENSOR(data, dtype=dtype, device=HOST)
    active().heap.mark(tensor, Place.HOST)
    return tensor.to(_default_device() if device is None else device)


def _asarray(
    obj: Any, *, dtype: torch.dtype | None = None, device: Any = None, copy: bool | None = None, **kwargs: Any
) -> torch.Tensor:
    if isinstance(obj, torch.Tensor):
        return obj.to(device=device or obj.device, dtype=dtype or obj.dtype, copy=bool(copy))
    tensor = _ASARRAY(obj, dtype=dtype, device=HOST, copy=copy, **kwargs)
    active().heap.mark(tensor, Place.HOST)
    return tensor.to(_default_device() if device is None else device)


def _load(*args: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """`torch.load` onto the device: loaded to the host, and declared the device's."""
    named = isinstance(map_location, (str, torch.device))
    if not named or not means_device(torch.device(map_location)):
        return _LOAD(*args, map_location=map_location, **kwargs)
    loaded = _LOAD(*args, map_location=HOST, **kwargs)
    tensors = loaded.state_dict().values() if isinstance(loaded, torch.nn.Module) else tensors_in(loaded)
    for tensor in tensors:
        active().heap.move(tensor, Place.DEVICE)
    return loaded


def _on_host(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = make(*args, **kwargs)
        active().heap.mark(tensor, Place.HOST)
        return tensor

    return made


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """`one_hot` as on CUDA, where the values are not looked at if the number of classes is given."""
    classes = int(tensor.max().item()) + 1 if num_classes == -1 else num_classes
    hot = torch.zeros(*tensor.shape, classes, dtype=tensor.dtype, device=tensor.device)
    return hot.scatter_(-1, tensor.unsqueeze(-1), 1)


METHODS: dict[str, Any] = {
    "device": property(_device),
    "to": _to,
    "type": _type,
    "cpu": _cpu,
    "cuda": _cuda,
    "numpy": _numpy,
    "tolist": _tolist,
    "new_tensor": _new_tensor,
    "__repr__": _repr,
    "__deepcopy__": _deepcopy,
    "record_stream": lambda self, stream: None,
    "get_device": lambda self: 0 if _on_device(self) else -1,
}
"""Attributes of `torch.Tensor` to replace."""

FUNCTIONS: dict[str, Any] = {
    "tensor": _tensor,
    "as_tensor": _as_tensor,
    "asarray": _asarray,
    "from_numpy": _on_host(_FROM_NUMPY),
    "load": _load,
    "frombuffer": _on_host(_FROMBUFFER),
}
"""Attributes of `torch` to replace."""

NN_FUNCTIONS: dict[str, Any] = {"one_hot": _one_hot}
"""Attributes of `torch.nn.functional` to replace: those whose CPU form reads values where the CUDA form does not."""
