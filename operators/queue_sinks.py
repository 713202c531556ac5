"""A message queue in a file: a sink that puts each value once, and a function that takes messages off it.

The queue is a table of a SQLite file, so putting is part of the sink's transaction. It is the place for alerts that few
programs on the same machine or shared storage wait for; it is no broker.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from rstream.api import Out
from rstream.errors import DataError
from rstream.operators.sql_sinks import Sqlite

TABLE = "messages"


class Queue(Sqlite):
    """Puts each value as JSON on a queue, exactly once, in the order of each task.

    >>> import os, tempfile
    >>> from rstream import Topology, run
    >>> path = os.path.join(tempfile.mkdtemp(), "alerts.db")
    >>> topology = Topology("alerts")
    >>> _ = topology.source("n", [3, 50]).filter("high", lambda n: n > 10).sink("out", Queue(path))
    >>> _ = run(topology, local=True)
    >>> take(path), take(path)
    ([50], [])
    """

    def __init__(self, path: str | os.PathLike[str], commit_interval_s: float = 0.2) -> None:
        super().__init__(path, TABLE, ("body",), commit_interval_s=commit_interval_s)
        self.create = f"CREATE TABLE IF NOT EXISTS {TABLE} (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT)"

    def process(self, value: Any, out: Out) -> None:
        out.emit((json.dumps(value, default=str),))

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend([(json.dumps(value, default=str),) for value in values])


def take(path: str | os.PathLike[str], limit: int = 1000) -> list[Any]:
    """Take up to `limit` messages off the queue, oldest first; each is given to one caller only."""
    import sqlite3

    if not os.path.exists(path):
        raise DataError(f"no queue at {os.fspath(path)}; it is made by the first topology that writes to it")
    with contextlib.closing(sqlite3.connect(path, timeout=30.0)) as connection, connection:
        rows = connection.execute(
            f"DELETE FROM {TABLE} WHERE number IN (SELECT number FROM {TABLE} ORDER BY number LIMIT ?) "
            "RETURNING number, body",
            (limit,),
        ).fetchall()
    return [json.loads(body) for _, body in sorted(rows)]
