"""Subgraphs to nodes at minimum cost (Sl-Stream's Algorithm 2), and the order in which tasks move."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from rstream.schedulers.tables import Floats

Task = TypeVar("Task")
Node = TypeVar("Node")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A distinct column for every row, and what that costs."""

    columns: list[int]
    total: float


def assign(cost: npt.ArrayLike) -> Assignment | None:
    """The cheapest assignment of all rows to distinct columns; None when forbidden pairs (inf) leave none (Sl-10).

    >>> assign([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    Assignment(columns=[1, 0, 2], total=5.0)
    """
    table = np.asarray(cost, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] > table.shape[1]:
        return None
    try:
        rows, columns = linear_sum_assignment(table)
    except ValueError:  # the solver's way to say that no assignment avoids every forbidden pair
        return None
    return Assignment(columns.tolist(), float(table[rows, columns].sum()))


def deploy_costs(free: Floats, needs: Floats, mu: float) -> Floats:
    """Eqs 11 and 14 on free capacity (Sl-9): what a node would have left; inf where cpu or memory does not fit.

    Rows are subgraphs, columns are nodes.
    """
    left = free[None, :, :] - needs[:, None, :]
    cost = mu * left[:, :, 0] + (1.0 - mu) * left[:, :, 1]
    return np.where(np.all(left >= 0, axis=2), cost, np.inf)


# Every pairing of the same nodes costs the same, so that even this little decides which subgraph goes where.
STAY_BONUS = 1e-9


def deploy(costs: Floats, held: Floats | None = None) -> Assignment | None:
    """The cheapest nodes; of equal ones those that already run most of a subgraph's tasks (`held`, same shape)."""
    if held is None:
        return assign(costs)
    found = assign(np.where(np.isinf(costs), np.inf, costs - STAY_BONUS * held))
    if found is None:
        return None
    return Assignment(found.columns, float(sum(costs[row, column] for row, column in enumerate(found.columns))))


@dataclass(frozen=True, slots=True)
class HalfBatch:
    """What half a layer down at once does to the states whose blocks it holds (Sl-13)."""

    lost: int
    checks_needed: int
    recoverable: bool


def half_batch(upstream: int, checks: int, moved: int) -> HalfBatch:
    """Whether a downstream state survives while the first half of `moved` upstream instances is down.

    >>> half_batch(8, 3, 8)
    HalfBatch(lost=4, checks_needed=4, recoverable=False)
    """
    lost = min(upstream, math.ceil(moved / 2))
    return HalfBatch(lost, lost, lost <= checks)


def half_batches(
    layers: Sequence[Sequence[Task]], old: Mapping[Task, Node], new: Mapping[Task, Node]
) -> list[list[tuple[Task, Node, Node]]]:
    """Layer by layer, the tasks that change node: first the larger half, then the rest (Algorithm 3)."""
    batches = []
    for layer in layers:
        moved = [
            (task, old[task], new[task]) for task in layer if task in old and task in new and old[task] != new[task]
        ]
        half = math.ceil(len(moved) / 2)
        batches += [batch for batch in (moved[:half], moved[half:]) if batch]
    return batches
