"""SQLite: a file and a table that are made when they are not there."""

from __future__ import annotations

import pathlib
import sqlite3
from typing import Any

import pytest

from rstream.errors import OperatorError
from rstream.operators.sinks import Sqlite
from rstream.testing import check_sink
from tests.unit.engine.test_sinks import run
from tests.windows_kit import check_written


def rows(path: pathlib.Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        known = connection.execute("SELECT name FROM sqlite_master WHERE name = 'words'").fetchall()
        return connection.execute("SELECT word, n FROM words ORDER BY word, n").fetchall() if known else []


def test_values_are_inserted_by_several_tasks(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.db"
    run(Sqlite(path, "words", ("word", "n")), [("w", n) for n in range(100)], workers=2, parallelism=3)
    assert rows(path) == [("w", n) for n in range(100)]


def test_with_a_key_the_newest_row_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.db"
    run(Sqlite(path, "words", ("word", "n"), key=("word",)), [("a", 1), ("b", 1), ("a", 2)])
    assert rows(path) == [("a", 2), ("b", 1)]


def test_it_keeps_the_promises_of_a_transactional_sink(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.db"
    check_sink(lambda: Sqlite(path, "words", ("word", "n")), lambda: rows(path))


def test_rows_are_there_once_each_although_workers_are_killed_and_tasks_change(tmp_path: pathlib.Path) -> None:
    fields = ("word", "start", "end_s", "n")

    def stored(path: pathlib.Path) -> list[Any]:
        with sqlite3.connect(path) as connection:
            return connection.execute("SELECT word, start, end_s, n FROM words").fetchall()

    check_written(tmp_path, lambda path: Sqlite(path, "words", fields, commit_interval_s=0.02), stored)


def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.db"
    path.write_text("this is a text of more than one page\n" * 200)
    with pytest.raises(OperatorError, match="file is not a database; check the path"):
        run(Sqlite(path, "words", ("word", "n")), [("a", 1)])
