"""Statistics of a window, and the values that lie far from the others, against the standard library."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from rstream.errors import TopologyError
from rstream.operators.aggregates import Mean, Outliers, Statistics
from tests.windows_kit import Event, check_aggregate, number


def rounded(found: Any) -> Any:
    """The last digits of a mean depend on the order of arrival."""
    count, mean, deviation, least, greatest = found
    return count, round(mean, 6), round(deviation, 6), least, greatest


def test_the_statistics_of_each_window_are_right_although_workers_are_killed_and_tasks_change() -> None:
    def truth(group: list[Event]) -> Any:
        numbers = [n for _, _, n in group]
        spread = statistics.pstdev(numbers)
        return rounded((len(numbers), statistics.fmean(numbers), spread, min(numbers), max(numbers)))

    check_aggregate(Statistics(number), truth, shown=rounded)


def test_the_outliers_of_each_window_are_right_although_workers_are_killed_and_tasks_change() -> None:
    def truth(group: list[Event]) -> list[Event]:
        numbers = [n for _, _, n in group]
        mean, deviation = statistics.fmean(numbers), statistics.pstdev(numbers)
        return sorted((event for event in group if abs(event[2] - mean) > 1.5 * deviation), key=repr)

    check_aggregate(Outliers(number, threshold=1.5), truth)


def test_without_values_there_are_none() -> None:
    assert Statistics().of([]) == (0, 0.0, 0.0, None, None)
    assert Mean().of([]) is None
    assert Mean().of([1, 2]) == 1.5


def test_a_threshold_of_nothing_is_refused() -> None:
    with pytest.raises(TopologyError, match="threshold above 0"):
        Outliers(threshold=0)
