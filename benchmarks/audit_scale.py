"""How long the static audit takes: the best lists of 1,024 sizes, and logs of ten million rows; seconds and memory.

    python benchmarks/audit_scale.py [--millions 10] [--folder DIR]

Each measurement is a process of its own, on one core (OMP_NUM_THREADS=1). Goals: 64 keys of 1,024 sizes within 2 s; a
log within 30 s and 500 MB.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PIECE = 1_000_000


def write_log(file: Path, rows: int) -> None:
    """A log of batches 1 to 1,024, a row a step, with a column that nobody reads."""
    draw = np.random.default_rng(0)
    if file.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"t": np.arange(rows), "batch": draw.integers(1, 1025, rows)}), file)
        return
    line = "{},{}\n" if file.suffix == ".csv" else '{{"t": {}, "batch": {}}}\n'
    with file.open("w") as out:
        out.write("t,batch\n" if file.suffix == ".csv" else "")
        for first in range(0, rows, PIECE):
            sizes = draw.integers(1, 1025, min(PIECE, rows - first)).tolist()
            out.writelines(line.format(first + i, size) for i, size in enumerate(sizes))


def measure_log(file: Path) -> None:
    """Read one and print what it took."""
    from cudagraph_doctor.audit.logs import Columns, read

    started = time.perf_counter()
    found = read(file, Columns())
    print(f"{file.suffix[1:]:8} {found.rows:>10} rows {time.perf_counter() - started:8.2f} s {_memory():6.0f} MB")


def measure_best(sizes: int, keys: int) -> None:
    """Find the lists of up to `keys` keys and print what it took."""
    from cudagraph_doctor.audit import best
    from cudagraph_doctor.audit.costs import Modelled

    draw = np.random.default_rng(0)
    steps = dict(enumerate(draw.random(sizes).tolist(), start=1))
    started = time.perf_counter()
    lists = best.curve(steps, sizes, keys, Modelled())
    took = time.perf_counter() - started
    print(f"{'lists':8} {sizes:>5} sizes, up to {len(lists[-1].keys)} keys {took:8.2f} s {_memory():6.0f} MB")


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _apart(*arguments: str) -> None:
    subprocess.run([sys.executable, __file__, *arguments], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=10, help="rows of the logs (default 10)")
    parser.add_argument("--folder", type=Path, help="where the logs are made (default: a temporary folder)")
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--best", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.log:
        return measure_log(chosen.log)
    if chosen.best:
        return measure_best(1024, 64)
    _apart("--best")
    kinds = ["csv", "jsonl"] + (["parquet"] if importlib.util.find_spec("pyarrow") else [])
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for kind in kinds:
            file = Path(folder) / f"log.{kind}"
            write_log(file, chosen.millions * 1_000_000)
            _apart("--log", str(file))
            file.unlink()
    return None


if __name__ == "__main__":
    main()
