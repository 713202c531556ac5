"""The stateless and keyed steps behind `Stream.map`, `.filter`, `.count` and the like.

Each is a plain `Bolt` that a user could have written. They handle whole batches, because a Python call per tuple is
most of a tuple's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from rstream.api import Bolt, Context, Out
from rstream.errors import TopologyError

OTHERWISE = "otherwise"
"""The side output of `branch` for values whose predicate is false."""


class Map(Bolt):
    """One value for each."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process(self, value: Any, out: Out) -> None:
        out.emit(self.function(value))

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend([self.function(value) for value in values])


class FlatMap(Bolt):
    """Any number of values for each."""

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self.function = function

    def process(self, value: Any, out: Out) -> None:
        out.extend(list(self.function(value)))

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend(list(chain.from_iterable(map(self.function, values))))


class Filter(Bolt):
    """Only the values for which the predicate is true."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self.predicate = predicate

    def process(self, value: Any, out: Out) -> None:
        if self.predicate(value):
            out.emit(value)

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend(list(filter(self.predicate, values)))


class Same(Bolt):
    """Every value as it is."""

    def process(self, value: Any, out: Out) -> None:
        out.emit(value)

    def process_batch(self, values: list[Any], out: Out) -> None:
        out.extend(values)


class First(Bolt):
    """The first value of each key, and no other."""

    def open(self, ctx: Context) -> None:
        self._seen = ctx.state.value("seen", default=False)

    def process(self, value: Any, out: Out) -> None:
        if not self._seen.get():
            self._seen.set(True)
            out.emit(value)


class Branch(Bolt):
    """The values for which the predicate is true on the default output, the others on `OTHERWISE`."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self.predicate = predicate

    def process(self, value: Any, out: Out) -> None:
        if self.predicate(value):
            out.emit(value)
        else:
            out.emit_to(OTHERWISE, value)


class Reduce(Bolt):
    """`(key, so_far)` after every value; the first value of a key is its first `so_far`."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def open(self, ctx: Context) -> None:
        self._key_of, self._state = ctx.key_of, ctx.state

    def process(self, value: Any, out: Out) -> None:
        self.process_batch([value], out)

    def process_batch(self, values: list[Any], out: Out) -> None:
        keys = values if self._key_of is None else list(map(self._key_of, values))
        cells = self._state.writable("so_far", keys)
        function = self.function
        results: list[Any] = []
        for key, value in zip(keys, values, strict=True):
            so_far = cells[key] = function(cells[key], value) if key in cells else value
            results.append(so_far)
        out.extend_pairs(keys, results)


class Count(Bolt):
    """`(key, n)` after every value."""

    def open(self, ctx: Context) -> None:
        self._key_of, self._state = ctx.key_of, ctx.state

    def process(self, value: Any, out: Out) -> None:
        self.process_batch([value], out)

    def process_batch(self, values: list[Any], out: Out) -> None:
        keys = values if self._key_of is None else list(map(self._key_of, values))
        cells = self._state.writable("count", keys)
        numbers: list[int] = []
        add = numbers.append
        for key in keys:
            try:
                cells[key] = n = cells[key] + 1
            except KeyError:
                cells[key] = n = 1
            add(n)
        out.extend_pairs(keys, numbers)


class Function(Bolt):
    """A function `(value, out)` as a bolt."""

    def __init__(self, function: Callable[[Any, Out], None]) -> None:
        self.process = function  # type: ignore[method-assign, assignment]


def as_bolt(step: str, bolt: Bolt | type[Bolt] | Callable[[Any, Out], None]) -> Bolt:
    """What the user gave for a step, as a bolt."""
    if isinstance(bolt, Bolt):
        return bolt
    if isinstance(bolt, type):
        if not issubclass(bolt, Bolt):
            raise TopologyError(f"step {step!r}: {bolt.__name__} is not a Bolt; subclass rstream.Bolt")
        return bolt()
    if callable(bolt):
        return Function(bolt)
    raise TopologyError(f"step {step!r}: wanted a Bolt or a function (value, out), got {type(bolt).__name__}")
