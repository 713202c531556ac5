"""What an executor does in a replay, without Spark: its partition is sent at its pace, once, and from where it was."""

from __future__ import annotations

import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rstream import Bolt, Topology
from rstream.api import Context, Out
from rstream.cli.replay import told
from rstream.clock import SystemClock
from rstream.operators import sources
from rstream.runtime.ingest_client import look
from rstream.spark.pace import Pace
from rstream.spark.profile import parse_profile
from rstream.spark.replay import Plan, origin_of, replay_partition
from rstream.spark.replay_report import PartitionReport, summary
from rstream.spark.rows import check_file, open_table
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


class Slow(Bolt):
    """Takes its time for each value."""

    def open(self, ctx: Context) -> None:
        self._ctx = ctx

    def process(self, value: Any, out: Out) -> None:
        self._ctx.occupy(1.0)
        out.emit(value)


def test_a_topology_that_is_slower_than_asked_slows_the_replay_down_which_says_so(table: Path) -> None:
    topology = Topology("slow")
    rows = topology.source("rows", sources.Ingest(FIELDS, window=100), parallelism=PARTITIONS)
    rows.key_by("word", itemgetter(0)).process("slow", Slow()).sink("out")
    with running(topology, batch={"window": 100}) as found:
        asked = plan(found, table, "10000")
        report = summary(replay_all(asked), asked.pace)
        assert (report["sent"], report["errors"]) == (ROWS, [])
        *_, line = told({**report, "rows": ROWS, "source": "table", "topology": "slow", "step": "rows"})
    waited_s, late_s = map(float, re.findall(r"[0-9.]+", line))
    assert line == (
        f"back-pressure: the topology held the replay up for {waited_s:.1f} s, and it ended {late_s:.1f} s late"
    )
    # 3000 rows of a millisecond, less what fits into the windows, where 0.3 s were asked for.
    assert min(waited_s, late_s) >= 1.0


def test_by_the_rows_own_times_a_quiet_hour_is_a_pause(tmp_path: Path) -> None:
    """A thousand rows within ten seconds, an hour of nothing, and as many again."""
    times = [float(n % 1000) / 100 + (3600.0 if n >= 1000 else 0.0) for n in range(2000)]
    words = pyarrow.table({"word": ["a"] * 2000, "n": list(range(2000)), "event_time": times})
    pyarrow.parquet.write_table(words, tmp_path / "rows.parquet")
    with running(counting(sources.Ingest(FIELDS))) as found:
        asked = plan(found, tmp_path)
        pace = Pace(speed=3600.0, origin_s=origin_of([check_file(asked.table, 0)]))
        report = summary(replay_all(replace(asked, pace=pace)), pace)
        assert (report["sent"], report["errors"]) == (2000, [])
        assert report["took_s"] >= 1.0
        assert report["asked_per_s"] == pytest.approx(2000 / 1.0028, rel=0.01)
        assert found.end() == {"a": 2000}


def test_a_partition_that_nobody_takes_says_so_and_holds_the_others_up_for_nothing(table: Path) -> None:
    with running(counting(sources.Ingest(FIELDS))) as found:
        asked = plan(found, table)
        gone = Plan(asked.table, type(found.target)(("127.0.0.1:9",), "token"), "test", PARTITIONS, Pace())
    told = summary(replay_all(gone), Pace())
    assert told["sent"] == 0
    assert len(told["errors"]) == PARTITIONS
    assert "no worker of a topology answers at 127.0.0.1:9" in told["errors"][0]
