"""The rows of Parquet files as a replay sends them: dealt to partitions row by row, so that all are at the same time.

Partition p of n has rows p, p + n, p + 2n, ... of all files in the order of their names. That depends on the files
alone, so a replay that was killed finds its place again, on whatever machine. Files are opened by pyarrow: a path, or a
URI that it knows (`s3://`, `gs://`, `hdfs://`). No Spark here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
import pyarrow.fs
import pyarrow.parquet

from rstream.errors import DataError
from rstream.operators.parquet_source import microseconds, plain_values
from rstream.spark.location import Location

ROWS_AT_ONCE = 16_384
TIMES = "event_time"
"""The column of event time, as `rstream data ingest` names it."""


@dataclass(frozen=True)
class Table:
    """Parquet files in their order, with the rows of each."""

    text: str
    scheme: str
    files: tuple[str, ...]
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    times: str
    """The column of event time; empty where there is none."""

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows)

    def fingerprint(self, partitions: int) -> str:
        """Names what is replayed: the same for the same rows, columns and partitions."""
        facts = (self.text, self.files, self.rows, self.columns, partitions)
        return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def open_table(
    source: str, columns: Sequence[str], wanted: Sequence[tuple[str, str]] | None, times: str | None = None
) -> Table:
    """Find the files and hold their columns against those that the topology wants.

    `times` names the column of event time. Without it that is `event_time`, where there is one.
    """
    scheme, paths = _find(source)
    system = _system(scheme)
    names = tuple(columns or [name for name, _ in wanted or ()])
    rows, schemas = [], {}
    for path in paths:
        try:
            file = pyarrow.parquet.ParquetFile(path, filesystem=system)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise DataError(f"{path} is not a Parquet file that can be read: {error}") from None
        names = names or tuple(file.schema_arrow.names)
        check_columns(path, file.schema_arrow, names, wanted, _missing_values(file.metadata))
        rows.append(file.metadata.num_rows)
        schemas[path] = file.schema_arrow
    if not sum(rows):
        raise DataError(f"{source}: its {len(paths)} Parquet files hold no rows, so there is nothing to replay")
    if times is None:
        times = TIMES if any(TIMES in schema.names for schema in schemas.values()) else ""
    if times:
        _check_times(times, schemas)
    return Table(source, scheme, tuple(paths), tuple(rows), names, times)


def _check_times(times: str, schemas: Mapping[str, Any]) -> None:
    """The order is checked by this column, so it must be in every file."""
    for path, schema in schemas.items():
        if times not in schema.names:
            raise DataError(
                f"{path} has no column {times!r} of event time; name another with --time-column, "
                f"its columns: {', '.join(schema.names)}"
            )
        if _kind(schema.field(times).type) not in ("int", "float"):
            raise DataError(
                f"{path}: column {times!r} of event time is of type {schema.field(times).type}, "
                "wanted a timestamp or a number of seconds; name another with --time-column"
            )


def _find(source: str) -> tuple[str, list[str]]:
    location = Location.parse(source)
    location.check_source()
    scheme = _scheme(location)
    system, root = file_system(source)
    info = system.get_file_info(root)
    if info.is_file:
        return scheme, [root]
    found = system.get_file_info(pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=True))
    paths = sorted(
        each.path
        for each in found
        if each.path.endswith(".parquet") and not _hidden(each.path.removeprefix(root).split("/"))
    )
    if not paths:
        raise DataError(f"{source}: no Parquet file there; name a file or a folder, as `rstream data ingest` writes it")
    return scheme, paths


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(("_", ".")) or part == "quarantine" for part in parts)


def file_system(source: str) -> tuple[Any, str]:
    """The file system that a path or URI names, and the path in it."""
    location = Location.parse(source)
    if location.local is not None:
        return pyarrow.fs.LocalFileSystem(), str(location.local)
    scheme = _scheme(location)
    return _system(scheme), pyarrow.fs.FileSystem.from_uri(scheme)[1]


def _scheme(location: Location) -> str:
    return "" if location.local is not None else location.uri.replace("s3a://", "s3://", 1)


def _system(scheme: str) -> Any:
    if not scheme:
        return pyarrow.fs.LocalFileSystem()
    try:
        return pyarrow.fs.FileSystem.from_uri(scheme)[0]
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{scheme}: cannot be opened: {error}; wanted a path, s3://, gs:// or hdfs://") from None


def check_columns(
    path: str,
    schema: Any,
    names: Sequence[str],
    wanted: Sequence[tuple[str, str]] | None,
    missing: Mapping[str, int],
) -> None:
    """Hold columns of an Arrow schema against those that a topology wants; `missing` counts the values they lack."""
    for name in names:
        if name not in schema.names:
            raise DataError(f"{path} has no column {name!r}; its columns: {', '.join(schema.names)}")
        if not _kind(schema.field(name).type):
            raise DataError(
                f"{path}: column {name!r} is of type {schema.field(name).type}, which cannot be sent; "
                "name others with --columns"
            )
    if wanted is None:
        return
    if len(names) != len(wanted):
        raise DataError(
            f"the topology wants {len(wanted)} columns ({', '.join(name for name, _ in wanted)}), "
            f"--columns names {len(names)}"
        )
    for name, (target, kind) in zip(names, wanted, strict=True):
        has = _kind(schema.field(name).type)
        takes = kind.split(" | ")
        if has not in takes and not (has == "int" and "float" in takes):
            raise DataError(
                f"{path}: column {name!r} is {has} ({schema.field(name).type}), the topology wants {target!r}: {kind}"
            )
        if missing.get(name) and "None" not in takes:
            raise DataError(
                f"{path}: column {name!r} lacks {missing[name]} values, the topology wants {target!r}: {kind}"
            )


def _missing_values(metadata: Any) -> dict[str, int]:
    """How many values each column lacks, as far as the file says so."""
    missing: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            column = metadata.row_group(group).column(at)
            if column.statistics is not None and column.statistics.has_null_count:
                name = column.path_in_schema
                missing[name] = missing.get(name, 0) + column.statistics.null_count
    return missing


def _kind(kind: Any) -> str:
    """What a column's values are when they are sent; empty for those that cannot be."""
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    for name, fits in (
        ("bool", types.is_boolean),
        ("int", types.is_integer),
        ("float", types.is_floating),
        ("float", types.is_timestamp),
        ("str", types.is_string),
        ("str", types.is_large_string),
        ("bytes", types.is_binary),
        ("bytes", types.is_large_binary),
    ):
        if fits(kind):
            return name
    return ""


