"""Parquet: columns with types, exactly once."""

from __future__ import annotations

import pathlib
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rstream.errors import TopologyError
from rstream.operators.sinks import Parquet
from rstream.testing import check_sink
from tests.unit.engine.test_sinks import run


def rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    """All rows, by file."""
    return [row for path in sorted(folder.glob("*.parquet")) for row in pyarrow.parquet.read_table(path).to_pylist()]


def test_types_come_from_the_values(tmp_path: pathlib.Path) -> None:
    run(Parquet(tmp_path, ("word", "n")), [("a", 1), {"word": "b", "n": 2}])
    assert rows(tmp_path) == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]


def test_types_come_from_a_schema_where_one_is_given(tmp_path: pathlib.Path) -> None:
    schema = pyarrow.schema([("n", pyarrow.float32())])
    run(Parquet(tmp_path, schema=schema), [1, None])
    table = pyarrow.parquet.read_table(next(tmp_path.glob("*.parquet")))
    assert table.schema.field("n").type == pyarrow.float32()
    assert table.to_pylist() == [{"n": 1.0}, {"n": None}]


def test_columns_must_be_named() -> None:
    with pytest.raises(TopologyError, match="name the columns with fields"):
        Parquet("x")


def test_it_keeps_the_promises_of_a_transactional_sink(tmp_path: pathlib.Path) -> None:
    check_sink(lambda: Parquet(tmp_path, ("word", "n")), lambda: rows(tmp_path))
