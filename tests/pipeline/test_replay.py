"""Parquet replayed into a topology by Spark: counts equal to DuckDB's, at the asked rate, nothing sent twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from rstream.cli import main as cli
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


@contextmanager
def door(folder: Path) -> Iterator[tuple[Running, list[str]]]:
    """COMMCount that takes rows, and what the command line needs to send it some."""
    (folder / "token").write_text("secret")
    with running(commcount.build(table="ingest"), ingest={"token_file": str(folder / "token")}) as found:
        yield found, ["--to", found.target.workers[0], "--token-file", str(folder / "token")]


def test_the_command_line_replays_by_the_rows_own_times_into_a_worker(
    spark: Any, made: Callable[[str], Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = made("tianchi")
    rows, seconds = data.ingest["rows"], 2.0
    [(span_s,)] = query(f"select epoch(max(event_time)) - epoch(min(event_time)) from {table(data.table)}")
    with door(tmp_path) as (found, to):
        asked = ["data", "replay", str(data.table), *to, "--speed", str(span_s / seconds)]
        assert cli.run([*asked, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["topology"], report["step"]) == ("commcount", "read")
        assert (report["sent"], report["refused"], report["errors"]) == (rows, 0, [])
        assert report["took_s"] >= seconds - 0.01, "the last row is due at the end of the span, and none sooner"
        assert report["asked_per_s"] == pytest.approx(rows / seconds, rel=0.01)
        assert cli.run(asked) == 0
        said = capsys.readouterr().out
        assert f"0 of {rows:,} rows of {data.table} sent to 'commcount', step 'read'" in said
        assert f"{rows:,} were there before" in said
        assert found.end("counts") == wanted(data)


def test_what_spark_finds_wrong_is_one_line_with_status_2_and_nothing_is_sent(
    spark: Any, tmp_path: Path, made: Callable[[str], Made], capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((made("tianchi").table / "data").rglob("*.parquet"))
    unsorted = tmp_path / "unsorted"
    unsorted.mkdir()
    for number, path in enumerate(reversed(files[:2])):
        pyarrow.parquet.write_table(pyarrow.parquet.ParquetFile(path).read(), unsorted / f"{number}.parquet")
    cases = [
        (
            [],
            "1.parquet: its first row is earlier in event_time than the last row of the file before it; the rows",
        ),
        (["--partitions", "9"], "9 partitions are sent at once and need as many Spark task slots, this master has 2:"),
    ]
    with door(tmp_path) as (found, to):
        capsys.readouterr()
        for more, complaint in cases:
            assert cli.run(["data", "replay", str(unsorted), *to, *more]) == 2
            [line] = [each for each in capsys.readouterr().err.splitlines() if each.startswith("rstream: ")]
            assert complaint in line
        assert found.received() == 0
