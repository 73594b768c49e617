"""The CUDA kernels, as source: `NAME.cu` holds the kernel `NAME`. `nvrtc.py` compiles them."""

from importlib import resources
from pathlib import Path

FOLDER = Path(str(resources.files(__package__)))
"""Where the sources lie; `bf16.cuh` is included from here."""
