"""Aggregates in general: several at once, and two parts that are merged."""

from __future__ import annotations

from typing import Any

from rstream.operators import aggregates
from tests.windows_kit import Event, check_aggregate, events, key_of, number

EVENTS = events(count=200, seed=5)


def test_count_sum_least_and_greatest_at_once_are_right_although_workers_are_killed_and_tasks_change() -> None:
    def truth(group: list[Event]) -> tuple[Any, ...]:
        numbers = [n for _, _, n in group]
        return (len(numbers), sum(numbers), min(numbers), max(numbers))

    several = aggregates.Several(
        aggregates.Count(), aggregates.Sum(number), aggregates.Least(number), aggregates.Greatest(number)
    )
    check_aggregate(several, truth)


def test_merging_two_parts_gives_what_one_whole_gives() -> None:
    every: list[aggregates.Aggregate] = [
        aggregates.Count(),
        aggregates.Sum(number),
        aggregates.Least(number),
        aggregates.Greatest(number),
        aggregates.Reduce(max),
        aggregates.Distinct(key_of),
        aggregates.TopN(4, by=number),
        aggregates.Listed(),
        aggregates.Several(aggregates.Count(), aggregates.Sum(number)),
    ]
    for aggregate in every:
        left, right = aggregate.create(), aggregate.create()
        for event in EVENTS[:70]:
            left = aggregate.add(left, event)
        for event in EVENTS[70:]:
            right = aggregate.add(right, event)
        assert aggregate.result(aggregate.merge(left, right)) == aggregate.of(EVENTS), type(aggregate).__name__
