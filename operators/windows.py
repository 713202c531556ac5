"""Windows: which stretch of event time, or which run of values, is aggregated together; and when results come early.

`Tumbling`, `Sliding`, `Session` and `Every` are values for `stream.window(...)`; the steps behind it are in
`rstream.operators.windowing`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rstream.errors import TopologyError


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of `size_s`, one beginning every `step_s`; a value is in all those that hold its time.

    >>> Sliding(60, 20).starts(70)
    [20, 40, 60]
    """

    size_s: float
    step_s: float
    offset_s: float = 0

    def __post_init__(self) -> None:
        if not 0 < self.size_s < math.inf:
            raise TopologyError(f"a window's size_s must be above 0, got {self.size_s!r}")
        if not 0 < self.step_s <= self.size_s:
            raise TopologyError(f"a window's step_s must be above 0 and at most {self.size_s!r}, got {self.step_s!r}")

    def starts(self, at_s: float) -> list[float]:
        """The starts of the windows that hold a time, the earliest first."""
        number = (at_s - self.offset_s) // self.step_s
        starts: list[float] = []
        while (start := number * self.step_s + self.offset_s) + self.size_s > at_s:
            starts.append(start)
            number -= 1
        return starts[::-1]


def Tumbling(size_s: float, offset_s: float = 0) -> Sliding:
    """Windows of `size_s` that follow one another.

    >>> Tumbling(60).starts(70)
    [60]
    """
    return Sliding(size_s, size_s, offset_s)


@dataclass(frozen=True, slots=True)
class Session:
    """A window for each burst of values: it ends when no value comes for `gap_s`; bursts that meet become one.

    >>> from rstream import Topology
    >>> from rstream.testing import run
    >>> topology = Topology("visits")
    >>> clicks = topology.source("clicks", [1, 4, 30, 7]).event_time("time", int, delay_s=30)
    >>> _ = clicks.window(Session(5), time=int).count("count").sink("out")
    >>> run(topology)["out"]
    [(1, 12, 3), (30, 35, 1)]
    """

    gap_s: float

    def __post_init__(self) -> None:
        if not 0 < self.gap_s < math.inf:
            raise TopologyError(f"a session's gap_s must be above 0, got {self.gap_s!r}")


@dataclass(frozen=True, slots=True)
class Every:
    """A window of each `count` values in order of arrival; with `partial`, the rest at the end of the stream too.

    >>> from rstream import Topology
    >>> from rstream.testing import run
    >>> topology = Topology("pairs")
    >>> _ = topology.source("n", [1, 2, 3]).window(Every(2, partial=True)).sum("sum", of=int).sink("out")
    >>> run(topology)["out"]
    [(0, 2, 3), (2, 3, 3)]
    """

    count: int
    partial: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise TopologyError(f"a count window's count must be at least 1, got {self.count!r}")


@dataclass(frozen=True, slots=True)
class EarlyByCount:
    """A trigger: the result so far whenever the window has got `count` values more.

    >>> from rstream import Topology
    >>> from rstream.testing import run
    >>> topology = Topology("early")
    >>> times = topology.source("times", [1, 2, 3]).event_time("time", int)
    >>> _ = times.window(Tumbling(60), time=int, early=EarlyByCount(2)).count("count").sink("out")
    >>> run(topology)["out"]
    [(0, 60, 2), (0, 60, 3)]
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise TopologyError(f"an early trigger's count must be at least 1, got {self.count!r}")


@dataclass(frozen=True, slots=True)
class EarlyByTime:
    """A trigger: the result so far every `seconds` by the clock while the window is open, if it has changed.

    >>> from rstream import Topology
    >>> from rstream.operators.sources import Rate
    >>> from rstream.testing import run
    >>> topology = Topology("early")
    >>> times = topology.source("times", Rate(int, per_s=10, limit=25)).event_time("time", int)
    >>> _ = times.window(Tumbling(60), time=int, early=EarlyByTime(1)).count("count").sink("out")
    >>> counts = [count for _, _, count in run(topology)["out"]]
    >>> len(counts) > 1, counts == sorted(counts), counts[-1]
    (True, True, 25)
    """

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise TopologyError(f"an early trigger's seconds must be above 0, got {self.seconds!r}")


Window = Sliding | Session | Every
Trigger = EarlyByCount | EarlyByTime
