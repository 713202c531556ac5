"""Throughput: WordCount at full speed, as a share of a bare Python loop that splits and counts the same text.

400,000 sentences of 10 words; every word reaches `count` and every update the sink, 4,000,000 each, and the counts are
checked against an independent count. The rate is the steady one, between 10 and 90 % of the updates. Retained output is
always on. The text is made before the clock runs, for all cases alike.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import common
from benchmarks.common import Goal, Outcome, expect, median
from benchmarks.corpus import Corpus
from rstream import Bolt, Topology, run
from rstream.api import Context, Out, Reader, Source
from rstream.clock import SystemClock

TICK_S = 0.02
clock = SystemClock()


def cpu_s() -> float:
    """CPU time of this process so far."""
    times = os.times()
    return times.user + times.system


class Text(Source):
    """The corpus; each task makes its share when it opens, before anything is timed."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def splits(self, parallelism: int) -> Sequence[str]:
        return [f"{part}/{parallelism}" for part in range(parallelism)]

    def reader(self, split: str, offset: Any) -> Reader:
        part, parts = map(int, split.split("/"))
        return TextReader(self.corpus.text(part, parts), offset or 0)


class TextReader(Reader):
    """Gives out sentences from a list."""

    def __init__(self, sentences: list[str], position: int) -> None:
        self._sentences, self._position = sentences, position

    def read(self, limit: int) -> list[Any] | None:
        values = self._sentences[self._position : self._position + limit]
        self._position += len(values)
        return values or None

    @property
    def offset(self) -> int:
        return self._position


# As a user writes them: one call a tuple.


def words(sentence: str) -> list[str]:
    """The words of a sentence."""
    return sentence.split()


class CountWords(Bolt):
    """A running count for each word."""

    def open(self, ctx: Context) -> None:
        self._count = ctx.state.value("count", default=0)

    def process(self, word: str, out: Out) -> None:
        count = self._count.get() + 1
        self._count.set(count)
        out.emit((word, count))


class LatestCounts(Bolt):
    """The sink: keeps the newest count of each word, and notes how far it is at every tick."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}
        self.updates = 0
        self.samples: list[tuple[float, float, int]] = []

    def process(self, update: tuple[str, int], out: Out) -> None:
        word, count = update
        self.latest[word] = count
        self.updates += 1

    def on_tick(self, out: Out) -> None:
        self.samples.append((clock.monotonic(), cpu_s(), self.updates))

    def on_end(self, out: Out) -> None:
        self.on_tick(out)

    def results(self) -> list[Any]:
        """One object: what there is at the end."""
        return [{"latest": self.latest, "updates": self.updates, "samples": self.samples}]


# The same with a call for each batch.


class SplitBatch(Bolt):
    """The words of all sentences of a batch."""

    def process_batch(self, sentences: list[Any], out: Out) -> None:
        out.extend(" ".join(sentences).split())


class CountBatch(Bolt):
    """A running count for each word: an update for every word, as in `CountWords`."""

    def open(self, ctx: Context) -> None:
        self._state = ctx.state

    def process_batch(self, batch: list[Any], out: Out) -> None:
        counts = self._state.writable("count", batch)
        numbers: list[int] = []
        add = numbers.append
        for word in batch:
            try:
                counts[word] = number = counts[word] + 1
            except KeyError:
                counts[word] = number = 1
            add(number)
        out.extend_pairs(batch, numbers)


class LatestBatch(LatestCounts):
    """The sink, a batch at a time."""

    def process_batch(self, updates: list[Any], out: Out) -> None:
        self.latest.update(updates)
        self.updates += len(updates)


# With a combiner: fewer tuples between split and count, so no equal work, and no goal.


class SplitAndCombine(Bolt):
    """The words of a batch, each once with how often it was there."""

    def process_batch(self, sentences: list[Any], out: Out) -> None:
        out.extend(list(Counter(" ".join(sentences).split()).items()))


class AddBatch(Bolt):
    """Adds up what the combiners counted."""

    def open(self, ctx: Context) -> None:
        self._state = ctx.state

    def process_batch(self, batch: list[Any], out: Out) -> None:
        counts = self._state.writable("count", [word for word, _ in batch])
        get = counts.get
        for word, times in batch:
            counts[word] = count = get(word, 0) + times
            out.emit((word, count))


class LatestCombined(LatestBatch):
    """The sink of the combiner: how far it is follows from the counts."""

    def process_batch(self, updates: list[Any], out: Out) -> None:
        latest = self.latest
        for word, count in updates:
            self.updates += count - latest.get(word, 0)
            latest[word] = count


def per_record(corpus: Corpus, parallelism: int) -> Topology:
    """One Python call a tuple in each step."""
    topology = Topology("throughput")
    (
        topology.source("text", Text(corpus), parallelism=parallelism)
        .flat_map("split", words, parallelism=parallelism)
        .key_by("word")
        .process("count", CountWords(), parallelism=parallelism)
        .sink("latest", LatestCounts(), parallelism=parallelism, tick_s=TICK_S)
    )
    return topology


def batched(corpus: Corpus, parallelism: int) -> Topology:
    """One Python call a batch in each step."""
    topology = Topology("throughput")
    (
        topology.source("text", Text(corpus), parallelism=parallelism)
        .process("split", SplitBatch(), parallelism=parallelism)
        .key_by("word")
        .process("count", CountBatch(), parallelism=parallelism)
        .sink("latest", LatestBatch(), parallelism=parallelism, tick_s=TICK_S)
    )
    return topology


def combined(corpus: Corpus, parallelism: int) -> Topology:
    """With a combiner before the exchange."""
    topology = Topology("throughput")
    (
        topology.source("text", Text(corpus), parallelism=parallelism)
        .process("split", SplitAndCombine(), parallelism=parallelism, fields=("word", "times"))
        .key_by("word", "word")
        .process("count", AddBatch(), parallelism=parallelism)
        .sink("latest", LatestCombined(), parallelism=parallelism, tick_s=TICK_S)
    )
    return topology


@dataclass(frozen=True, slots=True)
class Rate:
    """Words a second of the machine's time, and of the CPU time of the busiest process."""

    per_s: float
    per_cpu_s: float


