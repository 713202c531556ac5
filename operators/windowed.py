"""What `stream.window(...)` gives: the aggregations of a windowed stream, each a named step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rstream.errors import TopologyError
from rstream.operators import aggregates
from rstream.operators.aggregates import Aggregate
from rstream.operators.windowing import LATE, AlignedWindows, CountWindows, SessionWindows, _Windows
from rstream.operators.windows import EarlyByTime, Every, Session, Sliding, Trigger, Window

if TYPE_CHECKING:
    from rstream.topology import Stream


@dataclass(frozen=True, slots=True)
class WindowedStream:
    """A stream cut into windows. A step on it emits `(key, start, end, result)`, without the key where it is not keyed.

    `step.output("late")` has the values that came too late for their windows.

    >>> from rstream import Topology
    >>> from rstream.operators.windows import Tumbling
    >>> from rstream.testing import run
    >>> topology = Topology("minutes")
    >>> readings = topology.source("readings", [(1, "a", 7), (2, "b", 9), (3, "a", 5), (61, "b", 8)])
    >>> minutes = readings.event_time("time", lambda r: r[0]).window(Tumbling(60), time=lambda r: r[0])
    >>> _ = minutes.sum("sum", of=lambda r: r[2]).sink("sums")
    >>> _ = minutes.reduce("first", min).sink("firsts")
    >>> _ = minutes.distinct("different", of=lambda r: r[1]).sink("sensors")
    >>> _ = minutes.top("top", 1, by=lambda r: r[2]).sink("highest")
    >>> _ = minutes.statistics("all of it", of=lambda r: r[2]).sink("statistics")
    >>> _ = minutes.quantiles("middle", [0.5], of=lambda r: r[2]).sink("half")
    >>> results = run(topology)
    >>> results["sums"], results["sensors"]
    ([(0, 60, 21), (60, 120, 8)], [(0, 60, 2), (60, 120, 1)])
    >>> results["firsts"], results["highest"]
    ([(0, 60, (1, 'a', 7)), (60, 120, (61, 'b', 8))], [(0, 60, [(2, 'b', 9)]), (60, 120, [(61, 'b', 8)])])
    >>> results["statistics"][1]
    (60, 120, (1, 8.0, 0.0, 8, 8))
    >>> round(results["half"][0][2][0])
    7
    """

    stream: Stream
    window: Window
    time: Callable[[Any], Any] | None
    lateness_s: float
    early: Trigger | None
    keyed: bool

    def aggregate(self, name: str, aggregate: Aggregate, **options: Any) -> Stream:
        """Any `Aggregate` of each window."""
        if not isinstance(aggregate, Aggregate):
            raise TopologyError(f"step {name!r}: wanted an Aggregate, got {type(aggregate).__name__}")
        bolt = self._bolt(name, aggregate)
        bolt.trigger(self.early)
        fields = ("key", "start", "end", "result") if self.keyed else ("start", "end", "result")
        options = {"fields": fields, **options, "outputs": (LATE, *options.get("outputs", ()))}
        return self.stream._bolt(name, bolt, options)

    def _bolt(self, name: str, aggregate: Aggregate) -> _Windows:
        if isinstance(self.window, Every):
            if self.lateness_s or isinstance(self.early, EarlyByTime):
                raise TopologyError(
                    f"step {name!r}: a count window knows no time: leave lateness_s and EarlyByTime out"
                )
            return CountWindows(self.window, aggregate, self.keyed)
        if self.time is None:
            raise TopologyError(f"step {name!r}: a window by event time needs time=..., a function of a value")
        if isinstance(self.window, Session):
            if isinstance(self.early, EarlyByTime):
                raise TopologyError(f"step {name!r}: sessions take EarlyByCount as a trigger, not EarlyByTime")
            return SessionWindows(self.window, self.time, aggregate, self.keyed, self.lateness_s)
        assert isinstance(self.window, Sliding), self.window
        return AlignedWindows(self.window, self.time, aggregate, self.keyed, self.lateness_s)

    def count(self, name: str, **options: Any) -> Stream:
        """How many values each window has."""
        return self.aggregate(name, aggregates.Count(), **options)

    def sum(self, name: str, of: Callable[[Any], Any], **options: Any) -> Stream:
        """The sum of `of(value)` of each window."""
        return self.aggregate(name, aggregates.Sum(of), **options)

    def reduce(self, name: str, function: Callable[[Any, Any], Any], **options: Any) -> Stream:
        """`function(so_far, value)` over the values of each window."""
        return self.aggregate(name, aggregates.Reduce(function), **options)

    def distinct(self, name: str, of: Callable[[Any], Any] = aggregates._itself, **options: Any) -> Stream:
        """How many different `of(value)` each window has."""
        return self.aggregate(name, aggregates.Distinct(of), **options)

    def top(self, name: str, n: int, by: Callable[[Any], Any] = aggregates._itself, **options: Any) -> Stream:
        """The `n` values with the greatest `by(value)` of each window."""
        return self.aggregate(name, aggregates.TopN(n, by), **options)

    def quantiles(
        self, name: str, quantiles: Sequence[float], of: Callable[[Any], Any] = aggregates._itself, **options: Any
    ) -> Stream:
        """Quantiles of `of(value)` of each window, by a sketch."""
        return self.aggregate(name, aggregates.Quantiles(quantiles, of), **options)

    def statistics(self, name: str, of: Callable[[Any], Any] = aggregates._itself, **options: Any) -> Stream:
        """`(count, mean, deviation, least, greatest)` of `of(value)` of each window."""
        return self.aggregate(name, aggregates.Statistics(of), **options)


def windowed(
    stream: Stream,
    window: Any,
    time: Callable[[Any], Any] | None,
    lateness_s: float,
    early: Trigger | None,
    keyed: bool,
) -> WindowedStream:
    """A stream cut into windows, checked."""
    if not isinstance(window, Window):
        raise TopologyError(f"window: wanted Tumbling, Sliding, Session or Every, got {window!r}")
    if time is not None and not callable(time):
        raise TopologyError(f"window: time must be a function of a value, got {time!r}")
    if not lateness_s >= 0:
        raise TopologyError(f"window: lateness_s must be at least 0, got {lateness_s!r}")
    if early is not None and not isinstance(early, Trigger):
        raise TopologyError(f"window: early must be EarlyByCount or EarlyByTime, got {early!r}")
    return WindowedStream(stream, window, time, lateness_s, early, keyed)
