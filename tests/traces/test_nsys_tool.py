"""Finding nsys where no PATH leads, telling what it lacks, and exporting with it. nsys is a script here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.traces import nsys_tool
from cudagraph_doctor.traces.nsys_tool import Nsys


def a_script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


VERSION = 'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version 2025.3.1"; exit 0; fi'


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with sh and nothing else of use."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "touch", "cat", "cp"):
        os.symlink(f"/bin/{tool}", folder / tool)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_none(bare_path: Path) -> None:
    assert nsys_tool.find(()) is None


def test_on_path(bare_path: Path) -> None:
    path = a_script(bare_path / "nsys", VERSION)
    assert nsys_tool.find(()) == Nsys(str(path), "NVIDIA Nsight Systems version 2025.3.1")


def test_the_newest_of_a_place(bare_path: Path, tmp_path: Path) -> None:
    for version in ("2024.1", "2025.2"):
        a_script(tmp_path / "opt" / version / "nsys", VERSION)
    found = nsys_tool.find((f"{tmp_path}/opt/*/nsys",))
    assert found is not None and "2025.2" in found.path


def test_one_that_does_not_run_is_none(bare_path: Path) -> None:
    a_script(bare_path / "nsys", "exit 1")
    assert nsys_tool.find(()) is None


def test_an_importer_that_lacks_a_library(bare_path: Path, tmp_path: Path) -> None:
    a_script(tmp_path / "host" / "target-linux-x64" / "nsys", VERSION)
    a_script(tmp_path / "host" / "linux-desktop-glibc_2_11_3-x64" / "QdstrmImporter", "")
    a_script(bare_path / "ldd", "echo '  libc.so.6 => /lib/libc.so.6'; echo '  libdw.so.1 => not found'")
    found = nsys_tool.find((f"{tmp_path}/host/target-linux-*/nsys",))
    assert found is not None
    assert found.obstacle == "its importer lacks libdw.so.1 (on Debian and Ubuntu: apt-get install libdw1)"
    with pytest.raises(Inconclusive, match="cannot export"):
        nsys_tool.export(tmp_path / "a.nsys-rep", tmp_path / "a.sqlite", found)


def test_export(bare_path: Path, tmp_path: Path) -> None:
    a_script(bare_path / "nsys", VERSION + '\necho "$@" > "$(echo "$7")"')
    nsys = nsys_tool.find(())
    output = tmp_path / "out.sqlite"
    nsys_tool.export(tmp_path / "in.nsys-rep", output, nsys)
    assert output.read_text().startswith("export --type sqlite --force-overwrite true --output")


def test_export_that_fails(bare_path: Path, tmp_path: Path) -> None:
    a_script(bare_path / "nsys", VERSION + "\necho 'corrupt file' >&2; exit 3")
    with pytest.raises(Inconclusive, match="nsys ended with 3") as caught:
        nsys_tool.export(tmp_path / "in.nsys-rep", tmp_path / "out.sqlite", nsys_tool.find(()))
    assert caught.value.seen == "corrupt file"


def test_without_nsys_the_command_is_told(tmp_path: Path) -> None:
    with pytest.raises(Inconclusive) as caught:
        nsys_tool.export(tmp_path / "in.nsys-rep", tmp_path / "out.sqlite", None)
    assert "nsys export --type sqlite --force-overwrite true --output out.sqlite in.nsys-rep" in caught.value.fix
