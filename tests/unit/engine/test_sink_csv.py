"""CSV: rows with a header, exactly once."""

from __future__ import annotations

import csv
import pathlib

import pytest

from rstream.errors import OperatorError
from rstream.operators.sinks import Csv
from rstream.testing import check_sink
from tests.unit.engine.test_sinks import run


def rows(folder: pathlib.Path) -> list[list[str]]:
    """The rows of all files without their headers."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found += list(csv.reader(file))[1:]
    return found


def test_tuples_and_dicts_become_rows_under_a_header(tmp_path: pathlib.Path) -> None:
    run(Csv(tmp_path, ("word", "n")), [("a,b", 1), {"n": 2, "word": 'quo"te'}, ("new\nline", None)])
    assert rows(tmp_path) == [["a,b", "1"], ['quo"te', "2"], ["new\nline", ""]]
    assert next(tmp_path.glob("*.csv")).read_text().splitlines()[0] == "word,n"


def test_without_fields_there_is_no_header(tmp_path: pathlib.Path) -> None:
    run(Csv(tmp_path), [("a", 1), "alone"])
    assert next(tmp_path.glob("*.csv")).read_text() == "a,1\nalone\n"


def test_a_row_of_another_width_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OperatorError, match=r"a row of 2 columns \(word, n\) was wanted, got \('a',\)"):
        run(Csv(tmp_path, ("word", "n")), [("a",)])
    assert rows(tmp_path) == []


def test_it_keeps_the_promises_of_a_transactional_sink(tmp_path: pathlib.Path) -> None:
    check_sink(lambda: Csv(tmp_path, ("word", "n")), lambda: rows(tmp_path))
