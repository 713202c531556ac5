"""A latency histogram that costs one addition a batch and merges by adding: log-spaced buckets, 5 % wide."""

from __future__ import annotations

import math
from collections.abc import Iterable

_LOWEST_S = 1e-5
_GROWTH = math.log(1.05)
_BUCKETS = 400


class Histogram:
    """Counts by latency.

    >>> latencies = Histogram()
    >>> latencies.add(0.010, 99); latencies.add(1.0, 1)
    >>> round(latencies.quantile(0.5), 3)
    0.01
    """

    __slots__ = ("counts",)

    def __init__(self, counts: Iterable[int] | None = None) -> None:
        self.counts = [0] * _BUCKETS if counts is None else list(counts)

    def add(self, latency_s: float, count: int = 1) -> None:
        """`count` more of this latency."""
        if latency_s <= _LOWEST_S:
            bucket = 0
        else:
            bucket = min(_BUCKETS - 1, int(math.log(latency_s / _LOWEST_S) / _GROWTH) + 1)
        self.counts[bucket] += count

    def merge(self, counts: Iterable[int]) -> None:
        """Add the counts of another histogram."""
        self.counts = [mine + other for mine, other in zip(self.counts, counts, strict=True)]

    def mean(self) -> float | None:
        """The mean latency in seconds; None where there are no counts."""
        total = sum(self.counts)
        if total == 0:
            return None
        middles = (_LOWEST_S * math.exp(_GROWTH * (bucket - 0.5)) for bucket in range(1, _BUCKETS))
        weighed = zip(self.counts[1:], middles, strict=True)
        return (self.counts[0] * _LOWEST_S + sum(count * middle for count, middle in weighed)) / total

    def quantile(self, share: float) -> float | None:
        """The latency in seconds that this share of the counts does not exceed; None where there are none."""
        total = sum(self.counts)
        if total == 0:
            return None
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if seen >= share * total:
                return _LOWEST_S * math.exp(_GROWTH * (bucket - 0.5)) if bucket else _LOWEST_S
        return None
