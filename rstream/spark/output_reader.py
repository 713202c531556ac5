"""Reads a topology's committed output, batch or stream: the folder of an exact file sink.

The sink has made it exact (`operators/file_sinks.py`), `committed.py` makes offsets of it; here files are listed and
opened. A partition is what one task of the sink wrote, in its order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from rstream.errors import DataError
from rstream.spark import committed

TEXT = "value string"
"""The schema of JSON lines, where none is given: each line as it stands."""


@dataclass(frozen=True)
class Folder:
    """The folder of a file sink."""

    path: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Folder:
        """The folder that the options name."""
        path = options.get("path", "")
        if not path:
            raise DataError(
                "rstream: name the folder that the topology's sink writes: .load(folder), or .option('topology', NAME) "
                "and the file sink: .option('step', SINK)"
            )
        path = os.path.abspath(path.removeprefix("file://").removeprefix("file:"))
        if not os.path.isdir(path):
            raise DataError(f"rstream: {path} is no folder; name the one that sinks.Parquet or sinks.JsonLines writes")
        return cls(path)

    def files(self) -> dict[str, dict[int, str]]:
        """What is committed, by task of the sink and number."""
        return committed.found(os.listdir(self.path))

    def schema(self) -> Any:
        """The columns of its first file."""
        first = next((name for numbers in self.files().values() for name in numbers.values()), "")
        if not first:
            raise DataError(f"rstream: nothing is committed in {self.path} yet, so give the columns: .schema(...)")
        if first.endswith(".jsonl"):
            return TEXT
        import pyarrow.parquet
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(pyarrow.parquet.read_schema(os.path.join(self.path, first)))

    def read(self, names: Sequence[str], schema: Any) -> Iterator[Any]:
        """The records of some files, in order: Arrow batches, or rows of JSON lines."""
        for name in names:
            path = os.path.join(self.path, name)
            yield from _json_rows(path, schema.fieldNames()) if name.endswith(".jsonl") else _arrow(path, schema)


def _arrow(path: str, schema: Any) -> Iterator[Any]:
    import pyarrow.parquet
    from pyspark.sql.pandas.types import to_arrow_schema

    # A file's types come from its values: a column without any would differ from that of the next file.
    table = pyarrow.parquet.read_table(path, columns=schema.fieldNames())
    yield from table.cast(to_arrow_schema(schema)).to_batches()


def _json_rows(path: str, fields: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield (line.rstrip("\n"),) if list(fields) == ["value"] else _row(json.loads(line), fields)


def _row(value: Any, fields: Sequence[str]) -> tuple[Any, ...]:
    """A JSON value as a row: an object by its names, a list by its places, anything else as the only column.

    >>> _row({"n": 1, "word": "a"}, ("word", "n")), _row(["a", 1], ("word", "n")), _row(5, ("n",))
    (('a', 1), ('a', 1), (5,))
    """
    if isinstance(value, dict):
        return tuple(value.get(field) for field in fields)
    row = tuple(value) if isinstance(value, list) else (value,)
    if len(row) != len(fields):
        raise DataError(
            f"rstream: a record of {len(fields)} columns ({', '.join(fields)}) was wanted, got {value!r:.200}"
        )
    return row


class _Files(InputPartition):
    """Some files of a folder, for one Spark task."""


def _by_task(names: Sequence[str]) -> list[_Files]:
    """A partition for each task of the sink, so that its order is kept."""
    tasks: dict[str, list[str]] = {}
    for task, numbers in committed.found(names).items():
        tasks[task] = [numbers[number] for number in sorted(numbers)]
    return [_Files(files) for files in tasks.values()]


class BatchReader(DataSourceReader):
    def __init__(self, folder: Folder, schema: Any) -> None:
        self._folder, self._schema = folder, schema

    def partitions(self) -> Sequence[InputPartition]:
        return _by_task(os.listdir(self._folder.path))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._folder.read(partition.value, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder: Folder, schema: Any, options: Mapping[str, str]) -> None:
        self._folder, self._schema = folder, schema
        self._files_max = int(options.get("maxFilesPerTrigger", 0))
        self._deletes = options.get("cleanSource", "off").lower() == "delete"
        self._last: dict[str, dict[int, str]] | None = None
        """What there was when a query began that is to read only that."""

    def initialOffset(self) -> dict[str, int]:
        return committed.first_offset(self._folder.files())

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._folder.files()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._files_max) if self._files_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        files_max = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        files = self._folder.files() if self._last is None else self._last
        return committed.last_offset(files, start, files_max)

    def reportLatestOffset(self) -> dict[str, int]:
        return committed.last_offset(self._folder.files(), {})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _by_task(committed.between(self._folder.files(), start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._folder.read(partition.value, self._schema)

    def commit(self, end: dict[str, int]) -> None:
        if self._deletes:
            for name in committed.upto(self._folder.files(), end):
                os.unlink(os.path.join(self._folder.path, name))
