"""Sinks that write files exactly once: JSON lines, CSV and Parquet.

A sink writes a folder. Every commit makes one file there, `STEP-TASK-NUMBER.ENDING`, which appears whole and never
changes: whoever reads the folder sees committed records only, in the order of the numbers of a task. A commit is the
replacement of one small file under `.rstream` in the folder, which names the new data file and how far its task has
read: data that was written before a crash and not committed is removed, and data that was committed and not yet shown
is shown, by whoever claims the task's place next. The folder has to be on storage that every node sees.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from rstream.api import Context, Out, TransactionalSink
from rstream.errors import DataError, SinkFenced, TopologyError

PRIVATE = ".rstream"


class FileSink(TransactionalSink):
    """What the sinks of all formats share: the folder and its commits. Subclasses turn records into bytes."""

    ending: str

    def __init__(
        self, folder: str | os.PathLike[str], *, commit_interval_s: float = 1.0, commit_records: int = 10_000
    ) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self.commit_interval_s = float(commit_interval_s)
        self.commit_records = commit_records
        if not (self.commit_interval_s >= 0 and commit_records >= 1):
            raise TopologyError(
                f"{type(self).__name__}: commit_interval_s must be at least 0 and commit_records at least 1, "
                f"got {commit_interval_s} and {commit_records}"
            )

    def encode(self, records: list[Any]) -> bytes:
        """The content of a data file."""
        raise TypeError(f"{type(self).__name__} does not override encode")

    def open(self, ctx: Context) -> None:
        self._run = ctx.run
        self._name = f"{ctx.step.replace(os.sep, '_')}-{ctx.task}"
        if os.path.exists(self.folder) and not os.path.isdir(self.folder):
            raise DataError(f"{self.folder} is a file; this sink writes a folder of files, so name a folder")
        os.makedirs(os.path.join(self.folder, PRIVATE), exist_ok=True)

    def claim(self, token: int) -> bytes | None:
        with self._locked():
            found = self._read()
            same_run = found is not None and found["run"] == self._run
            if found is not None and same_run and found["token"] > token:
                raise SinkFenced(f"{self._path()}: token {found['token']} has claimed it, this is {token}")
            number = 0
            if found is not None:
                number = found["number"]
                self._show(found)
            self._remove_leftovers()
            progress = found["progress"] if found is not None and same_run else None
            self._write({"run": self._run, "token": token, "number": number, "written": "", "progress": progress})
        self._number = number
        return None if progress is None else bytes.fromhex(progress)

    def commit(self, records: list[Any], progress: bytes, token: int) -> None:
        written = ""
        if records:
            # The data first, beside the folder's visible files: it counts once the commit names it.
            written = os.path.join(PRIVATE, f"{self._name}.{self._run}.{token}.{self._number + 1}.data")
            with open(os.path.join(self.folder, written), "wb") as file:
                file.write(self.encode(records))
                file.flush()
                os.fsync(file.fileno())
        with self._locked():
            found = self._read()
            if found is None or (found["run"], found["token"]) != (self._run, token):
                raise SinkFenced(f"{self._path()}: another process has claimed it, token {token} may not commit")
            self._number += bool(records)
            commit = {"run": self._run, "token": token, "number": self._number, "written": written}
            self._write({**commit, "progress": progress.hex()})
            self._show(commit)

    def _path(self) -> str:
        return os.path.join(self.folder, PRIVATE, self._name)

    def _show(self, commit: dict[str, Any]) -> None:
        """Give the committed data its visible name, unless that has been done."""
        if commit["written"]:
            with contextlib.suppress(FileNotFoundError):
                shown = f"{self._name}-{commit['number']:08d}.{self.ending}"
                os.rename(os.path.join(self.folder, commit["written"]), os.path.join(self.folder, shown))

    def _remove_leftovers(self) -> None:
        private = os.path.join(self.folder, PRIVATE)
        for name in os.listdir(private):
            if name.startswith(f"{self._name}.") and name.endswith((".data", ".new")):
                os.unlink(os.path.join(private, name))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time looks at a commit and replaces it, a former host of this task included."""
        with open(f"{self._path()}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any] | None:
        try:
            with open(f"{self._path()}.commit", encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
                return found
        except FileNotFoundError:
            return None

    def _write(self, commit: dict[str, Any]) -> None:
        made = f"{self._path()}.{self._run}.{commit['token']}.new"
        with open(made, "w", encoding="utf-8") as file:
            json.dump(commit, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(made, f"{self._path()}.commit")


class JsonLines(FileSink):
    """Writes each value as a line of JSON, exactly once; what JSON does not know is written as its `str`.

    >>> import glob, tempfile
    >>> from rstream import Topology, run
    >>> folder = tempfile.mkdtemp()
    >>> topology = Topology("lines")
    >>> _ = topology.source("n", [1, ("two", 2), {"three": 3}]).sink("out", JsonLines(folder))
    >>> _ = run(topology, local=True)
    >>> [open(path).read() for path in glob.glob(folder + "/*.jsonl")]
    ['1\\n["two", 2]\\n{"three": 3}\\n']
    """

    ending = "jsonl"

    def process(self, value: Any, out: Out) -> None:
        out.emit(json.dumps(value, ensure_ascii=False, default=str))

    def process_batch(self, values: list[Any], out: Out) -> None:
        dumps = json.dumps
        out.extend([dumps(value, ensure_ascii=False, default=str) for value in values])

    def encode(self, records: list[Any]) -> bytes:
        return "".join(f"{line}\n" for line in records).encode()


class Csv(FileSink):
    """Writes tuples, or dicts by `fields`, as lines of CSV, exactly once; every file begins with the header, if any.

    >>> import glob, tempfile
    >>> from rstream import Topology, run
    >>> folder = tempfile.mkdtemp()
    >>> topology = Topology("table")
    >>> _ = topology.source("n", [("a", 1), {"word": "b", "n": 2}]).sink("out", Csv(folder, fields=("word", "n")))
    >>> _ = run(topology, local=True)
    >>> [open(path).read() for path in glob.glob(folder + "/*.csv")]
    ['word,n\\na,1\\nb,2\\n']
    """

    ending = "csv"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        fields: Sequence[str] = (),
        *,
        commit_interval_s: float = 1.0,
        commit_records: int = 10_000,
    ) -> None:
        super().__init__(folder, commit_interval_s=commit_interval_s, commit_records=commit_records)
        self.fields = tuple(fields)

    def process(self, value: Any, out: Out) -> None:
        out.emit(row_of(value, self.fields))

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend([row_of(value, self.fields) for value in values])

    def encode(self, records: list[Any]) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        if self.fields:
            writer.writerow(self.fields)
        writer.writerows(records)
        return text.getvalue().encode()


class Parquet(FileSink):
    """Writes tuples, or dicts by `fields`, as Parquet, exactly once. Types come from the values, or from a `schema`.

    >>> import pyarrow.parquet, tempfile
    >>> from rstream import Topology, run
    >>> folder = tempfile.mkdtemp()
    >>> topology = Topology("columns")
    >>> _ = topology.source("n", [("a", 1), ("b", 2)]).sink("out", Parquet(folder, fields=("word", "n")))
    >>> _ = run(topology, local=True)
    >>> pyarrow.parquet.read_table(folder).to_pylist()
    [{'word': 'a', 'n': 1}, {'word': 'b', 'n': 2}]
    """

    ending = "parquet"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        fields: Sequence[str] = (),
        *,
        schema: Any = None,
        commit_interval_s: float = 5.0,
        commit_records: int = 100_000,
    ) -> None:
        super().__init__(folder, commit_interval_s=commit_interval_s, commit_records=commit_records)
        self.fields = tuple(fields) or tuple(schema.names if schema is not None else ())
        self.schema = schema
        if not self.fields:
            raise TopologyError("Parquet: name the columns with fields=(...), or give a pyarrow schema")

    def process(self, value: Any, out: Out) -> None:
        out.emit(row_of(value, self.fields))

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend([row_of(value, self.fields) for value in values])

    def encode(self, records: list[Any]) -> bytes:
        import pyarrow
        import pyarrow.parquet

        columns = [list(column) for column in zip(*records, strict=True)]
        types = self.schema.types if self.schema is not None else [None] * len(columns)
        arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=list(self.fields)), sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content


def row_of(value: Any, fields: Sequence[str]) -> tuple[Any, ...]:
    """A value as a row: a tuple or list as it is, a dict by its fields, anything else as one column.

    >>> row_of(("a", 1), ("word", "n")), row_of({"n": 1, "word": "a"}, ("word", "n")), row_of("a", ())
    (('a', 1), ('a', 1), ('a',))
    """
    if isinstance(value, dict):
        if not fields:
            raise ValueError("a dict was to be written and no columns are named; name them with fields=(...)")
        return tuple(value.get(field) for field in fields)
    row = tuple(value) if isinstance(value, tuple | list) else (value,)
    if fields and len(row) != len(fields):
        raise ValueError(f"a row of {len(fields)} columns ({', '.join(fields)}) was wanted, got {value!r}")
    return row
