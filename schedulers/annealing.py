"""Simulated annealing over partitions: half of the moves shift one task, half swap two.

Costs are kept incrementally: a move touches two subgraphs and the neighbours of the tasks that move, so that a try
costs the same in a graph of ten tasks and of ten thousand. The best partition ever seen comes back, not the last.
"""

from __future__ import annotations

import math

import numpy as np

from rstream.schedulers.partition import SLACK, Graph, Limits, Schedule, accept_probability
from rstream.schedulers.tables import Ints

# Moving one of n tasks changes the cost by about 1/n, so past this size temperatures shrink with the graph;
# otherwise a large graph would be shuffled from start to end.
SIZE_UNSCALED = 100


def anneal(
    graph: Graph,
    start: Ints,
    parts: int,
    epsilon: float,
    limits: Limits,
    schedule: Schedule,
    rng: np.random.Generator,
) -> Ints:
    """The best partition found from `start`; moves that would overfill a subgraph are never made.

    >>> graph = Graph.of(4, [(0, 1, 9.0), (2, 3, 9.0), (1, 2, 1.0)])
    >>> limits, rng = Limits.tasks_only(4, 2), np.random.default_rng(1)
    >>> found = anneal(graph, np.array([0, 1, 0, 1]), 2, 0.7, limits, Schedule(), rng).tolist()
    >>> found[0] == found[1] != found[2] == found[3]
    True
    """
    if graph.size < 2 or parts < 2:
        return start.copy()
    state = _State(graph, start, parts, epsilon, limits)
    current = best = state.cost(0.0, 0.0, 0, 0)
    best_labels = list(state.label)
    scale = min(1.0, SIZE_UNSCALED / graph.size)
    temperature, moves = schedule.start, schedule.moves
    while temperature > schedule.end:
        tasks = rng.integers(graph.size, size=moves).tolist()
        others = rng.integers(graph.size, size=moves).tolist()
        targets = rng.integers(parts, size=moves).tolist()
        swaps = (rng.random(moves) < 0.5).tolist()
        chances = rng.random(moves).tolist()
        for at in range(moves):
            task, other = tasks[at], others[at]
            source = state.label[task]
            if swaps[at]:
                target = state.label[other]
                if source == target or not state.swap_fits(task, other):
                    continue
                lost, gained = state.swap_gain(task, other)
            else:
                target, other = targets[at], -1
                if source == target or not state.fits(task, target):
                    continue
                lost, gained = state.move_gain(task, target)
            new = state.cost(lost, gained, source, target)
            if new > current and chances[at] >= accept_probability(new, current, temperature * scale):
                continue
            state.move(task, target)
            if other >= 0:
                state.move(other, source)
            current = new
            if new < best - 1e-12:
                best, best_labels = new, list(state.label)
        temperature *= schedule.cooling
    return np.array(best_labels, dtype=np.int64)


