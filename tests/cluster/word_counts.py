"""A text with a fixed seed, and a word count for every grouping that promises an exact one."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rstream import Bolt, Topology
from rstream.api import Context, Out
from rstream.groupings import (
    All,
    Custom,
    Direct,
    Global,
    Grouping,
    LoadBalanced,
    LocalOrShuffle,
    NoGrouping,
    PartialKey,
    Shuffle,
)
from rstream.operators import sinks, sources
from rstream.topology import Stream

VOCABULARY = 20_000
SPLIT_BYTES = 1 << 18


def write_text(path: Path, size_bytes: int, seed: int = 28) -> Counter[str]:
    """Write a text of about this size, words by Zipf's law; gives an independent count of what the file holds."""
    rng = random.Random(seed)
    syllables = ["ka", "lo", "mi", "ré", "su", "ton", "ver", "wash", "ü", "ß", "x", "zen"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) + str(n % 100) for n in range(VOCABULARY)]
    weights = [1 / (rank + 1) for rank in range(VOCABULARY)]
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size_bytes:
            drawn = iter(rng.choices(words, weights, k=50_000))
            while line := [word for word, _ in zip(drawn, range(rng.randint(1, 19)), strict=False)]:
                file.write(" ".join(line) + "\n")
    return Counter(path.read_text(encoding="utf-8").split())


def owner(word: str, tasks: int) -> int:
    """The task of a word by a hash of our own."""
    return zlib.crc32(word.encode()) % tasks


class Tally(Bolt):
    """Counts words in a dictionary and tells the counts at the end."""

    def open(self, ctx: Context) -> None:
        self.counts: Counter[str] = Counter()

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.counts.update(values)

    def on_end(self, out: Out) -> None:
        out.extend(list(self.counts.items()))


class OwnTally(Tally):
    """Counts only the words that are its own; the others are some other task's."""

    def open(self, ctx: Context) -> None:
        super().open(ctx)
        self.task, self.tasks = ctx.task, ctx.parallelism

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.counts.update([word for word in values if owner(word, self.tasks) == self.task])


class SendToOwner(Bolt):
    """Splits lines and names the receiving task of each word."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def process(self, value: Any, out: Out) -> None:
        for word in value.split():
            out.emit_direct(owner(word, self.tasks), word)


def _split(topology: Topology, text: Path, tasks: int) -> Stream:
    lines = topology.source("lines", sources.Files(text, split_bytes=SPLIT_BYTES), parallelism=tasks)
    return lines.flat_map("split", str.split, parallelism=tasks)


def by_key(topology: Topology, text: Path, tasks: int) -> None:
    """Equal words meet in one task, which keeps a running count."""
    words = _split(topology, text, tasks)
    words.key_by("word").count("count", parallelism=tasks).sink("out", sinks.Latest())


def by_fields(topology: Topology, text: Path, tasks: int) -> None:
    """The same in Storm's words."""
    topology.spout("lines", sources.Files(text, split_bytes=SPLIT_BYTES), parallelism=tasks)
    topology.bolt("split", SplitPairs, parallelism=tasks, fields=("word", "length")).shuffle("lines")
    topology.bolt("count", PairTally, parallelism=tasks).fields("split", "word")
    topology.bolt("out", sinks.Collect, kind="sink").global_("count")


class PairTally(Tally):
    """Counts the words of pairs."""

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.counts.update([word for word, _ in values])


class SplitPairs(Bolt):
    """(word, length) of every word."""

    def process(self, value: Any, out: Out) -> None:
        for word in value.split():
            out.emit((word, len(word)))


def merged(grouping: Grouping) -> Callable[[Topology, Path, int], None]:
    """Words shared out by a grouping that parts equal ones, counted, and the counts merged by word."""

    def build(topology: Topology, text: Path, tasks: int) -> None:
        parts = _split(topology, text, tasks).grouped(grouping).process("part", Tally(), parallelism=tasks)
        totals = parts.key_by("word", _word).reduce("merge", _add, parallelism=tasks)
        totals.sink("out", LatestMerged())

    return build


class LatestMerged(sinks.Latest):
    """Of `(word, (word, n))` the newest n of each word."""

    def process_batch(self, values: list[Any], out: Out) -> None:
        self.values.update([pair for _, pair in values])


def _word(pair: tuple[str, int]) -> str:
    return pair[0]


def _add(so_far: tuple[str, int], pair: tuple[str, int]) -> tuple[str, int]:
    return pair[0], so_far[1] + pair[1]


def keyed_after(grouping: Grouping) -> Callable[[Topology, Path, int], None]:
    """Lines shared out by a grouping, then a count by word."""

    def build(topology: Topology, text: Path, tasks: int) -> None:
        lines = topology.source("lines", sources.Files(text, split_bytes=SPLIT_BYTES), parallelism=tasks)
        words = lines.grouped(grouping).flat_map("split", str.split, parallelism=tasks)
        words.key_by("word").count("count", parallelism=tasks).sink("out", sinks.Latest())

    return build


def once(grouping: Grouping, tally: type[Tally] = Tally) -> Callable[[Topology, Path, int], None]:
    """Words shared out so that one task has all of a word."""

    def build(topology: Topology, text: Path, tasks: int) -> None:
        counts = _split(topology, text, tasks).grouped(grouping).process("count", tally(), parallelism=tasks)
        counts.sink("out")

    return build


def by_direct(topology: Topology, text: Path, tasks: int) -> None:
    """The sender names the task of each word."""
    lines = topology.source("lines", sources.Files(text, split_bytes=SPLIT_BYTES), parallelism=tasks)
    words = lines.process("split", SendToOwner(tasks), parallelism=tasks)
    words.grouped(Direct()).process("count", Tally(), parallelism=tasks).sink("out")


GROUPINGS: dict[str, Callable[[Topology, Path, int], None]] = {
    "key": by_key,
    "fields": by_fields,
    "partial-key": merged(PartialKey()),
    "shuffled-words": merged(Shuffle()),
    "shuffle": keyed_after(Shuffle()),
    "local-or-shuffle": keyed_after(LocalOrShuffle()),
    "none": keyed_after(NoGrouping()),
    "load-balanced": keyed_after(LoadBalanced()),
    "custom": once(Custom(owner)),
    "direct": by_direct,
    "global": once(Global()),
    "all": once(All(), OwnTally),
}


def word_count(grouping: str, text: Path, tasks: int) -> Topology:
    """The word count of a grouping, with this many tasks a step."""
    topology = Topology(f"words-{grouping}-{tasks}")
    GROUPINGS[grouping](topology, text, tasks)
    return topology
