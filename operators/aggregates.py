"""Aggregates: what a window makes of its values. Each is a handful of pure functions on an accumulator.

An accumulator is a plain value that can travel (numbers, tuples, lists, dicts, sets), because snapshots hold it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any

from ddsketch.ddsketch import BaseDDSketch
from ddsketch.mapping import LogarithmicMapping
from ddsketch.store import DenseStore

from rstream.errors import TopologyError

Of = Callable[[Any], Any]


class Aggregate:
    """The base. `add` may change the accumulator in place; it returns it, or another one, either way.

    >>> class Longest(Aggregate):
    ...     def create(self): return ""
    ...     def add(self, so_far, value): return max(so_far, value, key=len)
    ...     def merge(self, left, right): return max(left, right, key=len)
    >>> Longest().of(["a", "bbb", "cc"])
    'bbb'
    """

    def create(self) -> Any:
        """The accumulator of a window without values."""
        raise TypeError(f"{type(self).__name__} does not override create")

    def add(self, so_far: Any, value: Any) -> Any:
        """The accumulator with one value more."""
        raise TypeError(f"{type(self).__name__} does not override add")

    def merge(self, left: Any, right: Any) -> Any:
        """Two accumulators as one: sessions merge."""
        raise TypeError(f"{type(self).__name__} does not override merge")

    def result(self, so_far: Any) -> Any:
        """What the window emits."""
        return so_far

    def of(self, values: Sequence[Any]) -> Any:
        """The result for these values: for tests and first steps."""
        so_far = self.create()
        for value in values:
            so_far = self.add(so_far, value)
        return self.result(so_far)


def _itself(value: Any) -> Any:
    return value


class Count(Aggregate):
    """How many values.

    >>> Count().of("abc")
    3
    """

    def create(self) -> int:
        return 0

    def add(self, so_far: int, value: Any) -> int:
        return so_far + 1

    def merge(self, left: int, right: int) -> int:
        return left + right


class Sum(Aggregate):
    """The sum of `of(value)`.

    >>> Sum(len).of(["a", "bb"])
    3
    """

    def __init__(self, of: Of = _itself) -> None:
        self.value = of

    def create(self) -> Any:
        return 0

    def add(self, so_far: Any, value: Any) -> Any:
        return so_far + self.value(value)

    def merge(self, left: Any, right: Any) -> Any:
        return left + right


class Least(Aggregate):
    """The least `of(value)`; None without values.

    >>> Least().of([3, 1, 2])
    1
    """

    pick: Callable[..., Any] = staticmethod(min)

    def __init__(self, of: Of = _itself) -> None:
        self.value = of

    def create(self) -> Any:
        return None

    def add(self, so_far: Any, value: Any) -> Any:
        value = self.value(value)
        return value if so_far is None else self.pick(so_far, value)

    def merge(self, left: Any, right: Any) -> Any:
        return right if left is None else left if right is None else self.pick(left, right)


class Greatest(Least):
    """The greatest `of(value)`; None without values.

    >>> Greatest().of([3, 1, 2])
    3
    """

    pick: Callable[..., Any] = staticmethod(max)


class Reduce(Aggregate):
    """`function(so_far, value)` over all values, the first one being the first `so_far`.

    >>> Reduce(lambda left, right: left + right).of(["a", "b"])
    'ab'
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def create(self) -> list[Any]:
        return []

    def add(self, so_far: list[Any], value: Any) -> list[Any]:
        return [self.function(so_far[0], value)] if so_far else [value]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [self.function(left[0], right[0])] if left and right else left or right

    def result(self, so_far: list[Any]) -> Any:
        return so_far[0] if so_far else None


class Distinct(Aggregate):
    """How many different `of(value)`, exactly; what it holds grows with their number.

    >>> Distinct().of("abca")
    3
    """

    def __init__(self, of: Of = _itself) -> None:
        self.value = of

    def create(self) -> set[Any]:
        return set()

    def add(self, so_far: set[Any], value: Any) -> set[Any]:
        so_far.add(self.value(value))
        return so_far

    def merge(self, left: set[Any], right: set[Any]) -> set[Any]:
        return left | right

    def result(self, so_far: set[Any]) -> int:
        return len(so_far)


class TopN(Aggregate):
    """The `n` values with the greatest `by(value)`, greatest first; of equal ones, the least values.

    >>> TopN(2, by=lambda pair: pair[1]).of([("a", 3), ("b", 9), ("c", 5)])
    [('b', 9), ('c', 5)]
    """

    def __init__(self, n: int, by: Of = _itself) -> None:
        if n < 1:
            raise TopologyError(f"a top-N needs n of at least 1, got {n}")
        self.n, self.by = n, by

    def create(self) -> list[Any]:
        return []

    def add(self, so_far: list[Any], value: Any) -> list[Any]:
        so_far.append(value)
        # Sorting at every value would be most of the work; at twice the size it is seldom.
        return self._best(so_far) if len(so_far) >= 2 * self.n + 16 else so_far

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return self._best([*left, *right])

    def result(self, so_far: list[Any]) -> list[Any]:
        return self._best(so_far)

    def _best(self, values: list[Any]) -> list[Any]:
        by = self.by
        if by is _itself:
            return heapq.nlargest(self.n, values)
        return sorted(sorted(values, key=_comparable), key=by, reverse=True)[: self.n]


def _comparable(value: Any) -> Any:
    return value if type(value) in (int, float, str) else repr(value)


