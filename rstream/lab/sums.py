"""Sums by group over columns: the one numpy idiom that the whole model is made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rstream.schedulers.tables import Floats, Ints


def add_up(groups: Ints, amounts: npt.ArrayLike, size: int) -> Floats:
    """The sum of the amounts of each group 0..size-1.

    >>> add_up(np.array([0, 2, 0]), [1.0, 2.0, 3.0], 3).tolist()
    [4.0, 0.0, 2.0]
    """
    return np.asarray(np.bincount(groups, np.asarray(amounts, dtype=np.float64), size), dtype=np.float64)
