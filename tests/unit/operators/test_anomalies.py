"""Anomalies: far from what the key has shown so far, by an independent two-pass computation."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import pytest

from rstream.errors import TopologyError
from rstream.operators.anomalies import Anomalies
from tests.windows_kit import check_exact, key_of

ITEMS = [(f"k{n % 3}", n, 500 if n in (100, 151) else n * 7 % 13) for n in range(180)]


def anomalies() -> list[tuple[str, int]]:
    seen: dict[str, list[int]] = defaultdict(list)
    found = []
    for key, at, value in ITEMS:
        before = seen[key]
        if len(before) >= 30 and abs(value - statistics.fmean(before)) > 3 * statistics.pstdev(before):
            found.append((key, at))
        before.append(value)
    return found


def test_they_are_found_once_each_although_workers_are_killed() -> None:
    assert len(anomalies()) == 2
    check_exact(
        ITEMS,
        lambda stream: (
            stream.key_by("key", key_of)
            .process("odd", Anomalies(of=lambda event: event[2]), parallelism=2)
            .map("short", lambda odd: (odd[0], odd[1][1]))
        ),
        anomalies(),
    )


@pytest.mark.parametrize("options", [{"threshold": 0}, {"warmup": 1}])
def test_settings_that_cannot_be_are_refused(options: Any) -> None:
    with pytest.raises(TopologyError, match="anomalies"):
        Anomalies(**options)