def read_partition(
    table: Table, partition: int, partitions: int, skip: int
) -> Iterator[tuple[list[tuple[Any, ...]], Any]]:
    """(rows, event times in seconds or None) of a partition, some thousands at a time, without the first `skip`."""
    system = _system(table.scheme)
    first = partition + skip * partitions
    """The number, among all rows, of the next one that is ours."""
    start = 0
    for path, rows in zip(table.files, table.rows, strict=True):
        if start + rows > first:
            file = pyarrow.parquet.ParquetFile(path, filesystem=system)
            wanted = list(dict.fromkeys((*table.columns, *((table.times,) if table.times else ()))))
            at = start
            for group in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if at + size > first:
                    for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=wanted):
                        if at + batch.num_rows > first:
                            mine = batch.take(pyarrow.array(range(first - at, batch.num_rows, partitions)))
                            first += mine.num_rows * partitions
                            yield _rows(mine, table.columns), times_of(mine, table.times)
                        at += batch.num_rows
                else:
                    at += size
        start += rows


def _rows(batch: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(plain_values(batch.column(name)) for name in columns), strict=True))


def times_of(batch: Any, times: str) -> Any:
    """The event times of a batch in seconds, as a numpy array; None where there is no such column."""
    if not times:
        return None
    column = batch.column(times)
    if pyarrow.types.is_timestamp(column.type):
        return microseconds(column).to_numpy(zero_copy_only=False) / 1e6
    return column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)


def check_file(table: Table, at: int) -> tuple[float, float, str]:
    """(first time, last time, what is wrong with the order) of one file."""
    path, last, first, row = table.files[at], -math.inf, math.nan, 0
    file = pyarrow.parquet.ParquetFile(path, filesystem=_system(table.scheme))
    for batch in file.iter_batches(ROWS_AT_ONCE, columns=[table.times]):
        if batch.column(0).null_count:
            return first, last, f"{path}: a row between {row} and {row + batch.num_rows} has no {table.times}"
        times = times_of(batch, table.times)
        steps = np.diff(times, prepend=last)
        if (steps < 0).any():
            where = row + int(np.argmax(steps < 0))
            return first, last, f"{path}: row {where} is earlier in {table.times} than the row before it"
        first, last = (times[0] if row == 0 else first), times[-1]
        row += batch.num_rows
    return float(first), float(last), ""