def bare_loop(sentences: list[str], corpus: Corpus, wanted: dict[str, int]) -> Rate:
    """The reference: split and count in one loop, nothing else; timed between 10 and 90 %."""
    counts: dict[str, int] = {}
    tenth = len(sentences) // 10
    _count_into(counts, sentences[:tenth])
    middle = sentences[tenth : 9 * tenth]
    start_s, start_cpu_s = clock.monotonic(), cpu_s()
    _count_into(counts, middle)
    took_s, took_cpu_s = clock.monotonic() - start_s, cpu_s() - start_cpu_s
    _count_into(counts, sentences[9 * tenth :])
    check([{"latest": counts, "updates": sum(counts.values())}], corpus, wanted)
    timed = sum(len(sentence.split()) for sentence in middle)
    return Rate(timed / took_s, timed / max(took_cpu_s, 1e-9))


def _count_into(counts: dict[str, int], sentences: list[str]) -> None:
    get = counts.get
    for sentence in sentences:
        for word in sentence.split():
            counts[word] = get(word, 0) + 1


def steady(series: Sequence[Sequence[tuple[float, float, int]]], total: int) -> Rate:
    """The rate between 10 and 90 % of `total` updates, from each sink's (time, CPU time, updates so far).

    >>> one = [(0.0, 0.0, 0), (10.0, 5.0, 100)]
    >>> steady([one], 100)
    Rate(per_s=10.0, per_cpu_s=20.0)
    """
    moments = sorted({moment for samples in series for moment, _, _ in samples})
    start_s, end_s = (_moment(series, moments, share * total) for share in (0.1, 0.9))
    done = 0.8 * total
    busiest = max(_at(samples, end_s, 1) - _at(samples, start_s, 1) for samples in series)
    return Rate(done / (end_s - start_s), done / max(busiest, 1e-9))


def _moment(series: Sequence[Sequence[tuple[float, float, int]]], moments: Sequence[float], updates: float) -> float:
    before_s, before = moments[0], 0.0
    for moment in moments:
        reached = sum(_at(samples, moment, 2) for samples in series)
        if reached >= updates:
            share = (updates - before) / (reached - before) if reached > before else 1.0
            return before_s + share * (moment - before_s)
        before_s, before = moment, reached
    raise common.CannotMeasure(f"the samples end at {before:.0f} of {updates:.0f} updates")


def _at(samples: Sequence[tuple[float, float, int]], moment: float, column: int) -> float:
    """A column of the samples at a moment, straight between two samples."""
    import numpy as np

    return float(np.interp(moment, [row[0] for row in samples], [row[column] for row in samples]))


def engine(
    build: Callable[[Corpus, int], Topology], workers: int, corpus: Corpus, wanted: dict[str, int], equal_work: bool
) -> Rate:
    """Run the topology on the Ray that is there, check everything it counted, and give its steady rate."""
    report = run(build(corpus, workers), workers=workers, spares=0, folder="")
    return checked_rate(report, corpus, wanted, equal_work)


