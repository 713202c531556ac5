"""Top-N: the greatest values of each window."""

from __future__ import annotations

import pytest

from rstream.errors import TopologyError
from rstream.operators.aggregates import TopN
from tests.windows_kit import Event, check_aggregate, number


def test_the_greatest_of_each_window_are_right_although_workers_are_killed_and_tasks_change() -> None:
    def truth(group: list[Event]) -> list[Event]:
        return sorted(sorted(group, key=repr), key=number, reverse=True)[:3]

    check_aggregate(TopN(3, by=number), truth)


def test_a_top_of_nothing_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least 1"):
        TopN(0)
