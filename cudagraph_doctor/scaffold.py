"""`cudagraph-doctor init`: writes one of `skeletons/` where the user wants it."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.spec import near

FORMS = ("loop", "engine")
"""The skeletons; the first is the default."""


def write(form: str, file: Path, *, overwrite: bool = False) -> Path:
    """Write the skeleton of a form to `file`.

    Raises UsageError if there is no such form, or if the file is no module, exists, or cannot be written.
    """
    if form not in FORMS:
        raise UsageError(
            f'There is no target form "{form}".{near(form, FORMS)}',
            fix=f"Write: cudagraph-doctor init {' or '.join(FORMS)}, then the file ({file}).",
        )
    if str(file) in FORMS:
        raise UsageError(
            f'"{file}" is a target form; no file is named.', fix=f"Write: cudagraph-doctor init {file} my_target.py."
        )
    if file.suffix != ".py":
        raise UsageError(
            f'"{file}" is no Python file: its name does not end in .py.', fix=f"Name it {file.with_suffix('.py')}."
        )
    if not file.stem.isidentifier():
        raise UsageError(
            f'"{file.stem}" is no name for a Python module: it cannot be imported.',
            fix="Use letters, digits and _, such as my_target.py.",
        )
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
