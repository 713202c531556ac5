"""Topologies whose steps take a known time, and loads that change, for tests of the controller."""

from __future__ import annotations

from typing import Any

from rstream import Bolt, Topology
from rstream.api import Context, Out
from rstream.operators import sinks, sources


class Work(Bolt):
    """Passes values on, after keeping its replica busy for some milliseconds each."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def open(self, ctx: Context) -> None:
        self.ctx = ctx

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.ctx.occupy(self.ms * len(values))
        out.extend(values)


def number(n: int) -> int:
    """The n-th tuple."""
    return n


def key(n: int) -> str:
    """One of forty keys."""
    return f"k{n % 40}"


def chain(
    name: str,
    per_s: float | list[tuple[float, float]],
    limit: int | None = None,
    ms: float = 4.0,
    work: int = 2,
    count: int = 2,
    **config: Any,
) -> Topology:
    """numbers -> work (stateless, `ms` a tuple) -> count (keyed) -> out: the newest count of each key.

    `per_s` is a rate, or phases of so many seconds at a rate.
    """
    topology = Topology(name, **config)
    paced = sources.Phases(number, per_s) if isinstance(per_s, list) else sources.Rate(number, per_s, limit)
    numbers = topology.source("numbers", paced)
    worked = numbers.process("work", Work(ms), parallelism=work)
    worked.key_by("key", key).count("count", parallelism=count).sink("out", sinks.Latest())
    return topology


def expected(limit: int) -> dict[str, int]:
    """What `chain` must end with, counted without the engine."""
    counts: dict[str, int] = {}
    for n in range(limit):
        counts[key(n)] = counts.get(key(n), 0) + 1
    return counts
