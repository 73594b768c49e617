"""What a user installs: the wheel, built from the source distribution, has all of the sources and nothing generic."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
SHIPPED = {".py", ".typed", ".md", ".cu", ".cuh"}


def source_folders() -> dict[str, Path]:
    """Every folder that holds files of the package, by its import name; found on disk, not read from pyproject.toml."""
    folders: dict[str, Path] = {}
    for name, top in SETUPTOOLS["package-dir"].items():
        for folder, below, files in os.walk(ROOT / top):
            below[:] = [b for b in below if b != "__pycache__" and not Path(folder, b).is_symlink()]
            if any(Path(f).suffix in SHIPPED for f in files):
                folders[".".join((name, *Path(folder).relative_to(ROOT / top).parts))] = Path(folder)
    return folders


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    # From a copy: a build writes into its folder, and takes up what an earlier one has left there.
    copy, out = tmp_path_factory.mktemp("copy") / "tree", tmp_path_factory.mktemp("dist")
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "site", "__pycache__")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ".", cwd=copy)
    return out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed, without what it depends on."""
    (wheel,) = built.glob("*.whl")
    target = tmp_path_factory.mktemp("site-packages")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", target, wheel, cwd=built)
    return target


def test_every_package_is_listed() -> None:
    assert set(SETUPTOOLS["packages"]) == set(source_folders())


def test_the_wheel_holds_the_sources(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        f"{package.replace('.', '/')}/{file.name}"
        for package, folder in source_folders().items()
        for file in folder.iterdir()
        if file.suffix in SHIPPED
    }
    assert packed == sources


def test_the_source_distribution_has_real_files_once(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
    assert not [m.name for m in members if m.issym() or m.islnk()]
    names = {m.name.split("/", 1)[1] for m in members if "/" in m.name}
    assert {"checks/__init__.py", "docs/rules/CGD101.md", "tests/packaging/test_wheel.py", "LICENSE"} <= names
    assert not [n for n in names if n.startswith(("cudagraph_doctor/checks", "cudagraph_doctor/rule_docs"))]


def test_only_our_own_name_is_new_in_site_packages(installed: Path) -> None:
    # With --target pip puts console scripts into bin/.
    assert {p.name for p in installed.iterdir() if not p.name.startswith("cudagraph_doctor")} <= {"bin"}


def test_the_installed_package_runs_from_elsewhere(installed: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    where = (
        "import cudagraph_doctor as d, cudagraph_doctor.checks as c, cudagraph_doctor.reference_models as r\n"
        "import cudagraph_doctor.rule_docs as p\n"
        "print(*(m.__file__ for m in (d, c, r, p)), sep='\\n')"
    )
    files = run(sys.executable, "-P", "-c", where, cwd=tmp_path, env=env).split()
    assert len(files) == 4
    assert all(Path(f).is_relative_to(installed) for f in files), files
    program = run(sys.executable, "-P", "-m", "cudagraph_doctor", "explain", "CGD101", cwd=tmp_path, env=env)
    assert "frozen-in-graph" in program
    assert "What it finds" in program
