"""The bundled decode models, their kernels and their planted faults. Torch is imported when one is loaded."""

from __future__ import annotations

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
    """The reference model as a target."""
    import torch

    from cudagraph_doctor.reference_models.decode import PRESETS
    from cudagraph_doctor.reference_models.loop import ReferenceLoop

    kind = torch.float32 if device.startswith("cpu") else torch.bfloat16
    return ReferenceLoop(PRESETS[preset], device, kind, seed)
