"""COMMCount, Es-Stream's first application: how often each commodity was browsed (Tianchi user behaviour).

rstream run topologies/commcount.py
rstream run topologies/commcount.py -o table=tianchi/
rstream submit topologies/commcount.py -o table=ingest    # and: rstream data replay tianchi/ --to commcount --rate E10
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rstream import Bolt, Topology
from rstream.api import Context, Out
from rstream.groupings import Shuffle
from rstream.operators import sinks
from rstream.topologies import inputs


def build(
    table: str = "", read: int = 2, split: int = 3, count: int = 3, rows_per_s: float = 1_800, work_ms: float = 0.0
) -> Topology:
    """Count page views by item; `work_ms` keeps a `split` replica busy for so long a row, to give it a capacity."""
    topology = Topology("commcount")
    source = inputs.rows(table, inputs.TIANCHI, inputs.behaviour, rows_per_s)
    rows = topology.source("read", source, parallelism=read)
    browsed = rows.grouped(Shuffle()).process("split", Browsed(work_ms), parallelism=split)
    counts = browsed.key_by("item").count("count", parallelism=count, fields=("item", "n"))
    counts.sink("counts", sinks.Latest())
    return topology


class Browsed(Bolt):
    """The item of each page view."""

    def __init__(self, work_ms: float) -> None:
        self.work_ms = work_ms

    def open(self, ctx: Context) -> None:
        self._ctx = ctx

    def process(self, row: Any, out: Out) -> None:
        if self.work_ms:
            self._ctx.occupy(self.work_ms)
        if row[3] == "pv":
            out.emit(row[1])


def summary(results: Mapping[str, list[Any]]) -> str:
    """The ten items that were browsed most."""
    best = sorted(results.get("counts", []), key=lambda pair: (-pair[1], pair[0]))[:10]
    return "\n".join(["Browsed most:", *(f"  item {item:<10} {n:>9,}" for item, n in best)])
