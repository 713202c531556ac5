"""Sinks that write tables exactly once: rows and how far the task has read are committed in one transaction.

Any DB-API 2.0 module will do (sqlite3, psycopg, ADBC's `dbapi` modules): the sink is given a function that connects. It
keeps its progress in a table `rstream_progress` of the same database, one row for each task.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rstream.api import Context, Out, TransactionalSink
from rstream.errors import DataError, SinkFenced, TopologyError
from rstream.operators.file_sinks import row_of

if TYPE_CHECKING:
    import sqlite3

PROGRESS = "rstream_progress"
_COLUMNS = "topology VARCHAR(200), step VARCHAR(200), task INTEGER, run VARCHAR(40), token INTEGER, progress TEXT"
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Sql(TransactionalSink):
    """Inserts tuples, or dicts by `fields`, into a table; with `key`, replaces the row of the same key.

    `connect` is a function without arguments that gives a DB-API connection; it runs on the worker. `paramstyle` is the
    module's. The table is made if `create` says how, else it has to be there.

    >>> import os, sqlite3, tempfile
    >>> from functools import partial
    >>> from rstream import Topology, run
    >>> path = os.path.join(tempfile.mkdtemp(), "words.db")
    >>> sink = Sql(
    ...     partial(sqlite3.connect, path), "words", ("word", "n"), key=("word",),
    ...     create="CREATE TABLE IF NOT EXISTS words (word TEXT PRIMARY KEY, n INTEGER)",
    ... )
    >>> topology = Topology("words")
    >>> _ = topology.source("w", ["a", "b", "a"]).key_by("word").count("count").sink("out", sink)
    >>> _ = run(topology, local=True)
    >>> sqlite3.connect(path).execute("SELECT * FROM words ORDER BY word").fetchall()
    [('a', 2), ('b', 1)]
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        table: str,
        fields: Sequence[str],
        *,
        key: Sequence[str] = (),
        create: str = "",
        paramstyle: str = "qmark",
        commit_interval_s: float = 1.0,
        commit_records: int = 10_000,
    ) -> None:
        self.connect, self.table, self.create = connect, table, create
        self.fields, self.key = tuple(fields), tuple(key)
        self.commit_interval_s, self.commit_records = float(commit_interval_s), commit_records
        for name in (table, *self.fields, *self.key):
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", name):
                raise TopologyError(f"Sql: {name!r} is not a plain name of a table or column")
        if not self.fields or not set(self.key) <= set(self.fields):
            raise TopologyError(f"Sql: wanted fields, and a key among them; got fields {self.fields}, key {self.key}")
        if paramstyle not in _MARKS:
            raise TopologyError(f"Sql: paramstyle must be one of {', '.join(_MARKS)}; got {paramstyle!r}")
        self._mark = _MARKS[paramstyle]

    def _insert(self) -> str:
        marks = ", ".join([self._mark] * len(self.fields))
        statement = f"INSERT INTO {self.table} ({', '.join(self.fields)}) VALUES ({marks})"
        if not self.key:
            return statement
        others = [field for field in self.fields if field not in self.key]
        change = ", ".join(f"{field} = excluded.{field}" for field in others)
        return f"{statement} ON CONFLICT ({', '.join(self.key)}) DO " + (
            f"UPDATE SET {change}" if change else "NOTHING"
        )

    def open(self, ctx: Context) -> None:
        self._place = (ctx.topology, ctx.step, ctx.task)
        self._run = ctx.run
        self._connection = self.connect()
        key = "PRIMARY KEY (topology, step, task)"
        self._do(f"CREATE TABLE IF NOT EXISTS {PROGRESS} ({_COLUMNS}, {key})")
        if self.create:
            self._do(self.create)
        self._connection.commit()

    def process(self, value: Any, out: Out) -> None:
        out.emit(row_of(value, self.fields))

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend([row_of(value, self.fields) for value in values])

    def _do(self, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("?", self._mark), tuple(values))
        return cursor

    def claim(self, token: int) -> bytes | None:
        where = "WHERE topology = ? AND step = ? AND task = ?"
        # Writing first takes the row's lock, so that nobody commits between looking and claiming.
        taken = f"{where} AND (run <> ? OR token <= ?)"
        claimed = self._do(f"UPDATE {PROGRESS} SET token = token {taken}", (*self._place, self._run, token))
        try:
            found = self._do(f"SELECT run, token, progress FROM {PROGRESS} {where}", self._place).fetchone()
            if found is None:
                self._do(f"INSERT INTO {PROGRESS} VALUES (?, ?, ?, ?, ?, NULL)", (*self._place, self._run, token))
                self._connection.commit()
                return None
            run, newest, progress = found
            if run == self._run and newest > token:
                raise SinkFenced(f"table {self.table}: token {newest} has claimed it, this is {token}")
            progress = progress if run == self._run else None
            self._do(
                f"UPDATE {PROGRESS} SET run = ?, token = ?, progress = ? {where}",
                (self._run, token, progress, *self._place),
            )
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            claimed.close()
        return None if progress is None else bytes.fromhex(progress)

    def commit(self, records: list[Any], progress: bytes, token: int) -> None:
        where = "WHERE topology = ? AND step = ? AND task = ? AND run = ? AND token = ?"
        mine = (*self._place, self._run, token)
        try:
            self._do(f"UPDATE {PROGRESS} SET progress = ? {where}", (progress.hex(), *mine))
            if self._do(f"SELECT COUNT(*) FROM {PROGRESS} {where}", mine).fetchone()[0] != 1:
                raise SinkFenced(f"table {self.table}: another process has claimed it, token {token} may not commit")
            if records:
                cursor = self._connection.cursor()
                cursor.executemany(self._insert(), records)
                cursor.close()
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise

    def close(self) -> None:
        self._connection.close()


class Sqlite(Sql):
    """Inserts into a table of a SQLite file, which is made if it is not there; with `key`, replaces rows.

    >>> import os, sqlite3, tempfile
    >>> from rstream import Topology, run
    >>> path = os.path.join(tempfile.mkdtemp(), "out.db")
    >>> topology = Topology("squares")
    >>> squares = topology.source("n", [1, 2, 3]).map("square", lambda n: (n, n * n))
    >>> _ = squares.sink("out", Sqlite(path, "squares", ("n", "square")))
    >>> _ = run(topology, local=True)
    >>> sqlite3.connect(path).execute("SELECT * FROM squares").fetchall()
    [(1, 1), (2, 4), (3, 9)]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        fields: Sequence[str],
        *,
        key: Sequence[str] = (),
        commit_interval_s: float = 1.0,
        commit_records: int = 10_000,
        busy_timeout_s: float = 30.0,
    ) -> None:
        self.path, self.busy_timeout_s = os.path.abspath(os.fspath(path)), busy_timeout_s
        unique = f", PRIMARY KEY ({', '.join(key)})" if key else ""
        super().__init__(
            self._open_file,
            table,
            fields,
            key=key,
            create=f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(fields)}{unique})",
            commit_interval_s=commit_interval_s,
            commit_records=commit_records,
        )

    def _open_file(self) -> sqlite3.Connection:
        import sqlite3

        try:
            connection = sqlite3.connect(self.path, timeout=self.busy_timeout_s, check_same_thread=False)
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.Error as error:
            raise DataError(f"{self.path}: {error}; check the path, and that it is a SQLite file") from None
        return connection
