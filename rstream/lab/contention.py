"""How much slower a thread runs because others on its node want the same cores.

A node runs n threads on c cores. Each thread is busy a known share of the time, so that the number of others that
want a core at the same moment is close to binomial; with b others a thread gets min(1, c/(b+1)) of a core. The
mean of (b+1)/c beyond c is the slowdown. It is 1 while n <= c, and exactly n/c when all are always busy, so that a
full node does the work of its c cores and no more.
"""

from __future__ import annotations

import numpy as np

from rstream.schedulers.tables import Floats, Ints


def slowdown(threads: Ints, busy: Floats, cores: Floats) -> Floats:
    """Per node: the factor by which CPU work takes longer, for `threads` that are `busy` (their mean, 0 to 1).

    >>> slowdown(np.array([2, 4, 4]), np.array([1.0, 1.0, 0.5]), np.array([2.0, 2.0, 2.0])).round(4).tolist()
    [1.0, 2.0, 1.3125]
    """
    factor = np.ones(len(threads))
    crowded = threads > cores
    if not crowded.any():
        return factor
    others, p, c = threads[crowded] - 1, np.clip(busy[crowded], 0.0, 1.0), cores[crowded]
    odds = np.where(p < 1.0, p / np.maximum(1.0 - p, 1e-12), 0.0)
    chance = np.where(p < 1.0, (1.0 - p) ** others, 0.0)
    total, mass = np.zeros(len(others)), np.zeros(len(others))
    for b in range(int(others.max()) + 1):
        total += chance * np.maximum(1.0, (b + 1) / c)
        mass += chance
        chance = chance * odds * np.maximum(others - b, 0) / (b + 1)
    total = np.where(p < 1.0, total / np.maximum(mass, 1e-300), (others + 1) / c)
    factor[crowded] = np.maximum(1.0, total)
    return factor
