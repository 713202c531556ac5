"""Rows of Parquet files as a source: a file, a folder (searched to its depths) or a glob.

Files are taken in the order of their names. Each task reads every so-manieth row group, so that all tasks are at about
the same place, and in time order where the files are.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from rstream.api import Reader, Source
from rstream.errors import DataError

READ_ROWS = 8192


class ParquetRows(Source):
    """Rows as tuples of the named columns; timestamps as seconds since the epoch, those without a zone as UTC.

    >>> import os, tempfile, pyarrow.parquet
    >>> path = os.path.join(tempfile.mkdtemp(), "n.parquet")
    >>> pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2, 3], "word": ["a", "b", "c"]}), path)
    >>> reader = ParquetRows(path, ("word", "n")).reader("0/1", None)
    >>> reader.read(2), reader.read(9), reader.read(9)
    ([('a', 1), ('b', 2)], [('c', 3)], None)
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str]) -> None:
        self.path, self.columns = os.path.abspath(os.fspath(path)), tuple(columns)
        if not self.columns:
            raise DataError(f"{self.path}: name the columns to read")

    def files(self) -> list[str]:
        """The files, in the order in which they are read."""
        pattern = os.path.join(glob.escape(self.path), "**", "*.parquet") if os.path.isdir(self.path) else self.path
        found = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
        # The rows that `data ingest` refused stand beside the good ones.
        found = [path for path in found if "quarantine" not in os.path.relpath(path, self.path).split(os.sep)]
        if not found or not all(map(os.path.isfile, found)):
            raise DataError(f"no Parquet file at {self.path}; name a file, a folder or a glob")
        return found

    def splits(self, parallelism: int) -> Sequence[str]:
        for path in self.files():
            missing = [column for column in self.columns if column not in _schema(path).names]
            if missing:
                known = ", ".join(_schema(path).names)
                raise DataError(f"{path} has no column {missing[0]!r}; its columns: {known}")
        return [f"{part}/{parallelism}" for part in range(parallelism)]

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return _ParquetReader(self.files(), self.columns, part, parts, offset or 0)


def _schema(path: str) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_schema(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a Parquet file that can be read: {error}") from None


class _ParquetReader(Reader):
    """Some row groups of the files, one after the other; the offset counts rows."""

    def __init__(self, files: Sequence[str], columns: Sequence[str], part: int, parts: int, position: int) -> None:
        import pyarrow.parquet

        self._columns, self._position = list(columns), position
        groups = []
        for path in files:
            metadata = pyarrow.parquet.read_metadata(path)
            groups += [(path, group, metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]
        self._groups = groups[part::parts]
        self._ends = list(accumulate(rows for _, _, rows in self._groups))
        self._rows: list[tuple[Any, ...]] = []
        self._next = 0

    def read(self, limit: int) -> list[Any] | None:
        if self._next >= len(self._rows) and not self._load():
            return None
        values = self._rows[self._next : self._next + limit]
        self._next += len(values)
        self._position += len(values)
        return values

    def _load(self) -> bool:
        """Bring in the rows at the position, some thousands; False at the end."""
        import pyarrow.parquet

        index = bisect_right(self._ends, self._position)
        if index == len(self._groups):
            return False
        path, group, rows = self._groups[index]
        start = self._position - (self._ends[index] - rows)
        table = pyarrow.parquet.ParquetFile(path).read_row_group(group, columns=self._columns)
        table = table.select(self._columns).slice(start, READ_ROWS * 8)
        self._rows = list(zip(*(plain_values(column) for column in table.columns), strict=True))
        self._next = 0
        return True

    @property
    def offset(self) -> int:
        return self._position


def plain_values(column: Any) -> list[Any]:
    """A column's values as they travel: timestamps as seconds since the epoch."""
    import pyarrow

    if not pyarrow.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    return [None if each is None else each / 1_000_000 for each in microseconds(column).to_pylist()]


def microseconds(column: Any) -> Any:
    """A column of timestamps as microseconds since the epoch, those without a zone as UTC."""
    import pyarrow

    return column.cast(pyarrow.timestamp("us", column.type.tz)).cast(pyarrow.int64())
