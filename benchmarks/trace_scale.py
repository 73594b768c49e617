"""How long `buckets` takes on large traces, beside one grouped scan of the kernel table, plain pandas, and nsys stats.

    python benchmarks/trace_scale.py [--millions 1 2 5 10] [--json-mb 1000] [--folder DIR] [--keep]

Makes a node-mode nsys export (schema 3.25 layout) with that many kernel rows, 1,000 a step on two streams, and a
torch.profiler trace of that size; measures each reader in a process of its own: seconds, and its largest memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KERNELS = 1000
"""Kernels of a step's graph."""
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)
PROCESS = 1 << 48 | 4711 << 24
THREAD = PROCESS | 4711
STEP_NS = 12_000_000
_KERNEL_COLUMNS = [
    "start",
    "deviceId!",
    "contextId!",
    "greenContextId",
    "streamId!",
    "correlationId",
    "globalPid",
    "demangledName!",
    "shortName!",
    "mangledName",
    "launchType",
    "cacheConfig",
    "registersPerThread!",
    "gridX!",
    "gridY!",
    "gridZ!",
    "blockX!",
    "blockY!",
    "blockZ!",
    "staticSharedMemory!",
    "dynamicSharedMemory!",
    "localMemoryPerThread!",
    "localMemoryTotal!",
    "gridId!",
    "sharedMemoryExecuted",
    "graphNodeId",
    "sharedMemoryLimitConfig",
    "qmdBulkReleaseDone",
    "qmdPreexitDone",
    "qmdLastCtaDone",
    "graphId",
    "clusterX",
    "clusterY",
    "clusterZ",
    "clusterSchedulingPolicy",
    "maxPotentialClusterSize",
    "maxActiveClusters",
    "sharedMemoryRequestedPercentage",
]


def make_export(path: Path, rows: int) -> None:
    """A node-mode export: per step one graph launch, three loose kernels and two copies; an NVTX range around."""
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    layout = ["start INTEGER NOT NULL", "end INTEGER NOT NULL"]
    layout += [f"{c.rstrip('!')} INTEGER{' NOT NULL' if c.endswith('!') else ''}" for c in _KERNEL_COLUMNS[1:]]
    database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({', '.join(layout)})")
    names = [c.rstrip("!") for c in _KERNEL_COLUMNS[1:]]
    at = {name: names.index(name) + 2 for name in names}
    database.executemany(
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * (len(names) + 2))})", _kernels(rows, at)
    )
    database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT"
        " NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,"
        " callchainId INTEGER)"
    )
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)", _calls(rows))
    database.execute(
        "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,"
        " globalTid INTEGER, textId INTEGER, domainId INTEGER)"
    )
    steps = range(rows // KERNELS)
    database.executemany(
        "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL, 0)",
        [
            (i * STEP_NS, i * STEP_NS + 200_000, f"decode step={i} bs={_batch(i)} bucket={_bucket(i)}", THREAD)
            for i in steps
        ],
    )
    strings = {1: "cudaGraphLaunch_v10000", 2: "cudaLaunchKernel_v7000", 3: "cudaMemcpyAsync_v3020"}
    strings |= {100 + k: f"kernel_{k}" for k in range(50)}
    database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
    database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT)")
    database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')")
    database.commit()
    database.close()


def _bucket(i: int) -> int:
    return BUCKETS[i * 7 % len(BUCKETS)]


def _batch(i: int) -> int:
    return max(1, _bucket(i) - i % 3)


