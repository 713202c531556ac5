"""What is not one result for each window is exact too, although workers are killed and tasks change in number: late
values, results that come early, inputs that bring nothing, and windows over a whole stream.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from rstream import Bolt, Topology
from rstream.api import Context, Out
from rstream.event_time import EventTime
from rstream.operators.aggregates import Aggregate, Count, Several, Sum
from rstream.operators.sources import Rate
from rstream.operators.windows import EarlyByCount, EarlyByTime, Every, Session, Sliding, Tumbling
from rstream.topology import Stream
from tests.windows_kit import Event, Results, at_s, check_always, check_exact, events, key_of, number, topology

LATENESS_S = 3


def in_great_disorder(count: int, seed: int) -> list[Event]:
    """Events of which no two are equal, each up to 25 seconds late."""
    chance = random.Random(seed)
    made = [(f"k{chance.randrange(5)}", chance.randrange(300), n) for n in range(count)]
    return sorted(made, key=lambda event: at_s(event) + chance.random() * 25)


class Members(Aggregate):
    """The very values of a window."""

    def create(self) -> list[Any]:
        return []

    def add(self, so_far: list[Any], value: Any) -> list[Any]:
        so_far.append(value)
        return so_far

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return left + right


def final(results: Results) -> list[frozenset[Event]]:
    """The values of the rows that no other one has corrected: that of the same window, or of one grown over it."""
    by_key: dict[Any, list[tuple[Any, Any, frozenset[Event]]]] = defaultdict(list)
    for key, start, end, members in results["out"]:
        assert len(members) == len(set(members)), "a value is twice in a window"
        by_key[key].append((start, end, frozenset(members)))
    found = {}
    for key, rows in by_key.items():
        for start, end, values in rows:
            if not any(first <= start and end <= last and values < more for first, last, more in rows):
                assert (key, start, end) not in found, "a window was begun anew"
                found[key, start, end] = values
    return list(found.values())


@pytest.mark.parametrize(
    ("window", "windows"),
    [(Tumbling(10), 1), (Sliding(10, 5), 2), (Session(4), 1)],
    ids=["tumbling", "sliding", "session"],
)
def test_each_value_is_in_its_windows_or_late(window: Any, windows: int) -> None:
    """Which values are late depends on how fast a watermark travels; that each is one or the other does not."""
    items = in_great_disorder(120, seed=21)
    corrected = late = 0

    def build() -> Topology:
        made = Topology("late")
        # One value at a time, so that there is a watermark between any two.
        stream = made.source("events", items, max_pending=1, event_time=EventTime(at_s, every_s=0.0))
        windowed = stream.key_by("key", key_of).window(window, time=at_s, lateness_s=LATENESS_S)
        step = windowed.aggregate("members", Members(), parallelism=2)
        step.sink("out")
        step.output("late").sink("late")
        return made

    def seen(results: Results) -> list[Event]:
        nonlocal corrected, late
        rows = final(results)
        corrected += len(results["out"]) - len(rows)
        late += len(results.get("late", []))
        latest = -1
        for item in items:
            if item in results.get("late", []):
                assert at_s(item) + LATENESS_S < latest, f"{item} was not late"
            latest = max(latest, at_s(item))
        times = Counter(value for values in rows for value in values)
        assert max(times.values()) <= windows, "a value is in too many windows"
        return [*times, *results.get("late", [])]

    check_always(build, items, kills=2, seen=seen)
    assert late, "no value was late: choose other events"
    assert corrected, "no window was corrected: choose other events"


def test_results_that_come_early_by_count_come_once_each() -> None:
    items = events(count=160, seed=22)
    totals = Counter((key, at // 60 * 60) for key, at, _ in items)
    wanted = [
        (key, start, start + 60, n) for (key, start), total in totals.items() for n in (*range(3, total + 1, 3), total)
    ]
    check_exact(
        items,
        lambda stream: (
            stream.key_by("key", key_of)
            .window(Tumbling(60), time=at_s, early=EarlyByCount(3))
            .count("count", parallelism=2)
        ),
        wanted,
        kills=2,
    )


def test_results_that_come_early_by_the_clock_end_with_the_right_one() -> None:
    items = events(count=160, keys=3, seed=23)
    wanted = Counter((key, at // 100 * 100) for key, at, _ in items)
    early = 0

    def step(stream: Stream) -> Stream:
        windowed = stream.key_by("key", key_of).window(Tumbling(100), time=at_s, early=EarlyByTime(0.002))
        return windowed.count("count", parallelism=2)

    def build() -> Topology:
        made = Topology("early")
        stamp = EventTime(at_s, delay_s=7, every_s=0.0)
        step(made.source("events", items, max_pending=4, event_time=stamp)).sink("out")
        return made

    def seen(results: Results) -> list[Any]:
        nonlocal early
        counts: dict[Any, list[int]] = defaultdict(list)
        for key, start, _, n in results["out"]:
            counts[key, start].append(n)
        for window, found in counts.items():
            *before, last = sorted(found)
            early += len(before)
            assert len(set(before)) == len(before), f"a result of {window} came twice: {found}"
            counts[window] = [last]
        return [(*window, found) for window, [found] in counts.items()]

    check_always(build, [(*window, n) for window, n in wanted.items()], kills=2, seen=seen)
    assert early > len(wanted), "hardly a result came early: choose another interval"


class Noted(Bolt):
    """(value, when it came by the clock)."""

    def open(self, ctx: Context) -> None:
        self._ctx = ctx

    def process(self, value: Any, out: Out) -> None:
        out.emit((value, self._ctx.now()))


def test_an_input_that_brings_nothing_holds_no_window_up_and_loses_none() -> None:
    """One input brings a value after four seconds; until then the windows of the other one are told without it."""
    items = sorted(events(count=200, seed=24), key=at_s)
    last = ("k0", 100_000, 1)
    wanted = Counter((key, at // 60 * 60) for key, at, _ in [*items, last])

    def build() -> Topology:
        made = Topology("idle")
        stamp = EventTime(at_s, idle_s=0.02, every_s=0.0)
        busy = made.source("busy", Rate(lambda n: items[n], per_s=100, limit=len(items)), event_time=stamp)
        quiet = made.source("quiet", Rate(lambda n: last, per_s=0.25, limit=1), event_time=stamp)
        merged = busy.merge("both", quiet).key_by("key", key_of)
        merged.window(Tumbling(60), time=at_s).count("count", parallelism=2).process("note", Noted).sink("out")
        return made

    def seen(results: Results) -> list[Any]:
        told: dict[Any, float] = dict(results["out"])
        assert len(told) == len(results["out"])
        end_s = max(told.values())
        late = [row for row, when_s in told.items() if when_s > end_s - 1.0 and row[2] <= at_s(items[-1])]
        assert not late, f"{len(late)} windows of {len(wanted)} were held up"
        return list(told)

    check_always(build, [(key, start, start + 60, n) for (key, start), n in wanted.items()], kills=6, seen=seen)


@pytest.mark.parametrize(
    ("window", "starts"),
    [
        (Sliding(60, 30), lambda at: [at // 30 * 30 - 30, at // 30 * 30]),
        (Tumbling(50, offset_s=5), lambda at: [(at - 5) // 50 * 50 + 5]),
    ],
    ids=["sliding", "tumbling"],
)
def test_windows_over_the_whole_stream_are_exact(window: Sliding, starts: Callable[[int], list[int]]) -> None:
    items = events(count=120, seed=25)
    wanted = Counter(start for _, at, _ in items for start in starts(at))
    size = int(window.size_s)
    check_exact(
        items,
        lambda stream: stream.window(window, time=at_s).count("count"),
        [(start, start + size, n) for start, n in wanted.items()],
        kills=2,
    )


def test_sessions_over_the_whole_stream_are_exact() -> None:
    items = events(count=90, seed=26)
    times = sorted(at for _, at, _ in items)
    ends = [n for n, at in enumerate(times) if n + 1 == len(times) or times[n + 1] - at >= 4]
    wanted = [
        (times[first], times[last] + 4, last - first + 1)
        for first, last in zip([0, *(end + 1 for end in ends)], ends, strict=False)
    ]
    assert len(wanted) > 10
    check_exact(items, lambda stream: stream.window(Session(4), time=at_s).count("count"), wanted, kills=2)


def test_counted_windows_over_the_whole_stream_hold_every_value_once() -> None:
    """Which values are together depends on the order of arrival; how many there are, and their sum, does not."""
    items = events(count=120, seed=27)

    def build() -> Topology:
        both = Several(Count(), Sum(number))
        return topology(items, lambda stream: stream.window(Every(9, partial=True)).aggregate("both", both))

    def seen(results: Results) -> list[Any]:
        rows = results["out"]
        return [sum(total for _, _, (_, total) in rows), *((start, end, n) for start, end, (n, _) in rows)]

    wanted = [(start, min(start + 9, 120), min(9, 120 - start)) for start in range(0, 120, 9)]
    check_always(build, [sum(map(number, items)), *wanted], kills=2, seen=seen)
