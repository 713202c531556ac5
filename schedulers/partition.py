"""Cutting a task graph into subgraphs: the graph itself, what a cut costs, what a subgraph may hold.

The objective is Ra-Stream's: the share of traffic that is cut, and how unevenly the rest lies inside
the subgraphs, under a limit of load and of tasks per subgraph. Without a limit the best cut would be no cut (Ra-8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rstream.schedulers.tables import Floats, Ints

# Demands are sums of shares: a subgraph that is exactly full must not be refused for the last digit.
SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class Graph:
    """Directed traffic between tasks 0..size-1."""

    size: int
    source: Ints
    target: Ints
    weight: Floats

    @classmethod
    def of(cls, size: int, edges: Sequence[Sequence[float]]) -> Graph:
        """From (source, target, weight) triples.

        >>> Graph.of(3, [(0, 1, 5.0), (1, 2, 2.0)]).total
        7.0
        """
        table = np.array(edges, dtype=np.float64).reshape(-1, 3)
        return cls(size, table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2].copy())

    @property
    def total(self) -> float:
        """All traffic."""
        return float(self.weight.sum())

    @cached_property
    def neighbours(self) -> tuple[Ints, Ints, Floats]:
        """Both directions in rows: row starts, neighbours, weights, each neighbour once; loops are left out."""
        apart = self.source != self.target
        left = np.concatenate((self.source[apart], self.target[apart]))
        right = np.concatenate((self.target[apart], self.source[apart]))
        weight = np.concatenate((self.weight[apart], self.weight[apart]))
        pair, where = np.unique(left * max(1, self.size) + right, return_inverse=True)
        summed = np.bincount(where.reshape(-1), weight, len(pair)).astype(np.float64, copy=False)
        starts = np.searchsorted(pair, np.arange(self.size + 1) * max(1, self.size))
        return starts.astype(np.int64), pair % max(1, self.size), summed

    @cached_property
    def loops(self) -> Floats:
        """Traffic of each task with itself."""
        same = self.source == self.target
        return np.bincount(self.source[same], self.weight[same], self.size).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class Cut:
    """What one partition costs (eqs 16 to 19)."""

    cut: float
    inside: list[float]
    share: float
    sigma: float
    cost: float


def inside_weights(graph: Graph, labels: Ints, parts: int) -> Floats:
    """Traffic inside every subgraph; `labels` may hold many partitions, one per row."""
    many = np.atleast_2d(labels)
    start, end = many[:, graph.source], many[:, graph.target]
    offset = np.arange(len(many))[:, None] * parts
    code = np.where(start == end, start + offset, len(many) * parts)
    weight = np.broadcast_to(graph.weight, code.shape)
    found = np.bincount(code.ravel(), weight.ravel(), len(many) * parts + 1)[:-1].reshape(len(many), parts)
    return found.astype(np.float64, copy=False)


def rate_cut(graph: Graph, labels: Sequence[int] | Ints, parts: int, epsilon: float) -> Cut:
    """Eq 19 with the spread taken relative to its mean (Ra-8).

    >>> rate_cut(Graph.of(2, [(0, 1, 4.0)]), [0, 0], 1, 0.7).cost
    0.0
    """
    inside = inside_weights(graph, np.asarray(labels, dtype=np.int64), parts)[0]
    total = graph.total
    share = (total - float(inside.sum())) / total if total > 0 else 0.0
    sigma, mean = float(inside.std()), float(inside.mean())
    uneven = sigma / mean if mean > 0 else math.sqrt(parts - 1)
    cut = total - float(inside.sum())
    return Cut(cut, inside.tolist(), share, sigma, epsilon * share + (1.0 - epsilon) * uneven)


@dataclass(frozen=True, eq=False)
class Limits:
    """What a subgraph may hold: scalar demand, each dimension of it, number of tasks.

    `demand` is one number per task, `needs` its (tasks, dimensions) parts.
    """

    demand: Floats
    needs: Floats
    demand_max: float
    need_max: float
    tasks_max: int

    @classmethod
    def tasks_only(cls, size: int, tasks_max: int | None) -> Limits:
        """Limit nothing but the number of tasks."""
        return cls(np.zeros(size), np.zeros((size, 1)), 1.0, 1.0, size if tasks_max is None else tasks_max)


def first_fit(limits: Limits, parts: int) -> Ints:
    """Tasks in the order given (topological, say), each into the first subgraph with room; the emptiest if none has."""
    labels = np.zeros(len(limits.demand), dtype=np.int64)
    demand, needs = np.zeros(parts), np.zeros((parts, limits.needs.shape[1]))
    count = np.zeros(parts, dtype=np.int64)
    for task in range(len(labels)):
        fits = (
            (demand + limits.demand[task] <= limits.demand_max + SLACK)
            & np.all(needs + limits.needs[task] <= limits.need_max + SLACK, axis=1)
            & (count < limits.tasks_max)
        )
        into = int(np.argmax(fits)) if fits.any() else int(np.argmin(count))
        labels[task] = into
        demand[into] += limits.demand[task]
        needs[into] += limits.needs[task]
        count[into] += 1
    return labels


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cooling: from `start` down to `end` by factor `cooling`, `moves` tries at each temperature."""

    start: float = 1.0
    end: float = 1e-3
    cooling: float = 0.99
    moves: int = 50


def accept_probability(new: float, current: float, temperature: float) -> float:
    """Metropolis, with the minus sign that eq 20 lacks (Ra-9).

    >>> accept_probability(0.5, 0.6, 1.0)
    1.0
    """
    if new <= current:
        return 1.0
    return math.exp(-(new - current) / temperature) if temperature > 0 else 0.0
