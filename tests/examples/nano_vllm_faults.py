"""Three faults planted into a copy of nano-vllm's `run_model`: one line of its staging code is changed.

The copy is made from the source that is there, and written to a temporary file, so that findings have lines to show.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import nano_vllm_target as sound
from nanovllm.engine.model_runner import ModelRunner

FAULTS = {
    "slot_mapping_not_copied": ('graph_vars["slot_mapping"][:bs] = context.slot_mapping', "pass"),
    "slot_mapping_tail_stale": ('graph_vars["slot_mapping"].fill_(-1)', "pass"),
    "positions_rebound": ('graph_vars["positions"][:bs] = positions', 'graph_vars["positions"] = positions'),
}
HEADER = "import torch\nfrom nanovllm.utils.context import get_context\n\n\n"


def plant(fault: str) -> None:
    """Give ModelRunner a `run_model` with the fault. Raises ValueError if nano-vllm no longer has that line."""
    line, instead = FAULTS[fault]
    source = textwrap.dedent(inspect.getsource(ModelRunner.run_model))
    if source.count(line) != 1:
        raise ValueError(f"run_model has no single line {line!r}: this is another version of nano-vllm")
    file = Path(tempfile.mkdtemp()) / "run_model_copy.py"
    file.write_text(HEADER + source.replace(line, instead))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ModelRunner.run_model = module.run_model


def target(device: str, fault: str, seed: int = 0) -> object:
    """nano-vllm with one of the faults."""
    plant(fault)
    return sound.NanoVllm(device, seed)
