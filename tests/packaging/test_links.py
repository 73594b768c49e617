"""The relative links in the package say the same as the mapping in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
MAPPED = {name: folder for name, folder in SETUPTOOLS["package-dir"].items() if name != "cudagraph_doctor"}

needs_checkout = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="source distributions have no links; only a git checkout has"
)


@needs_checkout
@pytest.mark.parametrize(("package", "folder"), MAPPED.items())
def test_link_points_where_the_mapping_points(package: str, folder: str) -> None:
    link = ROOT / package.replace(".", "/")
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / folder


@needs_checkout
def test_every_link_is_mapped() -> None:
    links = {path for path in (ROOT / "cudagraph_doctor").rglob("*") if path.is_symlink()}
    assert links == {ROOT / package.replace(".", "/") for package in MAPPED}


@pytest.mark.parametrize("folder", ["checks", "reference_models"])
def test_the_second_way_to_import_is_refused(folder: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"import cudagraph_doctor.{folder}, not {folder}" in done.stderr
