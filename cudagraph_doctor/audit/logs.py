"""A workload from a file: CSV, JSONL or Parquet, a row a step or a row a size with its weight. Read in pieces.

A file with a value that is no batch is refused with the line it stands in: a log read half is a wrong answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cudagraph_doctor.audit.fields import MOST
from cudagraph_doctor.audit.keys import Unit
from cudagraph_doctor.audit.workload import Workload
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.spec import near

PIECE = 1 << 18
"""Rows read at once."""
REQUESTS = ("batch", "batch_size", "bs", "requests", "num_requests", "num_reqs", "num_running_reqs", "running")
TOKENS = ("tokens", "num_tokens", "num_scheduled_tokens")
_MOST_WEIGHT = 1e15
"""Beyond it sums would lose single steps."""
WEIGHTS = ("weight", "count", "steps", "frequency")

Values = Sequence[Any] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns to read; "" finds one by the usual names."""

    size: str = ""
    weight: str = ""
    unit: Unit | None = None
    """What the sizes count; None: told by the column's name, else requests."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    size: str
    weight: str
    """"" for none."""
    unit: Unit


@dataclass(slots=True)
class _Histogram:
    """Counts added up piece by piece."""

    file: Path
    counts: dict[int, float] = field(default_factory=dict)
    rows: int = 0
    idle: int = 0

    def add(self, sizes: Values, weights: Values | None, first: int) -> None:
        """Add a piece. Raises UsageError at the first value that is no batch; `first` is the number of its row."""
        values = self._numbers(sizes, "batch", first, whole=True)
        weight = np.ones(len(values)) if weights is None else self._numbers(weights, "weight", first, whole=False)
        self.rows += len(values)
        self.idle += int((values == 0).sum())
        live = values > 0
        unique, at = np.unique(values[live].astype(np.int64), return_inverse=True)
        for size, total in zip(unique.tolist(), np.bincount(at, weight[live]).tolist(), strict=True):
            self.counts[size] = self.counts.get(size, 0.0) + total

    def _numbers(self, given: Values, what: str, first: int, *, whole: bool) -> Any:
        series = pd.Series(given)
        try:
            if series.dtype == bool or (series.dtype == object and any(isinstance(value, bool) for value in given)):
                raise TypeError
            numbers = pd.to_numeric(series, errors="coerce").to_numpy(dtype=float)
        except (TypeError, OverflowError):  # truth values, lists, numbers beyond all floats
            numbers = np.array([_plain(value) for value in given])
        bad = ~np.isfinite(numbers) | (numbers < 0)
        bad |= numbers > _MOST_WEIGHT
        bad |= ((numbers != np.floor(numbers)) | (numbers > MOST)) if whole else False
        if bad.any():
            at = int(np.argmax(bad))
            value = series.iloc[at]
            seen = (
                "nothing"
                if value is None or value != value
                else repr(value.item() if hasattr(value, "item") else value)
            )
            kind = f"a whole number from 0 to {MOST}" if whole else "a number that is not negative"
            raise UsageError(
                f'"{self.file}", row {first + at}: the {what} is no {what}.', seen=seen, fix=f"Each has to be {kind}."
            )
        return numbers


def read(file: Path, columns: Columns) -> Workload:
    """The histogram of a file.

    Args:
        file: `.csv` (also `.txt`, `.tsv`), `.jsonl` (or `.ndjson`), `.parquet`; CSV where the suffix says nothing.
        columns: which to read.

    Raises:
        UsageError: it cannot be read, has no such column, holds no row, or a value in it is no batch.
    """
    readers = {".jsonl": _jsonl, ".ndjson": _jsonl, ".json": _jsonl, ".parquet": _parquet, ".pq": _parquet}
    try:
        pieces = readers.get(file.suffix.lower(), _csv)(file, columns)
        chosen, sizes, weights, first = next(pieces)
        found = _Histogram(file)
        found.add(sizes, weights, first)
        for _, sizes, weights, first in pieces:
            found.add(sizes, weights, first)
    except StopIteration:
        raise _empty(file) from None
    except OSError as error:
        raise UsageError(
            f'The workload "{file}" cannot be read: {error.strerror or error}.', fix="Name another file."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f'"{file}" is no text file.', fix="Give CSV, JSONL or Parquet, with that suffix.") from None
    if not found.counts or not sum(found.counts.values()):
        raise _empty(file)
    said = [f"{found.idle} rows of the workload with batch 0: idle steps"] if found.idle else []
    return Workload(
        {size: found.counts[size] for size in sorted(found.counts) if found.counts[size]},
        chosen.unit,
        f'column "{chosen.size}" of {file.name}' + (f', weighted by "{chosen.weight}"' if chosen.weight else ""),
        found.rows,
        found.idle,
        tuple(said),
    )


Pieces = Iterator[tuple[_Chosen, Values, Values | None, int]]


def _csv(file: Path, columns: Columns) -> Pieces:
    with file.open(encoding="utf-8-sig") as lines:
        head = lines.readline()
    if not head.strip():
        raise _empty(file)
    separator = next((mark for mark in ("\t", ";", ",") if mark in head), ",")
    names = [name.strip().strip('"') for name in head.strip().split(separator)]
    bare = len(names) == 1 and _is_number(names[0])  # one number a line, and no header
    chosen = _Chosen("0", "", columns.unit or Unit.REQUESTS) if bare else _choose(file, names, columns)
    wanted = [names.index(name) for name in (chosen.size, chosen.weight) if name] if not bare else [0]
    try:
        pieces = pd.read_csv(
            file,
            sep=separator,
            usecols=wanted,
            header=None if bare else 0,
            names=None if bare else names,
            chunksize=PIECE,
            skipinitialspace=True,
            encoding="utf-8-sig",
        )
        first = 1 if bare else 2
        for piece in pieces:
            weights = piece[chosen.weight].to_numpy() if chosen.weight else None
            yield chosen, piece[0 if bare else chosen.size].to_numpy(), weights, first
            first += len(piece)
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # pandas' own are among them
        raise UsageError(
            f'"{file}" is no CSV.', seen=str(error).strip(), fix="Give a header and a row a line."
        ) from None


def _jsonl(file: Path, columns: Columns) -> Pieces:
    chosen: _Chosen | None = None
    first = 1
    with file.open(encoding="utf-8-sig") as lines:
        while piece := list(islice(lines, PIECE)):
            records = _records(file, piece, first)
            if records and chosen is None:
                names = list(records[0]) if isinstance(records[0], dict) else []
                chosen = _choose(file, names, columns) if names else _Chosen("", "", columns.unit or Unit.REQUESTS)
            if records and chosen is not None:
                yield (
                    chosen,
                    _column(file, records, chosen.size, first),
                    (_column(file, records, chosen.weight, first) if chosen.weight else None),
                    first,
                )
            first += len(piece)


def _records(file: Path, lines: list[str], first: int) -> list[Any]:
    """The values of the lines, blank ones left out; one call for all of them, since that is several times as fast."""
    told = [line for line in lines if not line.isspace()]
    try:
        found: list[Any] = json.loads(f"[{','.join(told)}]")
        if len(found) == len(told):
            return found
    except ValueError:
        pass
    for number, line in enumerate(lines, start=first):
        try:
            json.loads(line.strip() or "0")
        except ValueError as error:
            raise UsageError(
                f'"{file}", line {number}: this is no JSON.',
                seen=str(error),
                fix='Write one object a line: {"batch": 7}.',
            ) from None
    return [json.loads(line) for line in told]


def _column(file: Path, records: list[Any], name: str, first: int) -> list[Any]:
    if not name:
        return records
    try:
        return [record[name] for record in records]
    except (KeyError, TypeError):
        at = next(i for i, record in enumerate(records) if not isinstance(record, dict) or name not in record)
        raise UsageError(
            f'"{file}", record {first + at}: it has no "{name}".',
            seen=json.dumps(records[at])[:80],
            fix="Every line has to have it.",
        ) from None


def _parquet(file: Path, columns: Columns) -> Pieces:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise UsageError(
            f'"{file}" is Parquet, and no reader of it is installed (pyarrow).',
            fix="Install it: pip install 'cudagraph-doctor[parquet]', or give CSV or JSONL.",
        ) from None
    try:
        table = parquet.ParquetFile(file)
        chosen = _choose(file, table.schema_arrow.names, columns)
        first = 1
        wanted = [name for name in (chosen.size, chosen.weight) if name]
        for piece in table.iter_batches(batch_size=PIECE, columns=wanted):
            weights = piece.column(chosen.weight).to_numpy(zero_copy_only=False) if chosen.weight else None
            yield chosen, piece.column(chosen.size).to_numpy(zero_copy_only=False), weights, first
            first += piece.num_rows
    except ArrowInvalid as error:
        raise UsageError(f'"{file}" is no Parquet.', seen=str(error)[:120], fix="Give CSV, JSONL or Parquet.") from None


def _choose(file: Path, names: Sequence[str], columns: Columns) -> _Chosen:
    for asked, option in ((columns.size, "--column"), (columns.weight, "--weight")):
        if asked and asked not in names:
            raise UsageError(
                f'"{file}" has no column "{asked}".{near(asked, names)}',
                fix=f"Columns are {', '.join(names)}: name one with {option}.",
            )
    size = columns.size or next((name for name in (*REQUESTS, *TOKENS) if name in names), "")
    if not size:
        raise UsageError(
            f'"{file}" has no column that is known to hold batches.',
            seen=f"the columns {', '.join(names)}",
            fix="Name it: --column NAME (with --unit tokens if it counts tokens).",
        )
    weight = columns.weight or next((name for name in WEIGHTS if name in names and name != size), "")
    return _Chosen(size, weight, columns.unit or (Unit.TOKENS if size in TOKENS else Unit.REQUESTS))


def _plain(value: object) -> float:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and value <= MOST else float("nan")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _empty(file: Path) -> UsageError:
    return UsageError(f'The workload "{file}" holds no batch.', fix="Give a log with at least one step.")
