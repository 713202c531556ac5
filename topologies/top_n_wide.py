"""Top_N, Sl-Stream's topology 2: the same steps as `top_n`, with more readers and fewer of the others.

rstream run topologies/top_n_wide.py
"""

from __future__ import annotations

from rstream import Topology
from rstream.topologies import inputs
from rstream.topologies.top_n import summary, top_n, truth

__all__ = ["build", "summary", "truth"]


def build(
    table: str = "",
    n: int = 10,
    read: int = 4,
    split: int = 3,
    count: int = 3,
    lines_per_s: float = 1_000,
    seconds: float = inputs.SECONDS,
) -> Topology:
    """The `n` most frequent words of the lines of `table`."""
    return top_n("top_n_wide", table, n, read, split, count, lines_per_s, seconds)
