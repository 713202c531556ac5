"""What each way of delivery costs: the same word count with exactly_once, at_least_once and at_most_once.

Two workers on a Ray of two nodes, so that half of the words cross a link; snapshots every second where there are any.
The rate is that of the words counted between the first and the last time that the count was seen to grow.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common
from benchmarks.common import CannotMeasure, Outcome
from rstream import Topology, submit
from rstream.clock import SystemClock, sleep
from rstream.operators import sinks, sources

MODES = ("at_most_once", "at_least_once", "exactly_once")
WORDS = 10
VOCABULARY = 1000


def sentence(n: int) -> str:
    """The n-th sentence; all words are as frequent."""
    return " ".join(f"w{(n * WORDS + place) * 7919 % VOCABULARY}" for place in range(WORDS))


def build(mode: str, run: int, sentences: int) -> Topology:
    """Sentences, words, counts."""
    topology = Topology(f"{mode}-{run}", backup={"interval_s": 1.0}, stats_interval_s=0.2)
    lines = topology.source("lines", sources.Rate(sentence, per_s=1e9, limit=sentences), parallelism=2)
    words = lines.flat_map("split", str.split, parallelism=2)
    words.key_by("word").count("count", parallelism=2).sink("out", sinks.Discard(), parallelism=2)
    return topology


def measure_case(mode: str, numbers: Iterator[int], sentences: int) -> dict[str, float]:
    """One run: words a second."""
    handle = submit(build(mode, next(numbers), sentences), workers=2, spares=0, folder="", delivery=mode)
    clock = SystemClock()
    end_s = clock.monotonic() + 240.0
    first: tuple[float, int] | None = None
    last = (0.0, 0)
    while (status := handle.status())["state"] in ("ACTIVE", "INACTIVE") and clock.monotonic() < end_s:
        counted = next(step["processed"] for step in status["operators"] if step["name"] == "count")
        if counted and first is None:
            first = (clock.monotonic(), counted)
        if counted > last[1]:
            last = (clock.monotonic(), counted)
        sleep(0.05)
    if status["state"] != "FINISHED" or first is None or last[1] <= first[1]:
        raise CannotMeasure(f"{mode}: the run ended {status['state']}, or too early to tell")
    common.expect("words counted", sentences * WORDS, status["operators"][2]["processed"])
    return {"words_per_s": (last[1] - first[1]) / (last[0] - first[0])}


def outcome(rates: dict[str, list[dict[str, float]]]) -> Outcome:
    """Medians, and ratios to the cheapest."""
    medians = {mode: statistics.median(run["words_per_s"] for run in runs) for mode, runs in rates.items()}
    base = medians[MODES[0]]
    rows: list[dict[str, Any]] = [
        {"delivery": mode, "words_per_s": medians[mode], "ratio": medians[mode] / base, "runs": len(rates[mode])}
        for mode in MODES
    ]
    return Outcome("delivery", rows, [], ["ratio: to at_most_once of the same runs"])


def measure(options: argparse.Namespace) -> Outcome:
    """All modes in turn, on a Ray of two nodes."""
    sentences = 5_000 if options.quick else 200_000
    numbers = itertools.count()
    cases = {mode: partial(measure_case, mode, numbers, sentences) for mode in MODES}
    with common.two_node_ray():
        rates = common.alternate(cases, common.runs_of(options))
    common.progress("")
    return outcome(rates)


def main(arguments: list[str]) -> int:
    """Run it."""
    options = common.parser(__doc__.splitlines()[0] if __doc__ else "", runs=3).parse_args(arguments)
    return common.finish(options, "delivery", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
