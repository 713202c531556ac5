"""The only place that reads a clock or makes unseeded randomness; everything else is handed its time.

`Clock` is the seam: the hosts use `SystemClock`, tests and the lab `ManualClock`.
"""

from __future__ import annotations

import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Wall time in seconds since the epoch, and a monotonic reading for intervals."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that stands still until it is moved.

    >>> clock = ManualClock(100.0)
    >>> clock.advance(2.5)
    >>> clock.now()
    102.5
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    def monotonic(self) -> float:
        return self._now_s

    def advance(self, by_s: float) -> None:
        assert by_s >= 0.0, "time does not run backwards"
        self._now_s += by_s


def sleep(seconds: float) -> None:
    """Wait in real time; for hosts and tools, never for `core`."""
    time.sleep(seconds)


def fresh_id() -> str:
    """A short random name, for sessions and sockets."""
    return uuid.uuid4().hex[:12]
