"""The steps behind `stream.window(...)`: bolts that keep open windows in keyed state and emit them by the watermark.

They use only what any bolt has: `ctx.state`, event timers and side outputs. So windows are in snapshots, move with
their keys, and come out the same when a step is replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rstream.api import Bolt, Context, Out
from rstream.event_time import seconds
from rstream.operators.aggregates import Aggregate
from rstream.operators.windows import EarlyByCount, EarlyByTime, Every, Session, Sliding, Trigger

LATE = "late"
"""The side output for values that came after their windows were done with."""
STATE = "windows"


def everything(value: Any) -> None:
    """The key of a window over the whole stream: all values have the same one."""


class _Windows(Bolt, ABC):
    """What all kinds of windows share: keys, results and early triggers."""

    def __init__(self, aggregate: Aggregate, keyed: bool) -> None:
        self.aggregate, self.keyed = aggregate, keyed
        self.early_count = 0
        self.early_s: float | None = None

    def trigger(self, early: Trigger | None) -> None:
        """Emit results before a window's end."""
        if isinstance(early, EarlyByCount):
            self.early_count = early.count
        elif isinstance(early, EarlyByTime):
            self.early_s = early.seconds

    def open(self, ctx: Context) -> None:
        self._ctx, self._state, self._key_of = ctx, ctx.state, ctx.key_of
        self._value = ctx.state.value(STATE)

    def process(self, value: Any, out: Out) -> None:
        self.process_batch([value], out)

    def process_batch(self, values: list[Any], out: Out) -> None:
        key_of, state = self._key_of, self._state
        for value in values:
            state.current = value if key_of is None else key_of(value)
            self.take(value, out)

    @abstractmethod
    def take(self, value: Any, out: Out) -> None:
        """Put one value of the current key into its windows."""

    def emit(self, start: Any, end: Any, so_far: Any, out: Out) -> None:
        """Emit a window of the current key."""
        result = self.aggregate.result(so_far)
        out.emit((self._state.current, start, end, result) if self.keyed else (start, end, result))

    def drop_late(self, value: Any, out: Out) -> None:
        """A value came too late for all of its windows."""
        self._ctx.metrics.count(LATE)
        out.emit_to(LATE, value)

    def keep(self, windows: Any) -> None:
        """The current key's open windows, after a change; none left: forget the key."""
        if windows:
            self._value.set(windows)
        else:
            self._value.clear()


class AlignedWindows(_Windows):
    """Tumbling and sliding windows: for each key {start: [accumulator, values, values at the last early result]}."""

    def __init__(
        self, window: Sliding, time: Callable[[Any], Any], aggregate: Aggregate, keyed: bool, lateness_s: float
    ) -> None:
        super().__init__(aggregate, keyed)
        self.window, self.time, self.lateness_s = window, time, lateness_s

    def take(self, value: Any, out: Out) -> None:
        watermark, size = self._ctx.watermark(), self.window.size_s
        starts = [
            start
            for start in self.window.starts(seconds(self.time(value)))
            if start + size + self.lateness_s > watermark
        ]
        if not starts:
            return self.drop_late(value, out)
        windows = self._value.get() or {}
        for start in starts:
            cell = windows.get(start)
            if cell is None:
                cell = windows[start] = [self.aggregate.create(), 0, 0]
                if start + size > watermark:
                    self._ctx.set_event_timer(start + size)
                if self.lateness_s:
                    self._ctx.set_event_timer(start + size + self.lateness_s)
                if self.early_s is not None:
                    self._ctx.set_timer(self._ctx.now() + self.early_s, repr(start))
            cell[0] = self.aggregate.add(cell[0], value)
            cell[1] += 1
            if start + size <= watermark:
                self.emit(start, start + size, cell[0], out)  # late but allowed: the result once more, corrected
            elif self.early_count and cell[1] % self.early_count == 0:
                self.emit(start, start + size, cell[0], out)
        self._value.set(windows)
        return None

    def on_event_timer(self, at_s: float, name: str, out: Out) -> None:
        windows = self._value.get() or {}
        for start in sorted(windows):
            end = start + self.window.size_s
            if end == at_s:
                self.emit(start, end, windows[start][0], out)
            if end + self.lateness_s <= at_s:
                del windows[start]
        self.keep(windows)

    def on_timer(self, name: str, out: Out) -> None:
        """The early trigger of one window, which goes on until the watermark has reached its end."""
        windows = self._value.get() or {}
        start = next((start for start in windows if repr(start) == name), None)
        if start is None or self.early_s is None or start + self.window.size_s <= self._ctx.watermark():
            return
        cell = windows[start]
        if cell[2] < cell[1]:
            cell[2] = cell[1]
            self.emit(start, start + self.window.size_s, cell[0], out)
            self._value.set(windows)
        self._ctx.set_timer(self._ctx.now() + self.early_s, name)


