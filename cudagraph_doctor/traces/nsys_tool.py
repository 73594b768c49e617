"""Finds an nsys that works, and runs it: `export` turns a report into an SQLite export, which all else here reads.

Nsight Compute and the CUDA toolkit bring an nsys that is on no PATH. Its importer may lack a system library
(`libdw.so.1` on bare containers); then it records and cannot export, so that is looked at beforehand.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cudagraph_doctor.errors import Inconclusive

PLACES = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/local/cuda*/nsight-systems-*/bin/nsys",
    "/usr/local/cuda*/nsight-systems-*/target-linux-*/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/usr/local/cuda*/nsight-compute-*/host/target-linux-*/nsys",
)
"""Where an nsys lies that is not on PATH; the newest of a place is taken."""
_TIMEOUT_S = 600.0
_PACKAGES = {"libdw.so": "libdw1", "libelf.so": "libelf1"}


@dataclass(frozen=True, slots=True)
class Nsys:
    """An nsys that runs."""

    path: str
    version: str
    obstacle: str = ""
    """Why it cannot export, in a sentence; "" if it can."""


def find(places: tuple[str, ...] = PLACES) -> Nsys | None:
    """The first nsys that can export, on PATH, then in `places`; else one that can only record; else None."""
    candidates = [found] if (found := shutil.which("nsys")) else []
    for place in places:
        candidates += sorted(glob.glob(place), reverse=True)
    spare = None
    for path in candidates:
        version = _version(path)
        if version:
            nsys = Nsys(path, version, _importer_obstacle(path))
            if not nsys.obstacle:
                return nsys
            spare = spare or nsys
    return spare


def export(report: Path, output: Path, nsys: Nsys | None) -> None:
    """Export `report` (.nsys-rep) to the SQLite file `output`. Raises Inconclusive if that cannot be done here."""
    command = f"nsys export --type sqlite --force-overwrite true --output {output.name} {report.name}"
    if nsys is None:
        raise Inconclusive(
            f'"{report}" is a report of Nsight Systems, and there is no nsys here to export it.',
            fix=f"Where nsys is installed, run: {command}",
        )
    if nsys.obstacle:
        raise Inconclusive(f"{nsys.path} cannot export.", seen=nsys.obstacle, fix=f"Mend that, or elsewhere: {command}")
    try:
        done = subprocess.run(
            [nsys.path, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", output, report],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        raise Inconclusive(f'"{report}" could not be exported.', seen=str(error), fix=f"Run: {command}") from None
    if done.returncode or not output.exists():
        raise Inconclusive(
            f'"{report}" could not be exported: nsys ended with {done.returncode}.',
            seen=said[-1][:200] if said else "",
            fix="Record it again, or export it with the nsys that recorded it (or a newer one).",
        )


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[0] if lines else ""


def _importer_obstacle(path: str) -> str:
    """What the program that exports lacks, found without running it on anything."""
    importers = glob.glob(os.path.join(os.path.dirname(os.path.realpath(path)), "..", "host-linux-*", "QdstrmImporter"))
    importers += glob.glob(
        os.path.join(os.path.dirname(os.path.realpath(path)), "..", "linux-desktop-*", "QdstrmImporter")
    )
    ldd = shutil.which("ldd")
    if not importers or ldd is None:
        return ""
    try:
        done = subprocess.run([ldd, importers[0]], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return ""
    lacking = [line.split()[0] for line in done.stdout.splitlines() if "not found" in line]
    if not lacking:
        return ""
    package = next((name for library, name in _PACKAGES.items() if lacking[0].startswith(library)), "")
    remedy = f" (on Debian and Ubuntu: apt-get install {package})" if package else ""
    return f"its importer lacks {lacking[0]}{remedy}"
