"""Tiers: what a tuple costs, and how long there and back takes, within a worker, between workers, between nodes.

The cost is CPU time of all workers together for each tuple at full speed, so that a tier does not look cheap because
two processes share its work. The round trip is one tuple alone: from a task to one on the other worker, and back.
"""

from __future__ import annotations

import argparse
import os
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common
from benchmarks.common import CannotMeasure, Goal, Outcome, expect, median
from benchmarks.throughput import TextReader, cpu_s
from rstream import Bolt, Topology, run
from rstream.api import Out, Reader, Source
from rstream.clock import SystemClock
from rstream.groupings import Custom, Global
from rstream.operators import sources, transforms

TIERS = ("thread", "process", "node")
PINGS_PER_S = 500.0
TICK_S = 0.01
now = SystemClock.now
Figures = dict[str, float]


def last(value: Any, tasks: int) -> int:
    """Always the last task: with two of them, the one on the other worker."""
    return tasks - 1


class Strings(Source):
    """Short strings as fast as they are taken, made before the first is read."""

    def __init__(self, tuples: int) -> None:
        self.tuples = tuples

    def splits(self, parallelism: int) -> Sequence[str]:
        return ["all"]

    def reader(self, split: str, offset: Any) -> Reader:
        return TextReader([f"a tuple of some length, number {number}" for number in range(self.tuples)], offset or 0)


class Meter(Bolt):
    """Counts tuples, and notes at every tick how far it is and what CPU time its process has used."""

    def __init__(self) -> None:
        self.seen = 0
        self.samples: list[tuple[float, float, int]] = []

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.seen += len(values)

    def on_tick(self, out: Out) -> None:
        self.samples.append((now(), cpu_s(), self.seen))

    def on_end(self, out: Out) -> None:
        self.on_tick(out)

    def results(self) -> list[Any]:
        """How far it was when."""
        return [{"seen": self.seen, "samples": self.samples}]


class Stopwatch(Bolt):
    """Notes how old each value, a time, is when it is back."""

    def __init__(self) -> None:
        self.ages_s = array("d")

    def process(self, value: float, out: Out) -> None:
        self.ages_s.append(now() - value)

    def results(self) -> list[Any]:
        """The ages."""
        return [self.ages_s.tobytes()]


def one_way(parallelism: int, tuples: int) -> Topology:
    """From a source to the last task of the next step; the first task, if there is another, only meters."""
    topology = Topology("tiers-cost")
    stream = topology.source("strings", Strings(tuples)).grouped(Custom(last))
    stream.sink("meter", Meter(), parallelism=parallelism, tick_s=TICK_S)
    return topology


def there_and_back(parallelism: int, pings: int) -> Topology:
    """From a source to the last task of `echo`, and from there to a sink beside the source."""
    topology = Topology("tiers-round-trip")
    (
        topology.source("pings", sources.Rate(lambda number: now(), per_s=PINGS_PER_S, limit=pings))
        .grouped(Custom(last))
        .process("echo", transforms.Map(float), parallelism=parallelism)
        .grouped(Global())
        .sink("back", Stopwatch())
    )
    return topology


def on_tier(tier: str, build: Callable[[int], Topology], step: str) -> list[Any]:
    """Run a topology on a tier of the Ray that is there; what its sinks hold."""
    workers = 1 if tier == "thread" else 2
    report = run(build(workers), workers=workers, nodes=2 if tier == "node" else 1, spares=0, folder="")
    [used] = [edge["tier"] for edge in report.status["edges"] if edge["to"] == f"{step}#{workers - 1}"]
    expect("the tier of the edge", tier, used)
    [sink] = report.results
    return list(report.results[sink])


def cost_us(tier: str, tuples: int) -> float:
    """CPU time of all workers for a tuple, between 10 and 90 % of them."""
    meters = on_tier(tier, lambda workers: one_way(workers, tuples), "meter")
    expect("tuples at the last task", [tuples], [meter["seen"] for meter in meters if meter["seen"]])
    [receiver] = [meter["samples"] for meter in meters if meter["seen"]]
    return cpu_between([meter["samples"] for meter in meters], receiver, tuples) * 1e6


