"""Loads that vary, on topologies whose steps take a known time, and what a run of one under a policy was like.

The papers' profiles, scaled to one machine: rates are divided and service times multiplied, so that the numbers of
replicas are of the papers' order and `ctx.occupy` takes no core for them. A tuple is due at a time that is fixed once
the topology runs; whatever was not read in time, as in a restart, is there at once afterwards and counts as late.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.stateful import Arrivals
from rstream import Bolt, Topology
from rstream.api import Context, Out, Reader
from rstream.groupings import Global, Shuffle
from rstream.operators import sources
from rstream.topology import Stream

KEYS = 400
"""Of the keyed steps."""


class Trace(sources.Phases):
    """The numbers from 0 on, at the pace of the phases, from the moment on that a file tells once it is there."""

    def __init__(self, gate: Path, phases: Sequence[tuple[float, float]]) -> None:
        super().__init__(int, phases)
        self.gate = str(gate)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return sum(seconds for seconds, _ in self.phases)

    def begin(self, start_s: float) -> None:
        """Let it begin at that time."""
        with open(f"{self.gate}.new", "w", encoding="ascii") as file:
            file.write(repr(start_s))
        os.rename(f"{self.gate}.new", self.gate)

    def due_after_s(self) -> list[float]:
        """For each number how long after the beginning it is due."""
        return [self.after(n + 1) for n in range(self.limit)]

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return _TraceReader(self, part, parts, offset or 0)


class _TraceReader(Reader):
    idle_s = 0.002

    def __init__(self, source: Trace, part: int, parts: int, position: int) -> None:
        self._source, self._part, self._parts = source, part, parts
        self._end = len(range(part, source.limit, parts))
        self._position = position
        self._start_s: float | None = None

    def read(self, limit: int) -> list[Any] | None:
        if self._position >= self._end:
            return None
        if self._start_s is None:
            if not os.path.exists(self._source.gate):
                return []
            self._start_s = float(Path(self._source.gate).read_text(encoding="ascii"))
        due = self._source.due_to(self._part, self._parts, self.now_s - self._start_s)
        stop = max(self._position, min(self._position + limit, self._end, due))
        values = [self._part + self._parts * index for index in range(self._position, stop)]
        self._position = stop
        return values

    @property
    def offset(self) -> int:
        return self._position


class Work(Bolt):
    """Passes tuples on, after keeping its replica busy for some milliseconds each."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def open(self, ctx: Context) -> None:
        self.ctx = ctx

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.ctx.occupy(self.ms * len(values))
        out.extend(values)


class CountWork(Bolt):
    """The same for a keyed step that counts."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def open(self, ctx: Context) -> None:
        self.ctx = ctx
        self._count = ctx.state.value("count", default=0)

    def process(self, value: Any, out: Out) -> None:
        self.ctx.occupy(self.ms)
        count = self._count.get() + 1
        self._count.set(count)
        out.emit((value, count))


def key_of(n: int) -> int:
    """One of the keys."""
    return n % KEYS


def with_one(n: int) -> tuple[int, int]:
    """As a keyed step would give it, for those without keys."""
    return n, 1


Steps = Sequence[tuple[str, float, bool]]
"""Name, milliseconds a tuple, and whether it is keyed."""


@dataclass(frozen=True)
class Profile:
    """A load, the topology that it comes to, and what every policy starts with."""

    id: str
    phases: Sequence[tuple[float, float]]
    steps: Steps
    sizes: Mapping[str, int]
    most: int
    """Replicas of the steps that suffice for the highest rate: what `saved` compares with."""
    workers: int
    cpus: int
    """Of each of the nodes, for their load; occupied time counts as CPU time."""
    readers: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keyed(self) -> bool:
        """Whether a step counts by key."""
        return any(keyed for _, _, keyed in self.steps)

    def truth(self, numbers: Collection[int]) -> tuple[int, int]:
        """Tuples at the sink, and the sum of what they say, of these numbers; counted without rstream."""
        if not self.keyed:
            return len(numbers), len(numbers)
        counts = Counter(map(key_of, numbers))
        return len(numbers), sum(count * (count + 1) // 2 for count in counts.values())

    def build(self, name: str, trace: Trace, path: Path, sizes: Mapping[str, int]) -> Topology:
        """The topology; arrivals at its sink go to the file at `path`."""
        # Small batches: the output of a batch comes when the time of all its tuples is over.
        topology = Topology(name, batch={"max_tuples": 4}, **self.config)
        stream: Stream = topology.source("read", trace, parallelism=self.readers)
        for step, ms, keyed in self.steps:
            if keyed:
                stream = stream.key_by("key", key_of).process(step, CountWork(ms), parallelism=sizes[step])
            else:
                stream = stream.grouped(Shuffle()).process(step, Work(ms), parallelism=sizes[step])
        if not self.keyed:
            stream = stream.map("one", with_one)
        stream.grouped(Global()).sink("arrivals", Arrivals(str(path)))
        return topology


def e10(quick: bool) -> Profile:
    """COMMCount at 1800, 3600, 2700 tuples/s, all by 45: the second rate is twice the first."""
    lengths = (6.0, 8.0, 6.0) if quick else (12.0, 20.0, 15.0)
    rates = (40.0, 80.0, 60.0)
    steps = (("filter", 25.0, False), ("count", 60.0, True))
    return Profile(
        "E10", list(zip(lengths, rates, strict=True)), steps, {"filter": 2, "count": 4}, 10, workers=4, cpus=4
    )


def r6(quick: bool) -> Profile:
    """WordCount at 1800, 3000, 4500, 2700, 2000 tuples/s, all by 45; read 2, split 3, count 3, output 2."""
    lengths = (5.0,) * 5 if quick else (10.0, 15.0, 10.0, 10.0, 10.0)
    rates = (40.0, 67.0, 100.0, 60.0, 44.0)
    steps = (("split", 25.0, False), ("count", 25.0, True))
    phases = list(zip(lengths, rates, strict=True))
    return Profile("R6", phases, steps, {"split": 3, "count": 3}, 6, workers=8, cpus=1, readers=2)


def p0(quick: bool) -> Profile:
    """Three peaks, the highest last; four replicas a step just keep up with it, and one with a third of all."""
    seconds = 24 if quick else 48
    peaks = ((0.2, 90.0), (0.5, 110.0), (0.85, 150.0))
    rate = [
        10.0 + sum(h * math.exp(-((((at + 0.5) / seconds - x) / 0.08) ** 2)) for x, h in peaks) for at in range(seconds)
    ]
    steps = (("text", 25.0, False), ("author", 25.0, False), ("store", 25.0, False))
    sizes = {name: 1 for name, _, _ in steps}
    phases = [(1.0, round(each)) for each in rate]
    # Its baseline loses what is queued, for which all of them have to allow that.
    return Profile("P0", phases, steps, sizes, 12, workers=4, cpus=4, config={"delivery": "at_most_once"})


PROFILES: Mapping[str, Callable[[bool], Profile]] = {"e10": e10, "r6": r6, "p0": p0}
