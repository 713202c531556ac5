"""Sliding windows: each value in every window that holds its time."""

from __future__ import annotations

from collections import defaultdict

import pytest

from rstream.errors import TopologyError
from rstream.operators.windows import Sliding
from tests.windows_kit import at_s, check_exact, events, key_of, number

EVENTS = events(seed=2)


def test_sums_by_key_and_window_are_exact_although_workers_are_killed() -> None:
    wanted: dict[tuple[str, int], int] = defaultdict(int)
    for start in range(-60, 360, 20):
        for key, at, n in EVENTS:
            if start <= at < start + 60:
                wanted[key, start] += n
    check_exact(
        EVENTS,
        lambda stream: (
            stream.key_by("key", key_of).window(Sliding(60, 20), time=at_s).sum("sum", number, parallelism=2)
        ),
        [(key, start, start + 60, total) for (key, start), total in wanted.items()],
    )


@pytest.mark.parametrize(("size", "step"), [(0, 1), (-5, 1), (10, 0), (10, 11)])
def test_a_window_that_cannot_be_is_refused(size: float, step: float) -> None:
    with pytest.raises(TopologyError, match="window"):
        Sliding(size, step)
