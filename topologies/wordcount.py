"""WordCount: the lines of a text, split into words, counted by word. The first topology that everyone runs.

rstream run topologies/wordcount.py
rstream run topologies/wordcount.py -o text=my.txt -o parallelism=4
rstream run topologies/wordcount.py -o table=text/
"""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rstream import Topology
from rstream.operators import sinks, sources
from rstream.topologies import inputs

BUNDLED = Path(__file__).parent / "data" / "river.txt"
NEXT = """
Next: run it on a text of yours:  rstream run topologies/wordcount.py -o text=FILE
      write your own topology:    docs/getting-started.md"""


def build(
    text: str | None = None, table: str = "", parallelism: int = 2, lines_per_s: float = 5_000, seconds: float = 8
) -> Topology:
    """Count the words of the file `text`, or of the lines of a `table` that `rstream data ingest text` made.

    Without either, those of a bundled text that is repeated at a steady rate for a while.
    """
    topology = Topology("wordcount")
    source = sources.Files(text) if text else inputs.rows(table, inputs.LINES, bundled(), lines_per_s, seconds)
    (
        topology.source("lines", source, parallelism=parallelism)
        .flat_map("split", words if text else words_of_row, parallelism=parallelism)
        .key_by("word")
        .count("count", parallelism=parallelism, fields=("word", "n"))
        .sink("top", sinks.Latest())
    )
    return topology


def bundled() -> Callable[[int], tuple[str]]:
    """Gives the n-th row of the bundled text, which begins again at its end."""
    lines = BUNDLED.read_text(encoding="utf-8").splitlines()
    return lambda n: (lines[n % len(lines)],)


def truth(
    text: str | None = None, table: str = "", parallelism: int = 2, lines_per_s: float = 5_000, seconds: float = 8
) -> dict[str, list[Any]]:
    """What `top` must hold at the end, counted here: `rstream chaos` compares with it."""
    if text:
        lines = [line for path in sorted(glob.glob(text)) for line in Path(path).read_text("utf-8").splitlines()]
    else:
        lines = inputs.lines(table, bundled(), int(lines_per_s * seconds))
    return {"top": list(Counter(word for line in lines for word in words(line)).items())}


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
    return "\n".join(["The most frequent words:", *lines, NEXT])
