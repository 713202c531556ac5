"""Count windows: so many values in order of arrival, whatever their times."""

from __future__ import annotations

from collections import Counter

from rstream.operators.windows import EarlyByCount, Every
from rstream.testing import run
from tests.windows_kit import check_exact, events, key_of, topology

EVENTS = events(seed=4)


def test_every_so_many_values_of_a_key_make_a_window_although_workers_are_killed() -> None:
    totals = Counter(key for key, _, _ in EVENTS)
    wanted = [
        (key, n, min(n + 7, total), min(7, total - n)) for key, total in totals.items() for n in range(0, total, 7)
    ]
    check_exact(
        EVENTS,
        lambda stream: stream.key_by("key", key_of).window(Every(7, partial=True)).count("count", parallelism=2),
        wanted,
    )


def test_the_rest_is_left_out_unless_asked_for() -> None:
    built = topology([("a", 1, n) for n in range(8)], lambda stream: stream.window(Every(3)).count("count"))
    assert run(built)["out"] == [(0, 3, 3), (3, 6, 3)]


def test_an_early_trigger_emits_results_on_the_way() -> None:
    items = [("a", 1, n) for n in range(8)]
    built = topology(items, lambda stream: stream.window(Every(5), early=EarlyByCount(2)).count("count"))
    assert run(built)["out"] == [(0, 2, 2), (0, 4, 4), (0, 5, 5), (5, 7, 2)]
