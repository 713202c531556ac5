"""Sinks: collecting for `results()`, standard output, a function, and those that write outside exactly once.

`JsonLines`, `Csv`, `Parquet`, `Sql`, `Sqlite` and `Queue` commit what they write together with how far they have read.
`Collect` and `Latest` are part of the topology's state. `Stdout` and functions see a tuple again after a crash: at
least once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rstream.api import Bolt, Out, Share, TransactionalSink
from rstream.errors import RunError, TopologyError
from rstream.operators.file_sinks import Csv, FileSink, JsonLines, Parquet
from rstream.operators.queue_sinks import Queue
from rstream.operators.sql_sinks import Sql, Sqlite
from rstream.operators.transforms import as_bolt

__all__ = [
    "Callback",
    "Collect",
    "Csv",
    "Discard",
    "FileSink",
    "JsonLines",
    "Latest",
    "Parquet",
    "Queue",
    "Sql",
    "Sqlite",
    "Stdout",
    "as_sink",
    "is_exact",
]

COLLECT_MAX = 5_000_000
"""More than this many collected values is a mistake: they are held in memory until the end."""


class Collect(Bolt):
    """Keeps every value for `handle.results()`."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.values.extend(values)
        if len(self.values) > COLLECT_MAX:
            raise RunError(f"a collect sink holds at most {COLLECT_MAX} values; write to a file or use sinks.Latest")

    def snapshot(self) -> Any:
        return self.values

    def restore(self, snapshot: Any) -> None:
        self.values = snapshot

    def redeal(self, snapshots: Sequence[Any], share: Share) -> Any:
        return [value for values in snapshots for value in values][share.task :: share.tasks]

    def results(self) -> list[Any]:
        """What was collected so far, in order of arrival at this task."""
        return self.values


class Latest(Bolt):
    """Keeps the newest `(key, value)` of each key for `handle.results()`."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.values.update(values)

    def snapshot(self) -> Any:
        return self.values

    def restore(self, snapshot: Any) -> None:
        self.values = snapshot

    def redeal(self, snapshots: Sequence[Any], share: Share) -> Any:
        return {key: value for values in snapshots for key, value in values.items() if share.owns((key, value))}

    def results(self) -> list[Any]:
        """The newest pair of each key."""
        return list(self.values.items())


class Discard(Bolt):
    """Counts and forgets."""

    def process_batch(self, values: list[Any], out: Out) -> None:
        pass


class Stdout(Bolt):
    """Prints each value on a line of its own."""

    def process_batch(self, values: list[Any], out: Out) -> None:
        sys.stdout.write("".join(f"{value}\n" for value in values))
        sys.stdout.flush()


class Callback(Bolt):
    """Calls a function with each value."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process(self, value: Any, out: Out) -> None:
        self.function(value)


def is_exact(sink: Any) -> bool:
    """Whether a crash changes nothing in what the sink has written or holds.

    >>> is_exact(Latest()), is_exact(JsonLines("out")), is_exact(Stdout())
    (True, True, False)
    """
    return isinstance(sink, TransactionalSink | Collect | Latest | Discard)


def as_sink(step: str, sink: Any) -> Bolt:
    """What the user gave for a sink step, as a bolt."""
    if sink is None:
        return Collect()
    if isinstance(sink, Bolt | type):
        return as_bolt(step, sink)
    if callable(sink):
        return Callback(sink)
    raise TopologyError(f"step {step!r}: wanted a sink or a function of one value, got {type(sink).__name__}")
