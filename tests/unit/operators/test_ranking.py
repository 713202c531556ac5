"""A running ranking: the greatest counts of all, whatever was forgotten on the way."""

from __future__ import annotations

from collections import Counter

import pytest

from rstream.errors import TopologyError
from rstream.groupings import Global
from rstream.operators.ranking import Ranking
from tests.windows_kit import check_exact, events

EVENTS = [event[2] % 90 for event in events(count=700, seed=9)]


def test_the_last_ranking_is_right_although_workers_are_killed() -> None:
    best = sorted(Counter(EVENTS).items(), key=lambda pair: (-pair[1], pair[0]))[:4]
    check_exact(
        [(str(n), 0, n) for n in EVENTS],
        lambda stream: (
            stream.map("n", lambda event: event[2])
            .key_by("same")
            .count("count", parallelism=3)
            .grouped(Global())
            .process("rank", Ranking(4))
        ),
        [(place, *pair) for place, pair in enumerate(best, start=1)],
    )


def test_a_ranking_of_nothing_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least 1"):
        Ranking(0)
