"""Rows of Parquet files: every row once, from any offset, in order of the files' names."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from rstream.errors import DataError
from rstream.operators.sources import ParquetRows
from rstream.testing import check_source


@pytest.fixture
def table(tmp_path: Path) -> Path:
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    for day in range(3):
        numbers = list(range(day * 40, day * 40 + 40))
        columns = {"n": numbers, "at": [start + dt.timedelta(seconds=n) for n in numbers]}
        folder = tmp_path / "data" / f"day={day}"
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / "part.parquet", row_group_size=15)
    (tmp_path / "quarantine").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"reason": ["x"]}), tmp_path / "quarantine" / "part.parquet")
    return tmp_path


def test_it_keeps_the_promises_of_a_source(table: Path) -> None:
    check_source(lambda: ParquetRows(table, ("n", "at")))


def test_every_row_comes_once_and_times_are_seconds(table: Path) -> None:
    source = ParquetRows(table, ("at", "n"))
    rows = [row for split in source.splits(2) for row in source.reader(split, None).read(1) or []]
    assert rows == [(1577836800.0, 0), (1577836815.0, 15)]
    found = []
    for split in source.splits(3):
        reader = source.reader(split, None)
        while (some := reader.read(7)) is not None:
            found += some
    assert sorted(n for _, n in found) == list(range(120))
    assert all(at == 1577836800.0 + n for at, n in found)


def test_what_is_not_there_is_refused_in_one_line(table: Path) -> None:
    with pytest.raises(DataError, match="no column 'm'; its columns: n, at"):
        ParquetRows(table, ("m",)).splits(1)
    with pytest.raises(DataError, match="no Parquet file at"):
        ParquetRows(table / "nothing", ("n",)).splits(1)
    (table / "bad.parquet").write_text("no")
    with pytest.raises(DataError, match="not a Parquet file"):
        ParquetRows(table / "bad.parquet", ("n",)).splits(1)