class Quantiles(Aggregate):
    """Quantiles of `of(value)` by a DDSketch: each is within `accuracy` of the true one, relative to its size.

    >>> p50, p99 = Quantiles([0.5, 0.99]).of(range(1, 101))
    >>> abs(p50 - 50) <= 0.5, abs(p99 - 99) <= 1
    (True, True)
    """

    def __init__(self, quantiles: Sequence[float], of: Of = _itself, accuracy: float = 0.01) -> None:
        if not quantiles or not all(0 <= quantile <= 1 for quantile in quantiles):
            raise TopologyError(f"quantiles lie between 0 and 1, got {list(quantiles)}")
        self.quantiles, self.value, self.accuracy = tuple(quantiles), of, accuracy

    def create(self) -> list[Any]:
        return [{}, {}, 0]  # how many values are in each bin above zero, below zero, and at zero

    def add(self, so_far: list[Any], value: Any) -> list[Any]:
        number, mapping = self.value(value), self._mapping
        if abs(number) <= mapping.min_possible:
            so_far[2] += 1
        else:
            bins = so_far[number < 0]
            key = mapping.key(abs(number))
            bins[key] = bins.get(key, 0) + 1
        return so_far

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        for mine, other in zip(left[:2], right[:2], strict=True):
            for key, count in other.items():
                mine[key] = mine.get(key, 0) + count
        left[2] += right[2]
        return left

    def result(self, so_far: list[Any]) -> tuple[float | None, ...]:
        stores = DenseStore(), DenseStore()
        for store, bins in zip(stores, so_far[:2], strict=True):
            for key in sorted(bins):
                store.add(key, bins[key])
        sketch = BaseDDSketch(self._mapping, *stores, zero_count=so_far[2])
        return tuple(map(sketch.get_quantile_value, self.quantiles))

    @property
    def _mapping(self) -> LogarithmicMapping:
        mapping = self.__dict__.get("mapping")
        if mapping is None:
            mapping = self.__dict__["mapping"] = LogarithmicMapping(self.accuracy)
        return mapping

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "mapping"}


class Statistics(Aggregate):
    """`(count, mean, standard deviation, least, greatest)` of `of(value)`; the deviation is the population's.

    >>> Statistics().of([2, 4, 4, 4, 5, 5, 7, 9])
    (8, 5.0, 2.0, 2, 9)
    """

    def __init__(self, of: Of = _itself) -> None:
        self.value = of

    def create(self) -> tuple[Any, ...]:
        return (0, 0.0, 0.0, None, None)

    def add(self, so_far: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        return self.merge(so_far, (1, float(x := self.value(value)), 0.0, x, x))

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        if not left[0] or not right[0]:
            return left if left[0] else right
        n, m = left[0], right[0]
        delta = right[1] - left[1]
        mean = left[1] + delta * m / (n + m)
        squares = left[2] + right[2] + delta * delta * n * m / (n + m)
        return (n + m, mean, squares, min(left[3], right[3]), max(left[4], right[4]))

    def result(self, so_far: tuple[Any, ...]) -> tuple[Any, ...]:
        n, mean, squares, least, greatest = so_far
        return (n, mean, math.sqrt(squares / n) if n else 0.0, least, greatest)


class Mean(Statistics):
    """The mean of `of(value)`; None without values.

    >>> Mean().of([1, 2])
    1.5
    """

    def result(self, so_far: tuple[Any, ...]) -> Any:
        return so_far[1] if so_far[0] else None


class Listed(Aggregate):
    """All values of the window, in order of arrival.

    >>> Listed().of("ab")
    ['a', 'b']
    """

    def create(self) -> list[Any]:
        return []

    def add(self, so_far: list[Any], value: Any) -> list[Any]:
        so_far.append(value)
        return so_far

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [*left, *right]


class Outliers(Aggregate):
    """The values whose `of(value)` lies more than `threshold` deviations from the window's mean, in order.

    For whole numbers all arithmetic is exact, so that the result does not depend on the order of arrival.

    >>> Outliers(threshold=2).of([10, 11, 9, 10, 11, 9, 10, 50])
    [50]
    """

    def __init__(self, of: Of = _itself, threshold: float = 3.0) -> None:
        if not threshold > 0:
            raise TopologyError(f"outliers need a threshold above 0, got {threshold!r}")
        self.value, self.threshold = of, threshold

    def create(self) -> list[Any]:
        return []

    def add(self, so_far: list[Any], value: Any) -> list[Any]:
        so_far.append(value)
        return so_far

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [*left, *right]

    def result(self, so_far: list[Any]) -> list[Any]:
        numbers = list(map(self.value, so_far))
        count, total = len(numbers), sum(numbers)
        spread = count * sum(number * number for number in numbers) - total * total
        limit = self.threshold * self.threshold * spread
        far = [value for value, number in zip(so_far, numbers, strict=True) if (count * number - total) ** 2 > limit]
        return sorted(far, key=_comparable)


class Several(Aggregate):
    """Several aggregates of the same values, as a tuple.

    >>> Several(Count(), Sum(), Greatest()).of([1, 5, 2])
    (3, 8, 5)
    """

    def __init__(self, *aggregates: Aggregate) -> None:
        self.aggregates = aggregates

    def create(self) -> list[Any]:
        return [each.create() for each in self.aggregates]

    def add(self, so_far: list[Any], value: Any) -> list[Any]:
        return [each.add(part, value) for each, part in zip(self.aggregates, so_far, strict=True)]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [each.merge(*parts) for each, *parts in zip(self.aggregates, left, right, strict=True)]

    def result(self, so_far: list[Any]) -> tuple[Any, ...]:
        return tuple(each.result(part) for each, part in zip(self.aggregates, so_far, strict=True))
