"""SPEC -> the object it names: `package.module:attr`, `path/file.py:attr`. Imports the user's module, calls nothing.

The bundled models (`reference`) are named here too, and loaded by `loader.py`, the next file on the path.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from cudagraph_doctor import blame, shadowing
from cudagraph_doctor.errors import TargetError, UsageError

DEFAULT_ATTR = "target"
REFERENCE_FORMS = ("auto", "loop", "engine")


@dataclass(frozen=True, slots=True)
class Spec:
    """A SPEC, read."""

    kind: Literal["reference", "file", "module"]
    where: str
    """File path, module name, or "reference"."""
    attr: str
    """Attribute, dots allowed; for the bundled models the form: "auto", "loop" or "engine"."""

    def __str__(self) -> str:
        return self.where if self.kind == "reference" and self.attr == "auto" else f"{self.where}:{self.attr}"


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """` Did you mean "step"?` or nothing: follows the sentence about a name that does not exist."""
    found = difflib.get_close_matches(name, list(known), n=2, cutoff=cutoff)
    return " Did you mean " + " or ".join(f'"{match}"' for match in found) + "?" if found else ""


def parse(text: str) -> Spec:
    """Read a SPEC. Raises UsageError if it is none; touches no file."""
    if not text.strip():
        raise UsageError("The target's SPEC is empty.", fix="Name one: reference, package.module:attr or file.py:attr.")
    head, _, tail = text.partition(":")
    if head == "reference":
        form = tail or "auto"
        if form not in REFERENCE_FORMS:
            raise UsageError(
                f'The bundled model has no form "{form}".{near(form, REFERENCE_FORMS)}',
                fix="Use reference, reference:loop or reference:engine (for a file of that name: ./reference.py:attr).",
            )
        return Spec("reference", "reference", form)
    if text.endswith(".py"):
        return Spec("file", text, DEFAULT_ATTR)
    # A file is split at the last colon: a drive letter has one too.
    path, colon, attr = text.rpartition(":")
    if colon and path.endswith(".py"):
        return Spec("file", path, _checked_attr(text, attr))
    if "/" in text or os.sep in text:
        raise UsageError(
            f'"{text}" looks like a path, but not like one of a Python file.',
            fix="Name the file with its suffix, and the attribute after a colon: path/file.py:attr.",
        )
    attr = _checked_attr(text, tail) if ":" in text else DEFAULT_ATTR
    if not all(part.isidentifier() for part in head.split(".")):
        raise UsageError(
            f'"{head}" in "{text}" is no module name.', fix="Write package.module:attr or path/file.py:attr."
        )
    return Spec("module", head, attr)


def _checked_attr(text: str, attr: str) -> str:
    if not all(part.isidentifier() for part in attr.split(".")):
        raise UsageError(
            f'"{attr}" in "{text}" is no attribute name.',
            fix="After the colon comes a name, dots allowed (file.py:Engine.target); arguments go to --target-arg.",
        )
    return attr


def resolve(spec: Spec, app_dir: str) -> object:
    """Import the module and get the attribute. Raises TargetError, with the user's traceback where his code raised."""
    _prepend_path(os.path.realpath(app_dir))
    module = _import_file(spec) if spec.kind == "file" else _import_module(spec.where, str(spec), app_dir)
    found: object = module
    walked = spec.where
    for part in spec.attr.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            public = [name for name in dir(found) if not name.startswith("_")]
            raise TargetError(
                f'{walked} has no attribute "{part}".{near(part, public)}',
                fix=f"Name the target after the colon ({spec.where}:NAME), or define {part} there.",
            ) from None
        walked = f"{walked}:{part}" if walked == spec.where else f"{walked}.{part}"
    return found


@contextmanager
def as_script(path: str) -> Iterator[None]:
    """Inside the block `sys.argv` is that of `python path`: a module that parses arguments sees none of ours."""
    kept = sys.argv
    sys.argv = [path]
    try:
        yield
    finally:
        sys.argv = kept


def _prepend_path(folder: str) -> None:
    """First, wherever it was: in a child the working directory is last, so that none of its files hides a module."""
    sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]


def _import_file(spec: Spec) -> ModuleType:
    path = Path(os.path.realpath(spec.where))
    if not path.is_file():
        siblings = [str(p) for p in Path(spec.where).parent.glob("*.py")] if path.parent.is_dir() else []
        what = "is a folder" if path.is_dir() else "does not exist"
        raise TargetError(
            f'The target\'s file "{spec.where}" {what}.{near(spec.where, siblings)}',
            seen=f"working directory {os.getcwd()}",
            fix="Give the path of a Python file, relative to the working directory or absolute.",
        )
    # A file inside a package fails on relative imports when loaded alone: import it by its dotted name.
    names = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        names.insert(0, folder.name)
        folder = folder.parent
    if names[-1] == "__init__":
        names.pop()
    _prepend_path(str(folder))
    if len(names) > 1 or path.stem == "__init__":
        return _import_module(".".join(names), str(spec), str(folder))
    return _execute_file(path, str(spec))


def _execute_file(path: Path, spec: str) -> ModuleType:
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if os.path.realpath(getattr(loaded, "__file__", None) or "") == str(path):
            return loaded
        name = f"{name}@{path}"  # the name is taken (say by the standard library): leave the other one alone
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise TargetError(f'"{path}" cannot be imported as Python.', fix="Give a .py file.")
    module = importlib.util.module_from_spec(found)
    # Before execution: dataclasses look their own module up by name.
    sys.modules[name] = module
    try:
        with _importing(spec, str(path)):
            found.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_module(name: str, spec: str, app_dir: str) -> ModuleType:
    importlib.invalidate_caches()
    with _importing(spec, name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if missing != name and not name.startswith(f"{missing}."):
                raise
            raise _no_module(missing, spec, app_dir) from None


def _no_module(missing: str, spec: str, app_dir: str) -> TargetError:
    parent, _, last = missing.rpartition(".")
    if parent and hasattr(sys.modules.get(parent), last):
        hint = f' Did you mean "{parent}:{last}"?'
    else:
        here = [path.stem for path in Path(app_dir).glob("*.py")]
        here += [path.parent.name for path in Path(app_dir).glob("*/__init__.py")]
        hint = near(missing, here)
    return TargetError(
        f'There is no module "{missing}" (for the target "{spec}").{hint}',
        seen=f"looked in {os.path.realpath(app_dir)} and the installed packages",
        fix="Check the name, give --app-dir DIR, or name the file instead: path/file.py:attr.",
    )


@contextmanager
def _importing(spec: str, script: str) -> Iterator[None]:
    """Whatever the import of the user's module raises becomes an error in words; an interrupt stays one."""
    try:
        with as_script(script):
            yield
    except (KeyboardInterrupt, TargetError):
        raise
    except SystemExit as error:
        raise TargetError(
            f'The module of "{spec}" ends the process while it is imported.',
            seen=blame.describe(error),
            fix='Move parse_args(), sys.exit() and the like under `if __name__ == "__main__":`.',
            traceback=blame.user_traceback(error),
        ) from error
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError):
            fix = f'Install what is missing ("{error.name}") into this environment, or give --app-dir its folder.'
        elif isinstance(error, SyntaxError):
            fix = "Mend that line; the module does not parse."
        else:
            fix = "Mend the module so that importing it works; --debug shows the whole traceback."
        raise TargetError(
            f'Importing the module of "{spec}" failed.',
            seen=blame.describe(error),
            fix=fix + (shadowing.hint(shadowing.loaded()) if isinstance(error, (ImportError, AttributeError)) else ""),
            traceback=blame.user_traceback(error),
        ) from error
