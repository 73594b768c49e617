"""A file with the name of a module of the standard library: kept out of the way where that can be, else named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor import shadowing

if TYPE_CHECKING:
    from tests.conftest import FakeWorld


def test_none_in_a_sound_process() -> None:
    assert shadowing.loaded() == {}


@pytest.mark.parametrize(("name", "told"), [("secrets", True), ("mine", False)])
def test_one_that_was_imported(name: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(name)
    module.__file__ = str(tmp_path / f"{name}.py")
    monkeypatch.setitem(sys.modules, name, module)
    assert shadowing.loaded() == ({name: module.__file__} if told else {})


def test_what_is_installed_may_take_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("distutils")
    module.__file__ = str(tmp_path / "site-packages" / "setuptools" / "_distutils" / "__init__.py")
    monkeypatch.setitem(sys.modules, "distutils", module)
    assert shadowing.loaded() == {}


def test_those_that_would_be_found_first(tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    for folder in (early, late):
        folder.mkdir()
        (folder / "types.py").touch()
    (early / "mine.py").touch()
    library = str(Path(shadowing.__file__).parent)
    stdlib = str(Path(sys.modules["os"].__file__ or "").parent)
    assert shadowing.in_the_way([library, str(early), stdlib, str(late)]) == {"types": str(early / "types.py")}
    assert shadowing.in_the_way([stdlib, str(early)]) == {}


def test_hint() -> None:
    assert shadowing.hint({}) == ""
    assert shadowing.hint({"types": "/a/types.py"}) == (
        ' "/a/types.py" shadows the module types of the standard library: rename it.'
    )


def test_files_in_the_working_directory_do_no_harm(fake_world: FakeWorld) -> None:
    for name in ("random", "queue", "types"):
        (fake_world.folder / f"{name}.py").write_text("raise SystemExit('shadowed')")
    done = fake_world.diff("return None")
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_beside_the_target_are_named(fake_world: FakeWorld) -> None:
    (fake_world.folder / "tabnanny.py").touch()
    done = fake_world.diff("from tabnanny import process_tokens")
    text = "".join(done.stdout.split())  # wherever lines are broken
    assert done.returncode == 3, done.stderr
    assert f'"{fake_world.folder}/tabnanny.py"shadowsthemoduletabnannyofthestandardlibrary:renameit.' in text


def test_a_module_that_cannot_be_imported_for_it(fake_world: FakeWorld) -> None:
    (fake_world.folder / "tabnanny.py").touch()
    (fake_world.folder / "mine.py").write_text("from tabnanny import process_tokens")
    done = fake_world.run("diff", "mine.py")
    assert done.returncode == 2
    assert f'"{fake_world.folder}/tabnanny.py" shadows' in done.stderr


def test_a_worker_that_cannot_start_for_it(fake_world: FakeWorld) -> None:
    fakes = Path(fake_world.environment["PYTHONPATH"].partition(":")[0])
    (fakes / "tabnanny.py").touch()
    (fakes / "sitecustomize.py").write_text(
        f"import sys\nif '-c' in sys.orig_argv: raise SystemExit('not in {fakes}/tabnanny.py')"
    )
    done = fake_world.diff("pass")
    assert done.returncode == 4
    assert f'"{fakes}/tabnanny.py"shadowsthemoduletabnanny' in "".join(done.stdout.split())


def test_what_did_not_start_took_time_all_the_same(fake_world: FakeWorld) -> None:
    done = fake_world.diff("import time; time.sleep(0.3); os._exit(7)", "--format", "json")
    assert json.loads(done.stdout)["outcomes"][0]["seconds"] > 0.3
