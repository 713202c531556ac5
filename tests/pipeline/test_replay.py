"""Parquet replayed into a topology by Spark: counts equal to DuckDB's, at the asked rate, nothing sent twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from rstream.errors import DataError
from rstream.runtime.ingest_client import look
from rstream.spark.pace import Pace
from rstream.spark.profile import parse_profile
from rstream.spark.replay import Plan, replay
from rstream.spark.rows import open_table
from rstream.topologies import commcount
from tests.behaviour.test_ingest import Running, running
from tests.pipeline.conftest import Made, query, table
from tests.pipeline.topology_truth import TRUTHS


def wanted(data: Made) -> dict[int, int]:
    return dict(query(TRUTHS["commcount"].sql.replace("{table}", table(data.table))))


def plan(found: Running, source: Path, sender: str, rate: str | None = None) -> Plan:
    places = look(found.target)
    rows = open_table(str(source), (), places.columns, "event_time")
    pace = Pace(None if rate is None else parse_profile(rate))
    return Plan(rows, found.target, sender, len(places.lanes), pace)


def test_a_replay_keeps_to_its_rate_counts_as_duckdb_does_and_sends_nothing_twice(
    spark: Any, made: Callable[[str], Made]
) -> None:
    data = made("tianchi")
    rows = data.ingest["rows"]
    with running(commcount.build(table="ingest")) as found:
        report = replay(spark, plan(found, data.table, "test", f"{rows // 4}@0s,{rows // 2}@2s"))
        assert (report["sent"], report["refused"], report["errors"]) == (rows, 0, [])
        # Two seconds at a quarter a second, one at half of it: three in all, never sooner.
        assert report["took_s"] >= 2.9
        assert report["asked_per_s"] == pytest.approx(rows / 3, rel=0.05)
        again = replay(spark, plan(found, data.table, "test"))
        assert (again["sent"], again["sent_before"]) == (0, rows)
        assert found.end("counts") == wanted(data)


def test_rows_out_of_order_are_refused_and_nothing_is_sent(
    spark: Any, tmp_path: Path, made: Callable[[str], Made]
) -> None:
    files = sorted((made("tianchi").table / "data").rglob("*.parquet"))
    with running(commcount.build(table="ingest")) as found:
        for number, path in enumerate(reversed(files[:2])):
            rows = pyarrow.parquet.ParquetFile(path).read()
            pyarrow.parquet.write_table(rows, tmp_path / f"{number}.parquet")
        with pytest.raises(DataError, match=r"1\.parquet: its first row is earlier in event_time than the last row"):
            replay(spark, plan(found, tmp_path, "test"))
        assert found.received() == 0
