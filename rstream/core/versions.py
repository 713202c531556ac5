"""Versions of how an operator's input is shared out: which tasks are active and, where it is keyed, who owns what.

A version is a value that the coordinator makes and every sender applies by a record of its own, one after another, none
skipped. Keys are owned as ranges of slots; each range says since which version its owner has it, so that a task can
tell two times of owning the same range apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rstream.keys import SLOTS


class Span(NamedTuple):
    """The slots low <= slot < high belong to task `owner`, since version `since`."""

    low: int
    high: int
    owner: int
    since: int


@dataclass(frozen=True, slots=True)
class Version:
    """Who takes part, and who owns which slots.

    >>> first = Version.first(2)
    >>> first.spans
    (Span(low=0, high=32768, owner=0, since=0), Span(low=32768, high=65536, owner=1, since=0))
    >>> [span for span in first.shared_by([0, 1, 2], 1).spans if span.since == 1]
    [Span(low=21845, high=32768, owner=2, since=1), Span(low=54613, high=65536, owner=2, since=1)]
    """

    active: tuple[int, ...]
    spans: tuple[Span, ...]
    tasks: int = 0
    """How many tasks there were, active or not: those that learn of this version. Later ones begin after it."""
    use: tuple[float, ...] = ()
    """The measured use of each active task, for the load-balanced grouping."""
    use_step: float = 0.0
    """What one tuple adds to it."""

    @classmethod
    def first(cls, tasks: int, of: int = 0) -> Version:
        """Equal shares in task order; of more tasks than these, the others are inactive."""
        bounds = [task * SLOTS // tasks for task in range(tasks + 1)]
        return cls(
            tuple(range(tasks)), tuple(Span(bounds[i], bounds[i + 1], i, 0) for i in range(tasks)), max(tasks, of)
        )

    def shared_by(self, active: Iterable[int], number: int, of: int = 0) -> Version:
        """The version after this one, with equal shares for these tasks; as few slots as possible change hands."""
        tasks = sorted(active)
        assert tasks, "some task is active"
        room = {task: (i + 1) * SLOTS // len(tasks) - i * SLOTS // len(tasks) for i, task in enumerate(tasks)}
        kept: list[Span] = []
        loose: list[tuple[int, int]] = []
        for span in self.spans:
            stay = min(room.get(span.owner, 0), span.high - span.low)
            if stay:
                room[span.owner] -= stay
                kept.append(span._replace(high=span.low + stay))
            if span.low + stay < span.high:
                loose.append((span.low + stay, span.high))
        taking = iter([task for task in tasks if room[task]])
        task = next(taking, -1)
        for start, high in loose:
            low = start
            while low < high:
                share = min(room[task], high - low)
                kept.append(Span(low, low + share, task, number))
                low += share
                room[task] -= share
                if not room[task]:
                    task = next(taking, -1)
        return Version(tuple(tasks), tuple(sorted(kept)), max(of, self.tasks, tasks[-1] + 1))

    def weighed(self, use: Sequence[float], step: float) -> Version:
        """The same tasks with new measured uses."""
        return replace(self, use=tuple(use), use_step=step)


class SlotMap:
    """Which task owns a slot and since when, for many lookups."""

    __slots__ = ("_entries", "_starts")

    def __init__(self, spans: Sequence[Span]) -> None:
        self._starts = [span.low for span in spans]
        self._entries = [(span.owner, span.since) for span in spans]

    def __getitem__(self, slot: int) -> tuple[int, int]:
        return self._entries[bisect_right(self._starts, slot) - 1]


class Ranges:
    """Disjoint ranges of slots, each with a number.

    >>> ranges = Ranges([(0, 10, 7)])
    >>> ranges.clear(3, 5)
    >>> list(ranges), ranges.get(3), ranges.get(5)
    ([(0, 3, 7), (5, 10, 7)], None, 7)
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[tuple[int, int, int]] = ()) -> None:
        self._items = sorted((low, high, value) for low, high, value in items)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(self._items)

    def __bool__(self) -> bool:
        return bool(self._items)

    def get(self, slot: int) -> int | None:
        """The number of a slot's range."""
        at = bisect_right(self._items, (slot, SLOTS + 1, 0)) - 1
        if at >= 0 and self._items[at][0] <= slot < self._items[at][1]:
            return self._items[at][2]
        return None

    def clear(self, low: int, high: int) -> None:
        """Take slots out of their ranges."""
        kept = []
        for start, end, value in self._items:
            if end <= low or start >= high:
                kept.append((start, end, value))
                continue
            if start < low:
                kept.append((start, low, value))
            if end > high:
                kept.append((high, end, value))
        self._items = sorted(kept)

    def set(self, low: int, high: int, value: int) -> None:
        """Give slots a number; neighbours with the same one become one range."""
        self.clear(low, high)
        merged: list[tuple[int, int, int]] = []
        for item in sorted([*self._items, (low, high, value)]):
            if merged and merged[-1][1] == item[0] and merged[-1][2] == item[2]:
                merged[-1] = (merged[-1][0], item[1], item[2])
            else:
                merged.append(item)
        self._items = merged

    def covers(self, low: int, high: int, value: int) -> bool:
        """Whether all these slots have this number."""
        at = low
        for start, end, number in self._items:
            if start <= at < end:
                if number != value:
                    return False
                at = end
                if at >= high:
                    return True
        return at >= high


def active_of(versions: Mapping[str, Sequence[Version]], operator: str, tasks: int) -> tuple[int, ...]:
    """The tasks that the newest version names; all of them where there is none yet."""
    known = versions.get(operator)
    return known[-1].active if known else tuple(range(tasks))
