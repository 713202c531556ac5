"""Watermarks of a task: what its inputs have promised, and what it makes itself of the tuples that it emits.

All of it is task state: changed only by recorded steps, part of every snapshot. So a replay sends the same watermarks
at the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rstream.event_time import BEFORE_ALL, EventTime, seconds

Lane = tuple[int, int]
"""What has an order of its own: an in-channel as (edge, sender), or a split of a source as (split, part)."""


class InputTime:
    """The watermark of a task: the least over its in-channels, those that ended or are idle left out.

    Where owners of keys change, a channel has a mark: what its sender says behind the mark is true of tuples that the
    new owner gets. So it does not count until this task has all that the change gives it and nothing that it takes
    away (`passed`). By then an old owner has come exactly as far as the watermarks before the marks, no further than
    any other task of the step can have come; so no result of a key that moves is late for anyone.

    >>> time = InputTime()
    >>> time.took((0, 0), 5.0); time.took((0, 1), 3.0)
    >>> time.advance([(0, 0), (0, 1)])
    3.0
    >>> time.rests((0, 1)); time.advance([(0, 0), (0, 1)])
    5.0
    >>> time.marked((0, 0), version=1); time.took((0, 0), 9.0); time.advance([(0, 0), (0, 1)])
    >>> time.passed(1); time.advance([(0, 0), (0, 1)])
    9.0
    """

    def __init__(self) -> None:
        self.at_s = BEFORE_ALL
        self.lanes: dict[Lane, float] = {}
        self.idle: set[Lane] = set()
        self.told_idle = False
        """The receivers were told not to wait for this task."""
        self.ahead: dict[Lane, list[list[Any]]] = {}
        """What does not count yet, for each lane: [version of a mark, last watermark behind it, idle] in order."""

    def took(self, lane: Lane, at_s: float) -> None:
        """A watermark came."""
        if lane in self.ahead:
            self.ahead[lane][-1][1:] = at_s, False
        else:
            self.lanes[lane] = at_s
            self.idle.discard(lane)

    def rests(self, lane: Lane) -> None:
        """A channel is idle."""
        if lane in self.ahead:
            self.ahead[lane][-1][2] = True
        else:
            self.idle.add(lane)

    def marked(self, lane: Lane, version: int) -> None:
        """What comes next in a channel is sent by a newer version of who owns which keys."""
        self.ahead.setdefault(lane, []).append([version, None, None])

    def passed(self, version: float) -> None:
        """Up to this version this task has all keys that it was given, and none that it had to give away."""
        for lane, parts in list(self.ahead.items()):
            due = [part for part in parts if part[0] <= version]
            self.ahead[lane] = parts[len(due) :]
            if not self.ahead[lane]:
                del self.ahead[lane]
            for _, at_s, idle in due:
                if at_s is not None:
                    self.lanes[lane] = at_s
                if idle is not None:
                    (self.idle.add if idle else self.idle.discard)(lane)

    def advance(self, open: Iterable[Lane]) -> float | None:
        """The new watermark, given the channels that have not ended; None where it stays as it was."""
        at_s = min((self.lanes.get(lane, BEFORE_ALL) for lane in open if lane not in self.idle), default=BEFORE_ALL)
        if at_s <= self.at_s:
            return None
        self.at_s = at_s
        return at_s

    def state(self) -> Any:
        """What a snapshot holds."""
        lanes = [[*lane, at_s] for lane, at_s in self.lanes.items()]
        ahead = [[*lane, parts] for lane, parts in self.ahead.items()]
        return [self.at_s, lanes, [list(lane) for lane in sorted(self.idle)], self.told_idle, ahead]

    def restore(self, state: Any) -> None:
        """Take back what `state` gave."""
        self.at_s, lanes, idle, self.told_idle, ahead = state
        self.lanes = {(a, b): at_s for a, b, at_s in lanes}
        self.idle = {(a, b) for a, b in idle}
        self.ahead = {(a, b): [list(part) for part in parts] for a, b, parts in ahead}


class Stamps:
    """The watermarks that a step with an `EventTime` makes: per lane the latest time seen, the least of these counts.

    >>> stamps = Stamps(EventTime(lambda value: value, delay_s=2, every_s=0), [(0, 0)], 100.0)
    >>> stamps.saw((0, 0), [7, 9, 8], 100.0)
    >>> stamps.due(100.0), stamps.due(100.0)
    (7, None)
    """

    def __init__(self, spec: EventTime, lanes: Iterable[Lane], now_s: float) -> None:
        self.spec = spec
        self.latest: dict[Lane, float] = dict.fromkeys(lanes, BEFORE_ALL)
        self.seen_s: dict[Lane, float] = dict.fromkeys(self.latest, now_s)
        self.idle: set[Lane] = set()
        self.sent = BEFORE_ALL
        self.sent_s = BEFORE_ALL
        self.told_idle = False

    def saw(self, lane: Lane, values: Sequence[Any], now_s: float) -> None:
        """Values are being emitted that came of one lane."""
        time = self.spec.time
        latest = max(seconds(time(value)) for value in values)
        if latest > self.latest.get(lane, BEFORE_ALL):
            self.latest[lane] = latest
        else:
            self.latest.setdefault(lane, BEFORE_ALL)
        self.seen_s[lane] = now_s
        self.idle.discard(lane)

    def opens(self, lane: Lane, now_s: float) -> None:
        """There is a new lane; a savepoint may have brought what it had come to."""
        self.latest.setdefault(lane, BEFORE_ALL)
        self.seen_s[lane] = now_s

    def ended(self, lane: Lane) -> None:
        """A lane has no more values: it is not waited for."""
        self.latest.pop(lane, None)
        self.seen_s.pop(lane, None)
        self.idle.discard(lane)

    def rests(self, lane: Lane) -> None:
        """A lane is idle: it is not waited for until it brings something."""
        self.idle.add(lane)

    @property
    def all_idle(self) -> bool:
        """Lanes are left, and all of them are idle."""
        return bool(self.latest) and len(self.idle) == len(self.latest)

    def reached(self) -> float:
        """The watermark that could be sent."""
        waited_for = [latest for lane, latest in self.latest.items() if lane not in self.idle]
        return min(waited_for) - self.spec.delay_s if waited_for else BEFORE_ALL

    def is_due(self, now_s: float) -> bool:
        """A watermark can be sent now."""
        return now_s >= self.sent_s + self.spec.every_s and self.reached() > self.sent

    def due(self, now_s: float) -> float | None:
        """The watermark to send now, or None."""
        if not self.is_due(now_s):
            return None
        self.sent, self.sent_s = self.reached(), now_s
        return self.sent

    def overdue(self, now_s: float) -> list[Lane]:
        """Lanes that have brought nothing for too long, and do not count as idle yet."""
        if self.spec.idle_s is None:
            return []
        limit_s = now_s - self.spec.idle_s
        return [lane for lane, seen_s in self.seen_s.items() if seen_s <= limit_s and lane not in self.idle]

    def next_s(self) -> float | None:
        """When to look again although nothing arrives."""
        wakes = [self.sent_s + self.spec.every_s] if self.reached() > self.sent else []
        if self.spec.idle_s is not None:
            wakes += [seen_s + self.spec.idle_s for lane, seen_s in self.seen_s.items() if lane not in self.idle]
        return min(wakes, default=None)

    def state(self) -> Any:
        """What a snapshot holds."""
        lanes = [[*lane, at_s, lane in self.idle] for lane, at_s in self.latest.items()]
        return [self.sent, self.sent_s, self.told_idle, lanes]

    def restore(self, state: Any, now_s: float) -> None:
        """Take back what `state` gave. Silence counts from now: the time that a recovery took is nobody's idleness."""
        self.sent, self.sent_s, self.told_idle, lanes = state
        self.latest = {(a, b): at_s for a, b, at_s, _ in lanes}
        self.seen_s = dict.fromkeys(self.latest, now_s)
        self.idle = {(a, b) for a, b, _, idle in lanes if idle}
