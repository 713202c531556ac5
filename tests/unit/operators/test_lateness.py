"""Late values: allowed for a while, then on a side output and counted; and results before a window's end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rstream import Topology
from rstream.clock import ManualClock
from rstream.event_time import EventTime
from rstream.operators.sources import Rate
from rstream.operators.windows import EarlyByCount, EarlyByTime, Session, Sliding, Tumbling
from rstream.runtime.embedded import Embedded
from rstream.testing import run
from rstream.topology import Stream

# A source with max_pending=1 reads one value at a time, so that a watermark goes between any two.


def late(items: list[int], window: Any, **options: Any) -> dict[str, list[Any]]:
    topology = Topology("late")
    stream = topology.source("times", items, max_pending=1, event_time=EventTime(int, every_s=0.0))
    counted: Stream = stream.window(window, time=int, **options).count("count")
    counted.sink("out")
    counted.output("late").sink("late")
    return run(topology)


def test_a_value_after_its_window_was_emitted_goes_to_the_side_output() -> None:
    came = late([5, 12, 7, 13, 25], Tumbling(10))
    assert came == {"out": [(0, 10, 1), (10, 20, 2), (20, 30, 1)], "late": [7]}


def test_a_late_value_that_is_allowed_corrects_its_window() -> None:
    came = late([5, 12, 7, 21, 8, 25], Tumbling(10), lateness_s=10)
    assert came == {"out": [(0, 10, 1), (0, 10, 2), (10, 20, 1), (20, 30, 2)], "late": [8]}


def test_a_late_value_that_is_allowed_makes_a_window_that_was_empty() -> None:
    assert late([15, 3], Tumbling(10), lateness_s=10)["out"] == [(0, 10, 1), (10, 20, 1)]


def test_a_late_value_that_is_allowed_corrects_its_session() -> None:
    came = late([0, 40, 5, 60, 12], Session(10), lateness_s=35)
    assert came["out"] == [(0, 10, 1), (0, 15, 2), (40, 50, 1), (60, 70, 1)]
    assert came["late"] == [12]


def test_late_values_are_counted_and_the_count_survives_a_snapshot() -> None:
    topology = Topology("late")
    stream = topology.source("times", [5, 12, 7, 8, 25], max_pending=1, event_time=EventTime(int, every_s=0.0))
    stream.window(Tumbling(10), time=int).count("count").sink("out")
    host = Embedded(topology.build(), clock=ManualClock())
    host.run()
    [task] = [task for machine in host.machines.values() for task in machine.bolts if task.id.operator == "count"]
    assert task.ctx.metrics.values["late"] == 2
    content = task.snapshot()
    task.ctx.metrics.values.clear()
    task.restore(content, [])
    assert task.ctx.metrics.values["late"] == 2


def test_results_come_early_by_count() -> None:
    assert late([1, 2, 3, 4, 5, 11], Tumbling(10), early=EarlyByCount(2))["out"] == [
        (0, 10, 2),
        (0, 10, 4),
        (0, 10, 5),
        (10, 20, 1),
    ]


def test_results_come_early_by_the_clock_while_a_window_is_open() -> None:
    topology = Topology("early")
    stream = topology.source("n", Rate(int, per_s=10, limit=50), event_time=EventTime(int, every_s=0.0))
    stream.window(Tumbling(100), time=int, early=EarlyByTime(1.0)).count("count").sink("out")
    counts = [count for _, _, count in run(topology, clock=ManualClock(1000.0))["out"]]
    assert counts == sorted(counts)
    assert 4 <= len(counts) <= 7
    assert counts[-1] == 50


def test_an_early_trigger_by_the_clock_ends_with_its_window() -> None:
    topology = Topology("early")
    stream = topology.source("n", Rate(int, per_s=7, limit=400), event_time=EventTime(int, every_s=0.0))
    stream.window(Tumbling(10), time=int, early=EarlyByTime(0.37)).count("count").sink("out")
    host = Embedded(topology.build(), clock=ManualClock(1000.0))
    host.run()
    [task] = [task for machine in host.machines.values() for task in machine.bolts if task.id.operator == "count"]
    assert len(task.ctx.timers) <= 2, "forty windows leave no forty timers"
    assert [count for _, _, count in host.results("out")].count(10) >= 40


def by_hand(items: list[int], starts: Callable[[int], list[int]], size: int, lateness: int) -> dict[str, list[Any]]:
    """What aligned windows give when the watermark is the greatest value so far, worked out value by value."""
    counts: Counter[int] = Counter()
    out, too_late, watermark = [], [], float("-inf")
    for value in items:
        wanted = [start for start in starts(value) if start + size + lateness > watermark]
        if not wanted:
            too_late.append(value)
        for start in wanted:
            counts[start] += 1
            if start + size <= watermark:
                out.append((start, start + size, counts[start]))
        out += [(start, start + size, n) for start, n in counts.items() if watermark < start + size <= value]
        watermark = max(watermark, value)
    out += [(start, start + size, n) for start, n in counts.items() if start + size > watermark]
    return {"out": sorted(out), "late": too_late}


def sessions_by_hand(items: list[int], gap: int, lateness: int) -> dict[str, list[Any]]:
    """The same for sessions, as groups of values that are kept until they are over."""
    groups: list[list[int]] = []
    out, too_late, watermark = [], [], float("-inf")
    for value in items:
        near = [group for group in groups if min(group) < value + gap and value < max(group) + gap]
        merged = [value, *(each for group in near for each in group)]
        if max(merged) + gap + lateness <= watermark:
            too_late.append(value)
            continue
        groups = [group for group in groups if group not in near] + [merged]
        if max(merged) + gap <= watermark:
            out.append((min(merged), max(merged) + gap, len(merged)))
        ended = [group for group in groups if watermark < max(group) + gap <= value]
        out += [(min(group), max(group) + gap, len(group)) for group in ended]
        watermark = max(watermark, value)
        groups = [group for group in groups if max(group) + gap + lateness > watermark]
    out += [(min(group), max(group) + gap, len(group)) for group in groups if max(group) + gap > watermark]
    return {"out": sorted(out), "late": too_late}


@pytest.mark.parametrize("seed", range(12))
def test_any_disorder_gives_what_a_computation_by_hand_gives(seed: int) -> None:
    chance = random.Random(seed)
    items = [chance.randrange(80) + n // 2 for n in range(40)]
    lateness = chance.choice([0, 5, 20])

    def came(window: Any) -> dict[str, list[Any]]:
        results = late(items, window, lateness_s=lateness)
        return {"out": sorted(results["out"]), "late": results["late"]}

    assert came(Tumbling(10)) == by_hand(items, lambda value: [value // 10 * 10], 10, lateness)

    def overlapping(value: int) -> list[int]:
        return [start for start in range(-20, 120, 5) if start <= value < start + 20]

    assert came(Sliding(20, 5)) == by_hand(items, overlapping, 20, lateness)
    assert came(Session(4)) == sessions_by_hand(items, 4, lateness)
