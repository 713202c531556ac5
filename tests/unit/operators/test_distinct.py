"""Distinct: the first value of each key, and no other; and how many different ones a window has."""

from __future__ import annotations

from rstream.operators.aggregates import Distinct
from tests.windows_kit import check_aggregate, check_exact, events, key_of

EVENTS = events(keys=40, seed=6)


def test_each_key_comes_once_although_workers_are_killed_and_tasks_change() -> None:
    check_exact(
        EVENTS,
        lambda stream: stream.key_by("key", key_of).distinct("first", parallelism=3).map("key of", key_of),
        sorted({key for key, _, _ in EVENTS}),
    )


def test_the_different_ones_of_each_window_are_counted_although_workers_are_killed_and_tasks_change() -> None:
    check_aggregate(Distinct(lambda event: event[2] % 10), lambda group: len({n % 10 for _, _, n in group}))