def _kernels(rows: int, at: dict[str, int]) -> Iterator[list[int | None]]:
    row: list[int | None] = [0] * (len(at) + 2)
    row[at["globalPid"]] = PROCESS
    for i in range(rows // KERNELS):
        start, graph = i * STEP_NS + 300_000, 1 + i * 7 % len(BUCKETS)
        row[at["correlationId"]] = 10 * i + 5
        row[at["graphId"]] = graph
        for k in range(KERNELS):
            row[0], row[1] = start + k * 9_000, start + k * 9_000 + 8_000
            row[at["streamId"]] = 7 if k % 10 else 13
            row[at["shortName"]] = row[at["demangledName"]] = 100 + k % 50
            row[at["graphNodeId"]] = graph << 32 | k
            row[at["gridId"]] = i * KERNELS + k
            yield row
        row[at["graphNodeId"]] = row[at["graphId"]] = None
        for k in range(3):
            row[0], row[1] = start - 50_000 + k * 9_000, start - 42_000 + k * 9_000
            row[at["correlationId"]] = 10 * i + k
            yield row


def _calls(rows: int) -> Iterator[tuple[int, int, int, int, int]]:
    for i in range(rows // KERNELS):
        for k, name in enumerate((2, 2, 2, 3, 3, 1)):
            start = i * STEP_NS + 10_000 + k * 10_000
            yield start, start + 5_000, THREAD, 10 * i + k, name


def make_profile(path: Path, megabytes: int) -> None:
    """A torch.profiler trace: per step an annotation, calls, 100 graph kernels, and the CPU operators between."""
    with path.open("w") as out:
        out.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [\n')
        written, i = 0, 0
        while written < megabytes * 1_000_000:
            text = ",\n".join(json.dumps(event) for event in _events(i))
            written += out.write((",\n" if i else "") + text)
            i += 1
        out.write('], "traceName": "made up"}')


def _events(i: int) -> Iterator[dict[str, object]]:
    def event(cat: str, name: str, tid: int, at: float, dur: float, **args: object) -> dict[str, object]:
        pid = 0 if cat == "kernel" else 4711
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": now + at, "dur": dur, "args": args}

    now = 6.5e12 + i * 1000.0
    yield event("user_annotation", f"decode step={i} bs={_batch(i)} bucket={_bucket(i)}", 4711, 0, 100)
    for k in range(60):
        yield event("cpu_op", "aten::copy_", 4711, k, 1, **{"Input Dims": [[16, 32], []], "External id": k})
    yield event("cuda_runtime", "cudaGraphLaunch", 4711, 80, 10, cbid=311, correlation=i)
    for k in range(100):
        details = {"registers per thread": 32, "grid": [16, 1, 1], "block": [128, 1, 1], "warps per SM": 0.5}
        name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)"
        yield event("kernel", name, 7, 120 + k * 8, 7, device=0, stream=7, correlation=i, **details)


# what is measured, each in a process of its own


def measured(kind: str, path: str) -> None:
    """Do one reading and print its seconds and memory as JSON."""
    started = time.perf_counter()
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    if kind == "scan":
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        query = f"SELECT correlationId, count(*), min(start), max(end) FROM {table} GROUP BY correlationId"
        database.execute(query).fetchall()
    elif kind == "pandas":
        import pandas

        frame = pandas.read_sql(f"SELECT * FROM {table}", sqlite3.connect(f"file:{path}?mode=ro", uri=True))
        frame.groupby("correlationId").agg({"start": ["count", "min"], "end": "max"})
    elif kind == "nsys":
        subprocess.run(["nsys", "stats", "--report", "nvtx_gpu_proj_sum", path], stdout=subprocess.DEVNULL, check=True)
    else:
        from cudagraph_doctor.cli import main

        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        main(["buckets", path])
        sys.stdout = sys.__stdout__
    who = resource.RUSAGE_CHILDREN if kind == "nsys" else resource.RUSAGE_SELF
    peak = resource.getrusage(who).ru_maxrss / 1024
    print(json.dumps({"seconds": round(time.perf_counter() - started, 2), "mib": round(peak)}))


def measure(kind: str, path: Path) -> dict[str, float]:
    """Seconds and memory of one reading."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", kind, str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Make, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="*", default=[1, 2, 5, 10])
    parser.add_argument("--json-mb", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measured(*arguments.measure)
        return 0
    print("| trace | reader | seconds | MiB | times the scan |\n| --- | --- | --- | --- | --- |")
    for millions in arguments.millions:
        path = arguments.folder / f"made-up-{millions:g}.sqlite"
        make_export(path, int(millions * 1e6))
        size = f"nsys, {millions:g} million kernel rows, {path.stat().st_size / 1e9:.2f} GB"
        readers = {"grouped scan": "scan", "`buckets`": "buckets"}
        readers |= {"plain pandas": "pandas"} if millions <= 1 else {}
        readers |= {"`nsys stats`": "nsys"} if shutil.which("nsys") else {}
        scan = 0.0
        for name, kind in readers.items():
            found = measure(kind, path)
            scan = scan or found["seconds"]
            print(
                f"| {size} | {name} | {found['seconds']:.1f} | {found['mib']:.0f} | {found['seconds'] / scan:.2f} |",
                flush=True,
            )
        if not arguments.keep:
            path.unlink()
    if arguments.json_mb:
        path = arguments.folder / "made-up.json"
        make_profile(path, arguments.json_mb)
        found = measure("buckets", path)
        size = f"torch.profiler, {path.stat().st_size / 1e9:.2f} GB"
        print(f"| {size} | `buckets` | {found['seconds']:.1f} | {found['mib']:.0f} | |")
        if not arguments.keep:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
