"""Session windows: bursts of values with a gap between them; a value in the gap makes two bursts one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from rstream.operators.windows import Session
from rstream.testing import run
from tests.windows_kit import at_s, check_exact, events, key_of, topology

EVENTS = events(count=150, keys=6, span_s=600, seed=3)


def sessions(gap_s: int) -> list[tuple[Any, ...]]:
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, at, _ in EVENTS:
        by_key[key].append(at)
    found = []
    for key, times in by_key.items():
        times.sort()
        first, last, count = times[0], times[0], 0
        for at in times:
            if at - last >= gap_s:
                found.append((key, first, last + gap_s, count))
                first, count = at, 0
            last, count = at, count + 1
        found.append((key, first, last + gap_s, count))
    return found


def test_sessions_by_key_are_exact_although_workers_are_killed() -> None:
    assert len(sessions(15)) > 40
    check_exact(
        EVENTS,
        lambda stream: stream.key_by("key", key_of).window(Session(15), time=at_s).count("count", parallelism=2),
        sessions(15),
    )


def test_a_value_between_two_sessions_merges_them() -> None:
    items = [("a", 0, 1), ("a", 18, 2), ("a", 9, 3), ("a", 60, 4)]
    built = topology(items, lambda stream: stream.window(Session(10), time=at_s).count("count"), delay_s=30)
    assert run(built)["out"] == [(0, 28, 3), (60, 70, 1)]
