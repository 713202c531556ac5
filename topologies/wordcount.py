"""WordCount: the lines of a text, split into words, counted by word. The first topology that everyone runs.

rstream run topologies/wordcount.py
rstream run topologies/wordcount.py -o text=my.txt -o parallelism=4
rstream run topologies/wordcount.py -o table=text/
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rstream import Topology
from rstream.operators import sinks, sources

BUNDLED = Path(__file__).parent / "data" / "river.txt"


def build(
    text: str | None = None, table: str = "", parallelism: int = 2, lines_per_s: float = 5_000, seconds: float = 8
) -> Topology:
    """Count the words of the file `text`, or of the lines of a `table` that `rstream data ingest text` made.

    Without either, those of a bundled text that is repeated at a steady rate for a while.
    """
    topology = Topology("wordcount")
    source = sources.Files(text) if text else repeated(lines_per_s, seconds)
    (
        topology.source("lines", sources.ParquetRows(table, ("line",)) if table else source, parallelism=parallelism)
        .flat_map("split", words_of_row if table else words, parallelism=parallelism)
        .key_by("word")
        .count("count", parallelism=parallelism, fields=("word", "n"))
        .sink("top", sinks.Latest())
    )
    return topology


def repeated(lines_per_s: float, seconds: float) -> sources.Rate:
    """The bundled text again and again, at a rate."""
    lines = BUNDLED.read_text(encoding="utf-8").splitlines()
    return sources.Rate(lambda n: lines[n % len(lines)], per_s=lines_per_s, limit=int(lines_per_s * seconds))


def truth(
    text: str | None = None, parallelism: int = 2, lines_per_s: float = 5_000, seconds: float = 8
) -> dict[str, list[Any]]:
    """What `top` must hold at the end, counted here: `rstream chaos` compares with it."""
    if text:
        lines = [line for path in sorted(glob.glob(text)) for line in Path(path).read_text("utf-8").splitlines()]
        times = dict.fromkeys(range(len(lines)), 1)
    else:
        lines = BUNDLED.read_text(encoding="utf-8").splitlines()
        rounds, rest = divmod(int(lines_per_s * seconds), len(lines))
        times = {number: rounds + (number < rest) for number in range(len(lines))}
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines):
        for word in words(line):
            counts[word] += times[number]
    return {"top": [(word, count) for word, count in counts.items() if count]}


def words(line: str) -> list[str]:
    """The words of a line, in lower case and without punctuation."""
    return [word for word in (raw.strip(".,;:!?\"'()").lower() for raw in line.split()) if word]


def words_of_row(row: tuple[str]) -> list[str]:
    """The words of a row of a table of lines."""
    return words(row[0])


def summary(results: Mapping[str, list[Any]]) -> str:
    """The ten most frequent words, and where to go next."""
    top = sorted(results.get("top", []), key=lambda pair: (-pair[1], pair[0]))[:10]
    width = max((len(word) for word, _ in top), default=0)
    lines = [f"  {word:<{width}}  {count:>9,}" for word, count in top]
    return "\n".join(
        [
            "The most frequent words:",
            *lines,
            "",
            "Next: run it on a text of yours:  rstream run topologies/wordcount.py -o text=FILE",
            "      write your own topology:    docs/getting-started.md",
        ]
    )
