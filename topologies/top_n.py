"""Top_N, Sl-Stream's topology 1: read lines, split them into words, count each word, merge the counts into one ranking.

rstream run topologies/top_n.py
rstream run topologies/top_n.py -o table=text/ -o n=20
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rstream import Topology
from rstream.groupings import Global, Shuffle
from rstream.operators import sinks
from rstream.operators.ranking import Ranking
from rstream.topologies import inputs


def build(
    table: str = "",
    n: int = 10,
    read: int = 1,
    split: int = 10,
    count: int = 8,
    lines_per_s: float = 1_000,
    seconds: float = inputs.SECONDS,
) -> Topology:
    """The `n` most frequent words of the lines of `table`; `read`, `split` and `count` are the steps' instances."""
    return top_n("top_n", table, n, read, split, count, lines_per_s, seconds)


def top_n(
    name: str, table: str, n: int, read: int, split: int, count: int, lines_per_s: float, seconds: float
) -> Topology:
    """Top_N by any name and size: the merge is always one instance."""
    topology = Topology(name)
    source = inputs.rows(table, inputs.LINES, inputs.line, lines_per_s, seconds)
    lines = topology.source("read", source, parallelism=read)
    words = lines.grouped(Shuffle()).flat_map("split", words_of, parallelism=split)
    counts = words.key_by("word").count("count", parallelism=count, fields=("word", "n"))
    ranks = counts.grouped(Global()).process("merge", Ranking(n), tick_s=1.0)
    ranks.map("place", by_place).sink("top", sinks.Latest())
    return topology


def words_of(row: tuple[str]) -> list[str]:
    """The words of a line, in lower case."""
    return row[0].lower().split()


def by_place(rank: tuple[int, str, int]) -> tuple[int, tuple[str, int]]:
    """A rank as a pair, so that the newest of each place is kept."""
    return rank[0], (rank[1], rank[2])


def truth(
    table: str = "", n: int = 10, lines_per_s: float = 1_000, seconds: float = inputs.SECONDS, **sizes: int
) -> dict[str, list[Any]]:
    """What `top` must hold at the end, counted here: `rstream chaos` compares with it."""
    lines = inputs.lines(table, inputs.line, int(lines_per_s * seconds))
    counts = Counter(word for line in lines for word in line.lower().split())
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:n]
    return {"top": list(enumerate(best, start=1))}


def summary(results: Mapping[str, list[Any]]) -> str:
    """The ranking."""
    return "\n".join(f"{place:>4}  {word:<20} {n:>9,}" for place, (word, n) in sorted(results.get("top", [])))
