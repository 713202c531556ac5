"""What an executor does in a replay, without Spark: its partition is sent at its pace, once, and from where it was."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from rstream.clock import SystemClock
from rstream.operators import sources
from rstream.runtime.ingest_client import look
from rstream.spark.pace import Pace
from rstream.spark.profile import parse_profile
from rstream.spark.replay import Plan, replay_partition
from rstream.spark.replay_report import PartitionReport, summary
from rstream.spark.rows import open_table
from tests.behaviour.test_ingest import FIELDS, Running, counting, running

ROWS = 3000
PARTITIONS = 2


@pytest.fixture
def table(tmp_path: Path) -> Path:
    words = {"word": [f"word{n % 11}" for n in range(ROWS)], "n": list(range(ROWS))}
    pyarrow.parquet.write_table(pyarrow.table(words), tmp_path / "rows.parquet", row_group_size=700)
    return tmp_path


def plan(found: Running, table: Path, rate: str | None = None, limit: int | None = None) -> Plan:
    rows = open_table(str(table), (), look(found.target).columns)
    pace = Pace(None if rate is None else parse_profile(rate))
    return Plan(rows, found.target, "test", PARTITIONS, pace, limit)


def replay_all(asked: Plan) -> list[PartitionReport]:
    """All partitions at once, which agree on a start as the tasks of a Spark stage do."""
    barrier, dues = threading.Barrier(PARTITIONS), []

    def agree(due_s: float) -> float:
        dues.append(due_s)
        barrier.wait(60)
        now_s = SystemClock.now()
        return now_s - min(dues) if min(dues) < float("inf") else now_s

    with ThreadPoolExecutor(PARTITIONS) as pool:
        return list(pool.map(lambda partition: replay_partition(asked, partition, agree), range(PARTITIONS)))


def truth() -> dict[str, int]:
    return dict(Counter(f"word{n % 11}" for n in range(ROWS)))


def test_partitions_keep_to_the_profile_together(table: Path) -> None:
    with running(counting(sources.Ingest(FIELDS))) as found:
        asked = plan(found, table, "1000@0s,4000@1s")
        told = summary(replay_all(asked), asked.pace)
        assert (told["sent"], told["refused"], told["errors"]) == (ROWS, 0, [])
        assert told["took_s"] >= 1.49  # a second at 1000/s, half of one at 4000/s
        assert told["asked_per_s"] == pytest.approx(2000, rel=0.01)
        assert found.end() == truth()


def test_one_that_was_killed_goes_on_in_the_rows_and_in_the_profile(table: Path) -> None:
    with running(counting(sources.Ingest(FIELDS))) as found:
        first = summary(replay_all(plan(found, table, limit=2000)), Pace())
        assert (first["sent"], first["sent_before"]) == (2000, 0)
        asked = plan(found, table, "100@0s,10000@20s")
        rest = summary(replay_all(asked), asked.pace)
        # 2000 rows are those of the first twenty seconds: it goes on at the faster step.
        assert (rest["sent"], rest["sent_before"]) == (1000, 2000)
        assert rest["asked_per_s"] == pytest.approx(10_000, rel=0.01)
        assert [step["from_s"] for step in rest["steps"]] in ([], [20.0])
        again = summary(replay_all(asked), asked.pace)
        assert (again["sent"], again["sent_before"]) == (0, ROWS)
        assert found.end() == truth()


def test_a_partition_that_nobody_takes_says_so_and_holds_the_others_up_for_nothing(table: Path) -> None:
    with running(counting(sources.Ingest(FIELDS))) as found:
        asked = plan(found, table)
        gone = Plan(asked.table, type(found.target)(("127.0.0.1:9",), "token"), "test", PARTITIONS, Pace())
    told = summary(replay_all(gone), Pace())
    assert told["sent"] == 0
    assert len(told["errors"]) == PARTITIONS
    assert "no worker of a topology answers at 127.0.0.1:9" in told["errors"][0]