def cpu_between(every: list[Any], receiver: list[Any], tuples: int) -> float:
    """CPU seconds a tuple of all processes, while the receiver went from 10 to 90 %.

    >>> one, other = [(0.0, 0.0, 0), (1.0, 1.0, 100)], [(0.0, 5.0, 0), (1.0, 5.5, 0)]
    >>> round(cpu_between([one, other], one, 100), 6)
    0.015
    """
    import numpy as np

    moments, _, seen = zip(*receiver, strict=True)
    start_s, end_s = (float(np.interp(share * tuples, seen, moments)) for share in (0.1, 0.9))
    if end_s <= start_s:
        raise CannotMeasure("the run was too short for its samples; use more tuples")
    used = 0.0
    for samples in every:
        times, cpu, _ = zip(*samples, strict=True)
        used += float(np.interp(end_s, times, cpu) - np.interp(start_s, times, cpu))
    return used / (0.8 * tuples)


def round_trip(tier: str, pings: int) -> Figures:
    """Quantiles of the round trip, without the first fifth."""
    [packed] = on_tier(tier, lambda workers: there_and_back(workers, pings), "echo")
    ages_s = array("d", packed)
    expect("pings that came back", pings, len(ages_s))
    return common.quantiles_ms(ages_s[len(ages_s) // 5 :])


def measure(options: argparse.Namespace) -> Outcome:
    """Both figures of all tiers in turn, on one private Ray of two nodes."""
    tuples = options.tuples or (400_000 if options.quick else 2_000_000)
    pings = options.pings or (500 if options.quick else 2500)
    with common.two_node_ray():
        runs = common.runs_of(options)
        costs = common.alternate({tier: partial(cost_us, tier, tuples) for tier in TIERS}, runs)
        trips = common.alternate({tier: partial(round_trip, tier, pings) for tier in TIERS}, runs)
    common.progress("")
    return outcome(costs, trips)


def outcome(costs: dict[str, list[float]], trips: dict[str, list[Figures]]) -> Outcome:
    """Medians, ratios to the thread tier, and the goals: dearer and slower from tier to tier."""
    cost = {tier: median(costs[tier]) for tier in TIERS}
    trip = {tier: {name: median([run[name] for run in trips[tier]]) for name in trips[tier][0]} for tier in TIERS}
    rows = [
        {
            "tier": tier,
            "cpu_us_per_tuple": round(cost[tier], 3),
            "cost_vs_thread": round(cost[tier] / cost["thread"], 2),
            **{f"round_trip_{name}": round(value, 3) for name, value in trip[tier].items()},
            "trip_vs_thread": round(trip[tier]["p50_ms"] / trip["thread"]["p50_ms"], 2),
            "runs": len(costs[tier]),
        }
        for tier in TIERS
    ]

    def over(tier: str, other: str) -> float:
        return min(cost[tier] / cost[other], trip[tier]["p50_ms"] / trip[other]["p50_ms"])

    goals = [
        Goal("process_over_thread", over("process", "thread"), "> 1"),
        Goal("node_over_process", over("node", "process"), "> 1"),
    ]
    return Outcome(
        "tiers",
        rows,
        goals,
        ["Each goal is the smaller of two ratios: cost of a tuple, and median round trip of one tuple alone."],
    )


def main(arguments: list[str]) -> int:
    """Run the benchmark; the status is 1 if it could not measure."""
    options = common.parser(__doc__ or "")
    options.add_argument("--tuples", type=int, help="tuples of a run that measures cost (default 2000000)")
    options.add_argument("--pings", type=int, help="tuples of a run that measures round trips (default 2500)")
    return common.finish(options.parse_args(arguments), "tiers", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
