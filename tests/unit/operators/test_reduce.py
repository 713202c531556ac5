"""Reduce: a function folds the values of each window."""

from __future__ import annotations

from rstream.operators.aggregates import Reduce
from tests.windows_kit import check_aggregate


def test_the_values_of_each_window_are_folded_although_workers_are_killed_and_tasks_change() -> None:
    check_aggregate(Reduce(max), max)


def test_nothing_folds_to_nothing() -> None:
    assert Reduce(max).of([]) is None
