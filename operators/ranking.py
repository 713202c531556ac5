"""A running ranking: the keys with the greatest counts so far, over everything that several tasks count."""

from __future__ import annotations

from typing import Any

from rstream.api import Bolt, Out
from rstream.errors import TopologyError


class Ranking(Bolt):
    """The `n` greatest `(key, count)` so far as `(place, key, count)`, places from 1 on, at each tick and at the end.

    Counts only grow, as those of `count` do; so a key that is not among the greatest can be forgotten: it comes again
    with a greater count if it ever belongs there. Runs as one task. Of equal counts, the least keys come first.

    >>> from rstream import Topology
    >>> from rstream.testing import run
    >>> topology = Topology("top")
    >>> counts = topology.source("words", ["a", "b", "b", "c", "b", "c"]).key_by("word").count("count")
    >>> _ = counts.process("top", Ranking(2)).sink("out")
    >>> run(topology)["out"]
    [(1, 'b', 3), (2, 'c', 2)]
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise TopologyError(f"a ranking needs n of at least 1, got {n}")
        self.n = n
        self.best: dict[Any, Any] = {}
        self.least: Any = None
        self.changed = False

    def process(self, value: Any, out: Out) -> None:
        self.process_batch([value], out)

    def process_batch(self, values: list[Any], out: Out) -> None:
        for key, count in values:
            if key in self.best:
                self.best[key] = max(self.best[key], count)
                self.changed = True
            elif self.least is None or count >= self.least:
                self.best[key] = count
                self.changed = True
                if len(self.best) >= 4 * self.n:
                    self._cut()

    def _cut(self) -> None:
        """Forget all but the greatest; twice as many as wanted stay, so that this is seldom needed.

        From then on a key needs at least the count of the last one kept: those kept only grow.
        """
        kept = self._ranked()[: 2 * self.n]
        self.best = dict(kept)
        self.least = kept[-1][1]

    def _ranked(self) -> list[tuple[Any, Any]]:
        return sorted(self.best.items(), key=lambda pair: (-pair[1], pair[0]))

    def on_tick(self, out: Out) -> None:
        if self.changed:
            self.changed = False
            for place, (key, count) in enumerate(self._ranked()[: self.n], start=1):
                out.emit((place, key, count))

    def on_end(self, out: Out) -> None:
        self.changed = True
        self.on_tick(out)

    def snapshot(self) -> Any:
        return [self.best, self.least, self.changed]

    def restore(self, snapshot: Any) -> None:
        self.best, self.least, self.changed = snapshot