class _State:
    """A partition and all sums that its cost and its limits need.

    `_link[task * parts + label]` is the traffic of a task with a subgraph; single figures are kept in plain lists,
    which single steps read fastest.
    """

    def __init__(self, graph: Graph, start: Ints, parts: int, epsilon: float, limits: Limits) -> None:
        starts, near, weight = graph.neighbours
        bounds = starts.tolist()
        spans = [slice(bounds[task], bounds[task + 1]) for task in range(graph.size)]
        self._near = [near[span] for span in spans]
        self._rows = [near[span] * parts for span in spans]
        self._flow = [weight[span] for span in spans]
        self.label: list[int] = [int(label) for label in start]
        self._loop: list[float] = graph.loops.tolist()
        owner = np.repeat(np.arange(graph.size), np.diff(starts))
        cells = owner * parts + np.asarray(start)[near]
        self._link = np.bincount(cells, weight, graph.size * parts).astype(np.float64, copy=False)
        self._read = self._link.item
        self._inside = [0.0] * parts
        self._demand, self._count = [0.0] * parts, [0] * parts
        self._needs = [[0.0] * limits.needs.shape[1] for _ in range(parts)]
        self._task_demand: list[float] = limits.demand.tolist()
        self._task_needs: list[list[float]] = limits.needs.tolist()
        for task, label in enumerate(self.label):
            self._inside[label] += self._read(task * parts + label) / 2.0 + self._loop[task]
            self._count[label] += 1
            self._demand[label] += self._task_demand[task]
            for at, need in enumerate(self._task_needs[task]):
                self._needs[label][at] += need
        self._sum = math.fsum(self._inside)
        self._squares = math.fsum(weight * weight for weight in self._inside)
        self._total, self._parts, self._epsilon = graph.total, parts, epsilon
        self._demand_max, self._need_max = limits.demand_max + SLACK, limits.need_max + SLACK
        self._tasks_max = limits.tasks_max

    def fits(self, task: int, target: int) -> bool:
        if self._count[target] >= self._tasks_max:
            return False
        if self._demand[target] + self._task_demand[task] > self._demand_max:
            return False
        limit = self._need_max
        return all(held + need <= limit for held, need in zip(self._needs[target], self._task_needs[task], strict=True))

    def swap_fits(self, one: int, other: int) -> bool:
        return self._trade_fits(one, other) and self._trade_fits(other, one)

    def _trade_fits(self, leaves: int, comes: int) -> bool:
        label = self.label[leaves]
        more = self._task_demand[comes] - self._task_demand[leaves]
        if more > 0 and self._demand[label] + more > self._demand_max:
            return False
        limit = self._need_max
        for held, new, old in zip(self._needs[label], self._task_needs[comes], self._task_needs[leaves], strict=True):
            if new > old and held + new - old > limit:
                return False
        return True

    def move_gain(self, task: int, target: int) -> tuple[float, float]:
        """How the inside weights of source and target change."""
        row, loop = task * self._parts, self._loop[task]
        return -(self._read(row + self.label[task]) + loop), self._read(row + target) + loop

    def swap_gain(self, one: int, other: int) -> tuple[float, float]:
        a, b = self.label[one], self.label[other]
        row, column = one * self._parts, other * self._parts
        between = self._between(one, other)
        more = self._loop[other] - self._loop[one]
        at_a = self._read(column + a) - between - self._read(row + a) + more
        at_b = self._read(row + b) - between - self._read(column + b) - more
        return at_a, at_b

    def _between(self, one: int, other: int) -> float:
        near = self._near[one]
        at = int(near.searchsorted(other))
        return float(self._flow[one][at]) if at < len(near) and near[at] == other else 0.0

    def cost(self, lost: float, gained: float, source: int, target: int) -> float:
        """The cost after such a change, by the sums of inside weights and of their squares."""
        a, b = self._inside[source], self._inside[target]
        inside = self._sum + lost + gained
        squares = self._squares + lost * (2.0 * a + lost) + gained * (2.0 * b + gained)
        if inside <= 1e-12 * self._total:
            uneven = math.sqrt(self._parts - 1)
        else:
            uneven = math.sqrt(max(0.0, self._parts * squares - inside * inside)) / inside
        cut = 1.0 - inside / self._total if self._total > 0 else 0.0
        return self._epsilon * cut + (1.0 - self._epsilon) * uneven

    def move(self, task: int, target: int) -> None:
        source = self.label[task]
        lost, gained = self.move_gain(task, target)
        for label, change in ((source, lost), (target, gained)):
            before = self._inside[label]
            self._inside[label] = before + change
            self._squares += change * (2.0 * before + change)
            self._sum += change
        self.label[task] = target
        demand, needs = self._task_demand[task], self._task_needs[task]
        for label, sign in ((source, -1), (target, 1)):
            self._count[label] += sign
            self._demand[label] += sign * demand
            held = self._needs[label]
            for at, need in enumerate(needs):
                held[at] += sign * need
        rows, flow = self._rows[task], self._flow[task]
        self._link[rows + source] -= flow  # each neighbour stands here once, so that nothing is added twice
        self._link[rows + target] += flow
