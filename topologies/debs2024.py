"""DEBS 2024, Ra-Stream's second application: telemetry of hard drives (Backblaze), seven steps.

Incomplete rows are filtered out and events made of the others; failures and errors by model over a sliding window go to
a database, and drives far hotter than others of their model on the same day to an alert queue.

rstream run topologies/debs2024.py -o database=drives.db -o alerts=alerts.db
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from rstream import Topology
from rstream.api import Out
from rstream.event_time import EventTime
from rstream.operators import sinks
from rstream.operators.aggregates import Count, Outliers, Several, Sum
from rstream.operators.windows import Sliding, Tumbling
from rstream.topologies import inputs

DAY_S = 86_400
model, failed, errors, heat = map(itemgetter, (0, 2, 3, 4))  # of an event
FIELDS = ("model", "start_s", "end_s", "events", "failures", "errors")


def build(
    table: str = "",
    database: str = "drives.db",
    alerts: str = "alerts.db",
    days: int = 3,
    deviations: float = 2.0,
    parallelism: int = 2,
    rows_per_s: float = 3_000,
) -> Topology:
    """Totals by model over `days` days, and drives whose heat is more than `deviations` from the others'."""
    topology = Topology("debs2024")
    source = inputs.rows(table, inputs.DRIVES, inputs.drive, rows_per_s)
    rows = topology.source("read", source, parallelism=parallelism, event_time=EventTime(at_s))
    events = rows.filter("filter", is_complete).map("detect", event, parallelism=parallelism).key_by("model", model)
    totals = Several(Count(), Sum(failed), Sum(errors))
    sliding = events.window(Sliding(days * DAY_S, DAY_S), time=at_s)
    sliding.aggregate("aggregate", totals, parallelism=parallelism).sink("store", Totals(database, "totals", FIELDS))
    daily = events.window(Tumbling(DAY_S), time=at_s)
    hot = daily.aggregate("anomalies", Outliers(heat, deviations), parallelism=parallelism)
    hot.sink("alert", Alerts(alerts))
    return topology


def is_complete(row: Any) -> bool:
    """All of the values that events need are there."""
    return all(value is not None for value in row)


def event(row: Any) -> tuple[Any, ...]:
    """(model, drive, failed, errors, heat, time) of a row of `inputs.DRIVES`."""
    drive, kind, failure, reallocated, uncorrectable, celsius, time_s = row
    return (kind, drive, failure, reallocated + uncorrectable, celsius, time_s)


def at_s(row: Any) -> float:
    """When a row or an event was: the last column of both."""
    return float(row[-1])


class Totals(sinks.Sqlite):
    """Writes `(model, start, end, (events, failures, errors))` as one row."""

    def process_batch(self, values: list[Any], out: Out) -> None:
        super().process_batch([(*row[:3], *row[3]) for row in values], out)


class Alerts(sinks.Queue):
    """Puts each drive of `(model, start, end, [event, ...])` on the queue."""

    def process_batch(self, values: list[Any], out: Out) -> None:
        super().process_batch([each[:2] + each[4:] for row in values for each in row[3]], out)
