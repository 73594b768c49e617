"""The bundled decode models, their kernels and their planted faults. Torch is imported when one is loaded.

On the path: `requests.py` and `inputs.py` (what a step is), `kernels/`, `nvrtc.py` and `operators.py` (what it runs),
`decode.py` (the model), `loop.py` and `engine.py` (the two forms of a target), `faults.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from cudagraph_doctor.errors import UsageError

if __name__ != "cudagraph_doctor.reference_models":
    raise ImportError("import cudagraph_doctor.reference_models, not reference_models")


def load(
    form: str = "auto",
    *,
    device: str,
    fault: str = "",
    twin: bool = False,
    preset: str = "default",
    dtype: str = "auto",
    seed: int = 0,
) -> object:
    """The reference model as a target.

    Args:
        form: "loop", "engine", or "auto": the form in which the fault exists, a loop first.
        device: "cuda", or "cpu:0" (emulated).
        fault: name of a planted fault, "" for none.
        twin: with `fault`, its clean twin instead.
        preset: size of the model: "tiny", "default" or "large".
        dtype: "bfloat16", "float32" (CPU only) or "auto": bfloat16 on CUDA, float32 on a CPU.
        seed: of weights, caches and tokens.

    Raises:
        UsageError: one of these is unknown, or they do not go together.
    """
    from cudagraph_doctor.reference_models.runner_faults import ALL_FAULTS

    forms: tuple[str, ...] = ("loop", "engine")
    if form != "auto":
        _one_of(forms, form, "form")
    if twin and not fault:
        raise UsageError("A twin is the clean counterpart of a fault, and no fault is named.", fix="Add --fault NAME.")
    if fault:
        forms = ALL_FAULTS[_one_of(ALL_FAULTS, fault, "fault")].forms
    if form == "auto":
        form = forms[0]
    if form not in forms:
        raise UsageError(
            f'The fault "{fault}" does not exist in the {form} form.', fix=f"Use the SPEC reference:{forms[0]}."
        )

    import torch

    from cudagraph_doctor.reference_models import (
        faulty_buffers,
        faulty_capture,
        faulty_copies,
        faulty_engine,
        faulty_handover,
        faulty_keys,
        faulty_memory,
        faulty_neighbours,
        faulty_runner,
        faulty_staging,
        faulty_start,
        faulty_step,
        faulty_streams,
        faulty_values,
    )
    from cudagraph_doctor.reference_models.decode import PRESETS
    from cudagraph_doctor.reference_models.engine import ReferenceEngine
    from cudagraph_doctor.reference_models.loop import ReferenceLoop

    on_cuda = torch.device(device).type == "cuda"
    dtypes = {"bfloat16": torch.bfloat16, "float32": torch.float32}
    dtypes["auto"] = dtypes["bfloat16" if on_cuda else "float32"]
    if on_cuda and dtype == "float32":
        raise UsageError("The reference model's CUDA kernels are for bfloat16 only.", fix="Leave dtype out.")
    model = (PRESETS[_one_of(PRESETS, preset, "preset")], device, dtypes[_one_of(dtypes, dtype, "dtype")], seed)
    if form == "loop":
        loops: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
            **faulty_staging.PLANTED,
            **faulty_step.PLANTED,
            **faulty_capture.PLANTED,
            **faulty_copies.PLANTED,
            **faulty_streams.PLANTED,
            **faulty_neighbours.PLANTED,
            **faulty_buffers.PLANTED,
            **faulty_values.PLANTED,
            **faulty_keys.PLANTED,
        }
        return (loops[fault][twin] if fault else ReferenceLoop)(*model)
    engines: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
        **faulty_engine.PLANTED,
        **faulty_runner.PLANTED,
        **faulty_start.PLANTED,
        **faulty_memory.PLANTED,
        **faulty_handover.PLANTED,
    }
    return (engines[fault][twin] if fault else ReferenceEngine)(*model)


def _one_of(known: Iterable[str], name: str, what: str) -> str:
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f' Did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'The reference model has no {what} "{name}".{hint}', fix=f"Use one of: {', '.join(names)}.")
    return name
