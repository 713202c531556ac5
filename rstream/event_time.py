"""Event time: when something happened, as its tuple says, in seconds; and how a step tells the others how far it is.

A watermark of T says that tuples before T have all come, except late ones. Steps with an `EventTime` make watermarks
from the tuples that they emit; every other step passes on the least of its inputs' watermarks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rstream.errors import TopologyError

BEFORE_ALL = float("-inf")
AFTER_ALL = float("inf")


@dataclass(frozen=True, slots=True)
class EventTime:
    """How a step makes watermarks: they trail the latest `time` of each of its inputs (or splits) by `delay_s`.

    A watermark is sent at most every `every_s` seconds. An input that brings nothing for `idle_s` is not waited for
    until it does; without `idle_s` it is waited for, so choose one that outlasts a recovery. `time` gives seconds
    since the epoch or a `datetime`.

    >>> EventTime(lambda row: row["at"], delay_s=5).delay_s
    5
    """

    time: Callable[[Any], Any]
    delay_s: float = 0.0
    idle_s: float | None = None
    every_s: float = 0.2

    def __post_init__(self) -> None:
        if not callable(self.time):
            raise TopologyError(f"event time: time must be a function of a value, got {self.time!r}")
        if not self.delay_s >= 0:
            raise TopologyError(f"event time: delay_s must be at least 0, got {self.delay_s!r}")
        if self.idle_s is not None and not self.idle_s > 0:
            raise TopologyError(f"event time: idle_s must be above 0, got {self.idle_s!r}")
        if not self.every_s >= 0:
            raise TopologyError(f"event time: every_s must be at least 0, got {self.every_s!r}")


def seconds(time: Any) -> float:
    """A time as seconds since the epoch; a `datetime` without a zone is taken as UTC.

    >>> seconds(dt.datetime(1970, 1, 1, 0, 1)), seconds(60)
    (60.0, 60)
    """
    if isinstance(time, dt.datetime):
        return (time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)).timestamp()
    return time  # type: ignore[no-any-return]
