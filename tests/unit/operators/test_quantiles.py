"""Quantiles: a sketch of each window, within its accuracy of the true ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rstream.errors import TopologyError
from rstream.operators.aggregates import Quantiles
from rstream.operators.windows import Tumbling
from rstream.testing import run
from tests.windows_kit import at_s, check_aggregate, events, number, topology

EVENTS = events(count=200, seed=5)


def test_quantiles_are_within_their_accuracy() -> None:
    def step(stream: Any) -> Any:
        return stream.window(Tumbling(1000), time=at_s).quantiles("q", [0.0, 0.5, 0.9, 1.0], of=number)

    [(_, _, came)] = run(topology(EVENTS, step))["out"]
    numbers = sorted(n for _, _, n in EVENTS)
    for quantile, value in zip([0.0, 0.5, 0.9, 1.0], came, strict=True):
        true = numbers[int(quantile * (len(numbers) - 1))]
        assert value == pytest.approx(true, rel=0.011)


def test_quantiles_are_the_same_although_workers_are_killed_and_tasks_change() -> None:
    check_aggregate(Quantiles([0.5, 0.99], of=number), lambda group: Quantiles([0.5, 0.99], number).of(group))


def test_quantiles_of_merged_parts_and_of_numbers_below_zero() -> None:
    chance = random.Random(1)
    numbers = [chance.gauss(0, 100) for _ in range(2000)] + [0.0] * 5
    sketch = Quantiles([0.1, 0.5, 0.95])
    left, right = sketch.create(), sketch.create()
    for n in numbers[:700]:
        left = sketch.add(left, n)
    for n in numbers[700:]:
        right = sketch.add(right, n)
    assert sketch.result(sketch.merge(left, right)) == sketch.of(numbers)
    for quantile, value in zip((0.1, 0.5, 0.95), sketch.of(numbers), strict=True):
        true = sorted(numbers)[int(quantile * (len(numbers) - 1))]
        assert value == pytest.approx(true, rel=0.011, abs=1e-6)
    assert sketch.of([]) == (None, None, None)


@pytest.mark.parametrize("quantiles", [[], [1.2], [-0.1]])
def test_quantiles_that_are_none_are_refused(quantiles: list[float]) -> None:
    with pytest.raises(TopologyError, match="between 0 and 1"):
        Quantiles(quantiles)