def checked_rate(report: Any, corpus: Corpus, wanted: dict[str, int], equal_work: bool) -> Rate:
    """The steady rate of a finished run, once its results are found right."""
    sinks: list[dict[str, Any]] = report.results["latest"]
    check(sinks, corpus, wanted)
    counts = report.as_json()["counts"]
    if equal_work:
        expect("words at count", corpus.words, counts["count"]["processed"])
        expect("updates processed by the sink", corpus.words, counts["latest"]["processed"])
    return steady([sink["samples"] for sink in sinks if sink["updates"]], corpus.words)


def check(sinks: list[dict[str, Any]], corpus: Corpus, wanted: dict[str, int]) -> None:
    """Every word was counted, and every update has reached a sink."""
    latest: dict[str, int] = {}
    for sink in sinks:
        expect("words that two sinks have", set(), latest.keys() & sink["latest"].keys())
        latest |= sink["latest"]
    different = [word for word in wanted.keys() | latest.keys() if wanted.get(word) != latest.get(word)]
    expect("words with a wrong count", [], sorted(different)[:5])
    expect("updates at the sink", corpus.words, sum(sink["updates"] for sink in sinks))


CASES: dict[str, tuple[Callable[[Corpus, int], Topology], int]] = {
    "per-record bolts, 1 worker": (per_record, 1),
    "per-record bolts, 2 workers": (per_record, 2),
    "batch bolts, 1 worker": (batched, 1),
    "batch bolts, 2 workers": (batched, 2),
    "combiner, 2 workers": (combined, 2),
}
BARE = "bare Python loop"


def measure(options: argparse.Namespace) -> Outcome:
    """All cases in turn, on one private Ray."""
    corpus = Corpus(sentences=options.sentences or (40_000 if options.quick else 400_000))
    wanted = corpus.counts()
    sentences = corpus.text()
    cases: dict[str, Callable[[], Rate]] = {BARE: partial(bare_loop, sentences, corpus, wanted)}
    for name, (build, workers) in CASES.items():
        if not options.only or any(part in name for part in options.only):
            cases[name] = partial(engine, build, workers, corpus, wanted, build is not combined)
    with common.one_node_ray():
        found = common.alternate(cases, common.runs_of(options))
    common.progress("")
    return outcome(found, corpus)


def outcome(found: dict[str, list[Rate]], corpus: Corpus) -> Outcome:
    """Medians, and their ratios to the bare loop of the same run."""
    bare = median([rate.per_s for rate in found[BARE]])
    bare_cpu = median([rate.per_cpu_s for rate in found[BARE]])
    rows = []
    for name, rates in found.items():
        per_s = median([rate.per_s for rate in rates])
        rows.append(
            {
                "case": name,
                "words_per_s": round(per_s),
                "ratio": round(per_s / bare, 3),
                "lowest": round(min(rate.per_s for rate in rates) / bare, 3),
                "highest": round(max(rate.per_s for rate in rates) / bare, 3),
                "ratio_cpu": round(median([rate.per_cpu_s for rate in rates]) / bare_cpu, 3),
                "runs": len(rates),
            }
        )
    by_name = {row["case"]: row["ratio"] for row in rows}
    goals = _goals(by_name)
    return Outcome(
        "throughput",
        rows,
        goals,
        [
            f"{corpus.sentences:,} sentences of 10 words, {corpus.words:,} checked updates; rate between 10 and 90 %.",
            "ratio: words/s over those of the bare loop of the same run. ratio_cpu: the same for a second of CPU time",
            "of the busiest process: less, but not nothing, of what else the machine does is in it.",
        ],
    )


def _goals(ratios: dict[Any, Any]) -> list[Goal]:
    wanted = {
        "per_record": ("per-record bolts, 2 workers", ">= 0.25"),
        "batch": ("batch bolts, 2 workers", ">= 0.50"),
    }
    return [Goal(name, ratios[case], goal) for name, (case, goal) in wanted.items() if case in ratios]


def main(arguments: list[str]) -> int:
    """Run the benchmark; the status is 1 if it could not measure."""
    options = common.parser(__doc__ or "")
    options.add_argument("--sentences", type=int, help="size of the text, whole thousands (default 400000)")
    options.add_argument("--only", action="append", help="only cases whose name contains this")
    return common.finish(options.parse_args(arguments), "throughput", measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
