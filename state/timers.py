"""Timers of one task: each belongs to a key, has a name and a time, and fires once.

They are kept as keyed state under a name of their own, so snapshots, recovery and ranges that move have them without
any further rule; the heap beside it only finds the next one. Timers fire by time, then name, then key: an order that
does not depend on when they were set, so that a replay fires them as the first run did.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any, Final, NamedTuple

from rstream.state.keyed import SLOTS, KeyedState

TIMERS: Final = "$timers"
EVENT_TIMERS: Final = "$event_timers"
"""The names of the keyed states that hold those by the clock and those by event time."""


class Timer(NamedTuple):
    """A timer that is due, or was."""

    at_s: float
    name: str
    key: Any


class Timers:
    """The timers of one task.

    >>> timers = Timers(KeyedState(slot_of=len))
    >>> timers.set("x", 20.0, "close")
    >>> timers.set("y", 10.0, "close")
    >>> timers.next_s()
    10.0
    >>> timers.due(30.0)
    [Timer(at_s=10.0, name='close', key='y'), Timer(at_s=20.0, name='close', key='x')]
    >>> timers.due(30.0)
    []
    """

    def __init__(self, state: KeyedState, name: str = TIMERS) -> None:
        self._state = state
        self._table = state.map(name)
        self._pushes = count()
        # (at_s, name, repr of key, push number, key): the number stands before the key because keys may not compare.
        self._heap: list[tuple[float, str, str, int, Any]] = []
        self.adopt()

    def set(self, key: Any, at_s: float, name: str = "") -> None:
        """Fire `name` for `key` at `at_s`; setting the same timer twice is setting it once."""
        if (at_s, name) not in self._table.cell(key):
            self._table.put(key, (at_s, name), True)
            self._push(at_s, name, key)

    def cancel(self, key: Any, at_s: float, name: str = "") -> None:
        """Take a timer back, if it is set."""
        self._table.remove(key, (at_s, name))

    def next_s(self) -> float | None:
        """When the next timer fires, or None."""
        self._skip_cancelled()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_s: float) -> Timer | None:
        """Remove and return the first timer with a time up to `now_s`, or None."""
        self._skip_cancelled()
        if not self._heap or self._heap[0][0] > now_s:
            return None
        at_s, name, _, _, key = heapq.heappop(self._heap)
        self._table.remove(key, (at_s, name))
        return Timer(at_s, name, key)

    def due(self, now_s: float) -> list[Timer]:
        """Remove and return all timers with a time up to `now_s`, in firing order."""
        fired = []
        while (timer := self.pop_due(now_s)) is not None:
            fired.append(timer)
        return fired

    def adopt(self, lo: int = 0, hi: int = SLOTS) -> None:
        """Find the timers that `restore` or `import_range` brought for slots lo <= slot < hi."""
        for key in self._table.live_keys(lo, hi):
            for at_s, name in self._table.cell(key):
                self._push(at_s, name, key)

    def __len__(self) -> int:
        return sum(len(self._table.cell(key)) for key in self._table.live_keys())

    def _push(self, at_s: float, name: str, key: Any) -> None:
        heapq.heappush(self._heap, (at_s, name, repr(key), next(self._pushes), key))

    def _skip_cancelled(self) -> None:
        heap = self._heap
        while heap and (heap[0][0], heap[0][1]) not in self._table.cell(heap[0][4]):
            heapq.heappop(heap)
