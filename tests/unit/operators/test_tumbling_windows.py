"""Tumbling windows: each value in the one window that holds its time."""

from __future__ import annotations

from collections import Counter

from rstream.operators.windows import Tumbling
from tests.windows_kit import at_s, check_exact, events, key_of

EVENTS = events()


def test_counts_by_key_and_window_are_exact_although_workers_are_killed() -> None:
    wanted = Counter((key, at // 60 * 60) for key, at, _ in EVENTS)
    check_exact(
        EVENTS,
        lambda stream: stream.key_by("key", key_of).window(Tumbling(60), time=at_s).count("count", parallelism=3),
        [(key, start, start + 60, n) for (key, start), n in wanted.items()],
    )


def test_a_window_over_the_whole_stream_is_exact_although_workers_are_killed() -> None:
    wanted = Counter((at - 5) // 40 * 40 + 5 for _, at, _ in EVENTS)
    check_exact(
        EVENTS,
        lambda stream: stream.window(Tumbling(40, offset_s=5), time=at_s).count("count"),
        [(start, start + 40, n) for start, n in wanted.items()],
    )


def test_windows_of_windows_lose_nothing() -> None:
    """The counts of a first window are on time for a second one of the same size."""
    wanted = Counter(at // 20 * 20 for _, at, _ in EVENTS)
    check_exact(
        EVENTS,
        lambda stream: (
            stream.key_by("key", key_of)
            .window(Tumbling(20), time=at_s)
            .count("count", parallelism=2)
            .window(Tumbling(20), time=lambda row: row[1])
            .sum("all", of=lambda row: row[3])
        ),
        [(start, start + 20, n) for start, n in wanted.items()],
    )
