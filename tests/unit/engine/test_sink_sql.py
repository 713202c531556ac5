"""Tables by any DB-API module: rows and progress in one transaction."""

from __future__ import annotations

import pathlib
import sqlite3
from functools import partial
from typing import Any

import adbc_driver_sqlite.dbapi
import pytest

from rstream.errors import OperatorError, TopologyError
from rstream.operators.sinks import Sql
from rstream.testing import check_sink
from tests.unit.engine.test_sinks import run

CREATE = "CREATE TABLE IF NOT EXISTS words (word TEXT, n INTEGER)"


def rows(path: pathlib.Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        known = connection.execute("SELECT name FROM sqlite_master WHERE name = 'words'").fetchall()
        return connection.execute("SELECT word, n FROM words").fetchall() if known else []


def adbc(path: pathlib.Path) -> Any:
    return adbc_driver_sqlite.dbapi.connect(str(path))


@pytest.mark.parametrize("connect", [sqlite3.connect, adbc])
def test_it_keeps_the_promises_of_a_transactional_sink(connect: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.db"
    check_sink(lambda: Sql(partial(connect, path), "words", ("word", "n"), create=CREATE), lambda: rows(path))


def test_rows_that_the_table_refuses_take_the_progress_back_with_them(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.db"
    create = "CREATE TABLE IF NOT EXISTS words (word TEXT NOT NULL, n INTEGER)"
    sink = Sql(partial(sqlite3.connect, path), "words", ("word", "n"), create=create)
    with pytest.raises(OperatorError, match="NOT NULL constraint failed"):
        run(sink, [("a", 1), (None, 2)])
    assert rows(path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": "words; DROP"}, "'words; DROP' is not a plain name"),
        ({"fields": ()}, "wanted fields"),
        ({"key": ("other",)}, "a key among them"),
        ({"paramstyle": "numeric"}, "paramstyle must be one of qmark, format, pyformat; got 'numeric'"),
    ],
)
def test_what_cannot_work_is_refused_when_the_sink_is_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Sql(**{"connect": sqlite3.connect, "table": "words", "fields": ("word",), **arguments})