class SessionWindows(_Windows):
    """Sessions: for each key a list of [start, end, accumulator, values, whether its result was emitted]."""

    def __init__(
        self, window: Session, time: Callable[[Any], Any], aggregate: Aggregate, keyed: bool, lateness_s: float
    ) -> None:
        super().__init__(aggregate, keyed)
        self.gap_s, self.time, self.lateness_s = window.gap_s, time, lateness_s

    def take(self, value: Any, out: Out) -> None:
        at_s, watermark = seconds(self.time(value)), self._ctx.watermark()
        merged: list[Any] = [at_s, at_s + self.gap_s, self.aggregate.add(self.aggregate.create(), value), 1, False]
        rest = []
        is_awaited = False
        for session in self._value.get() or []:
            if session[0] < merged[1] and merged[0] < session[1]:
                is_awaited |= not session[4]
                # The older part comes first, so that aggregates which keep an order keep the order of arrival.
                merged = [
                    min(session[0], merged[0]),
                    max(session[1], merged[1]),
                    self.aggregate.merge(session[2], merged[2]),
                    session[3] + merged[3],
                    False,
                ]
            else:
                rest.append(session)
        if merged[1] + self.lateness_s <= watermark:
            return self.drop_late(value, out)
        if merged[1] <= watermark:
            merged[4] = True
            self.emit(merged[0], merged[1], merged[2], out)  # late but allowed
        elif self.early_count and merged[3] % self.early_count == 0:
            self.emit(merged[0], merged[1], merged[2], out)
        if not is_awaited:
            # One timer at or before a session's end is enough: it is set anew when it finds the session still open.
            self._ctx.set_event_timer(self._next(merged))
        self.keep(sorted([*rest, merged], key=_start))
        return None

    def _next(self, session: list[Any]) -> float:
        """When a session wants to be looked at next."""
        return float(session[1] + self.lateness_s if session[4] else session[1])

    def on_event_timer(self, at_s: float, name: str, out: Out) -> None:
        left = []
        for session in self._value.get() or []:
            if session[1] <= at_s and not session[4]:
                session[4] = True
                self.emit(session[0], session[1], session[2], out)
            if session[1] + self.lateness_s > at_s:
                left.append(session)
                if self._next(session) > at_s:
                    self._ctx.set_event_timer(self._next(session))
        self.keep(left)


def _start(session: list[Any]) -> Any:
    return session[0]


class CountWindows(_Windows):
    """Windows of so many values: for each key [accumulator, values in it, values before it]."""

    def __init__(self, window: Every, aggregate: Aggregate, keyed: bool) -> None:
        super().__init__(aggregate, keyed)
        self.window = window

    def take(self, value: Any, out: Out) -> None:
        so_far, count, before = self._value.get() or [self.aggregate.create(), 0, 0]
        so_far, count = self.aggregate.add(so_far, value), count + 1
        if count == self.window.count:
            self.emit(before, before + count, so_far, out)
            so_far, count, before = self.aggregate.create(), 0, before + count
        elif self.early_count and count % self.early_count == 0:
            self.emit(before, before + count, so_far, out)
        self._value.set([so_far, count, before])

    def on_end(self, out: Out) -> None:
        if self.window.partial:
            for key, (so_far, count, before) in list(self._state.items(STATE)):
                if count:
                    self._state.current = key
                    self.emit(before, before + count, so_far, out)
