"""Anomalies: values that lie far from what their key has shown so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rstream.api import Bolt, Context, Out
from rstream.errors import TopologyError


class Anomalies(Bolt):
    """`(key, value, mean, deviation, score)` of a value whose distance from the mean is above `threshold` deviations.

    Mean and deviation are of the key's values before it (Welford's running form), of at least `warmup` of them.

    >>> from rstream import Topology
    >>> from rstream.testing import run
    >>> topology = Topology("odd")
    >>> numbers = topology.source("numbers", [10, 11, 9, 10, 11, 9, 50])
    >>> _ = numbers.key_by("all", lambda n: "n").process("odd", Anomalies(warmup=5)).sink("out")
    >>> [(key, value, mean) for key, value, mean, _, _ in run(topology)["out"]]
    [('n', 50, 10.0)]
    """

    def __init__(self, of: Callable[[Any], float] | None = None, threshold: float = 3.0, warmup: int = 30) -> None:
        if not threshold > 0 or warmup < 2:
            raise TopologyError(f"anomalies: threshold above 0 and warmup of 2 or more, got {threshold}, {warmup}")
        self.of, self.threshold, self.warmup = of, threshold, warmup

    def open(self, ctx: Context) -> None:
        self._state = ctx.state
        self._so_far = ctx.state.value("so_far", default=(0, 0.0, 0.0))

    def process(self, value: Any, out: Out) -> None:
        number = value if self.of is None else self.of(value)
        count, mean, squares = self._so_far.get()
        if count >= self.warmup:
            deviation = math.sqrt(squares / count)
            distance = abs(number - mean)
            if distance > self.threshold * deviation:
                score = distance / deviation if deviation else math.inf
                out.emit((self._state.current, value, mean, deviation, score))
        count += 1
        delta = number - mean
        mean += delta / count
        self._so_far.set((count, mean, squares + delta * (number - mean)))
