"""Replays Parquet into a running topology: Spark executors read, keep to the profile, and send exactly once.

Every partition is one sender's partition: what the source has covered is not sent again, whoever was killed. All
partitions agree on one start on the clock, so that together they have the asked rate; one that was held up catches up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from rstream.clock import SystemClock
from rstream.errors import DataError, RunError
from rstream.runtime.ingest_client import IngestClient, IngestTarget
from rstream.spark.pace import Pace
from rstream.spark.progress import Phases, Quiet
from rstream.spark.replay_report import REASONS_SHOWN, PartitionReport, summary
from rstream.spark.rows import Table, check_file, read_partition

SEND_ROWS = 500
POLL_S = 0.05


@dataclass(frozen=True)
class Plan:
    """All that an executor needs to replay its partition."""

    table: Table
    target: IngestTarget
    sender: str
    partitions: int
    pace: Pace
    limit: int | None = None
    """So many rows at most, the first ones; by default all."""


Agree = Callable[[float], float]
"""Given when a partition's next record is due in the profile, gives the start on the clock that all have agreed on."""


def replay_partition(plan: Plan, partition: int, agree: Agree) -> PartitionReport:
    """Send one partition; what goes wrong for good is in the report, for Spark would only try it again."""
    report = PartitionReport(partition)
    client: IngestClient | None = None
    try:
        client = IngestClient(plan.target, plan.sender, partition)
        report.before = client.covered
    except (RunError, DataError) as error:
        report.error = str(error)
    # All partitions have to agree, also those that have nothing to send.
    batches = _with_due_times(plan, partition, report.before) if client is not None else iter(())
    first = next(batches, None)
    report.first_s = float(first[1][0]) if first is not None else math.inf
    start_s = agree(report.first_s)
    if client is None or first is None:
        return report
    try:
        for rows, due_s in chain([first], batches):
            _send(client, rows, due_s, start_s, report)
        client.finish()
    except RunError as error:
        report.error = str(error)
    finally:
        client.close()
    report.waited_s, report.reconnects = client.waited_s, client.reconnects
    report.refused = len(client.refused)
    report.reasons = [
        f"record {number} of partition {partition}: {reason}" for number, reason in client.refused[:REASONS_SHOWN]
    ]
    return report


def _with_due_times(plan: Plan, partition: int, skip: int) -> Iterator[tuple[list[Any], Any]]:
    """Rows of a partition, each with its due time in seconds after the start."""
    number = skip
    limit = plan.table.total if plan.limit is None else plan.limit
    last = len(range(partition, limit, plan.partitions))
    for rows, times in read_partition(plan.table, partition, plan.partitions, skip):
        if number + len(rows) > last:
            rows, times = rows[: last - number], None if times is None else times[: last - number]
        if not rows:
            return
        numbers = partition + plan.partitions * np.arange(number, number + len(rows))
        yield rows, plan.pace.due_s(numbers, times)
        number += len(rows)


def _send(client: IngestClient, rows: list[Any], due_s: Any, start_s: float, report: PartitionReport) -> None:
    clock, at = SystemClock(), 0
    while at < len(rows):
        now_s = clock.now() - start_s
        upto = min(int(np.searchsorted(due_s, now_s, side="right")), at + SEND_ROWS)
        if upto <= at:
            client.poll(min(POLL_S, max(0.001, float(due_s[at]) - now_s)))
            continue
        client.send(rows[at:upto])
        report.ended_s = clock.now() - start_s
        report.late_s = report.ended_s - float(due_s[upto - 1])
        report.by_second[max(0, int(report.ended_s))] += upto - at
        report.sent += upto - at
        at = upto


def replay(session: Any, plan: Plan, phases: Phases | None = None) -> dict[str, Any]:
    """Check the order, send everything, and say what came of it."""
    phases = phases or Quiet()
    context, table = session.sparkContext, plan.table
    if context.defaultParallelism < plan.partitions:
        raise DataError(
            f"{plan.partitions} partitions are sent at once and need as many Spark task slots, this master has "
            f"{context.defaultParallelism}: give it more, or use --partitions"
        )
    if table.times:
        with phases.phase("checking the order of the rows"):
            files = context.parallelize(range(len(table.files)), max(plan.partitions, 1))
            checked = files.map(lambda at: check_file(table, at)).collect()
        _check_order(table, checked)
        plan = replace(plan, pace=replace(plan.pace, origin_s=origin_of(checked)))
    elif plan.pace.speed is not None:
        raise DataError(
            f"{table.text}: --speed needs a column of event time; name it with --time-column, or use --rate"
        )
    with phases.phase("replaying"):
        parts = context.parallelize(range(plan.partitions), plan.partitions).barrier()
        sent = parts.mapPartitions(lambda numbers: _run(plan, numbers))
        # Behind a shuffle: Spark starts a lost barrier stage over, but not one whose results go straight to the driver.
        reports = sent.coalesce(1, shuffle=True).collect()
    return {
        "source": table.text,
        "sender": plan.sender,
        "partitions": plan.partitions,
        "rows": table.total,
        **summary(reports, plan.pace),
    }


def _run(plan: Plan, partitions: Iterable[int]) -> Iterator[PartitionReport]:
    """On an executor. All tasks of the stage run at the same time, and start over together if one of them is lost."""
    from pyspark import BarrierTaskContext

    def agree(due_s: float) -> float:
        told = BarrierTaskContext.get().allGather(json.dumps([SystemClock.now(), due_s]))
        times_s, dues_s = zip(*(json.loads(each) for each in told), strict=True)
        return float(max(times_s)) - (min(dues_s) if min(dues_s) < math.inf else 0.0)

    return (replay_partition(plan, partition, agree) for partition in partitions)


def origin_of(checked: Iterable[tuple[float, float, str]]) -> float:
    """The event time of the first row, of what `check_file` has found in each file; some may be empty."""
    return next(first for first, last, _ in checked if math.isfinite(last))


def _check_order(table: Table, checked: list[tuple[float, float, str]]) -> None:
    wrong = next((problem for _, _, problem in checked if problem), "")
    last = -math.inf
    for path, (first, end, _) in zip(table.files, checked, strict=True):
        if not wrong and first < last:
            wrong = f"{path}: its first row is earlier in {table.times} than the last row of the file before it"
        last = max(last, end)
    if wrong:
        raise DataError(f"{wrong}; the rows must be in the order of time: use `rstream data ingest`, or sort them")
