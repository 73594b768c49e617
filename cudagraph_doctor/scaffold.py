"""`cudagraph-doctor init`: writes one of `skeletons/` where the user wants it."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from cudagraph_doctor.errors import UsageError

FORMS = ("loop", "engine")
"""The skeletons; the first is the default."""


def write(form: str, file: Path, *, overwrite: bool = False) -> Path:
    """Write the skeleton of a form to `file`. Raises UsageError if it exists, or cannot be written."""
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise UsageError(f'"{file}" is no name for a Python module.', fix="Name a file such as my_target.py.")
    text = (importlib.resources.files("cudagraph_doctor.skeletons") / f"{form}.py").read_text(encoding="utf-8")
    try:
        with file.open("w" if overwrite else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(f'"{file}" exists already.', fix="Name another file, or overwrite it with --force.") from None
    except OSError as error:
        raise UsageError(
            f'"{file}" cannot be written: {error.strerror}.', fix="Name a file in a folder of yours."
        ) from None
    return file
