"""Ra-Stream's resource scaling: merge, spread and split subgraphs until each sits in its band.

The printed algorithm does not end; this form does. Every step either removes a subgraph, lifts one into the band
without pushing another out, or takes load off an overloaded one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rstream.schedulers.partition import SLACK, Graph, Limits
from rstream.schedulers.tables import Bools, Floats, Ints

# How many subgraphs a homeless task looks at for one smaller task to send on, and up to how many there are at all:
# among hundreds a gap of the right size is nearly always there without such trades.
EJECT_TRIES = 8
EJECT_PARTS = 64


def out_of_band(demand: float, under: float, over: float) -> bool:
    """Whether a subgraph must be adjusted; the bounds themselves are in range (Ra-13)."""
    return demand < under or demand > over


@dataclass(frozen=True, slots=True)
class Band:
    """Node counts that put every node inside the band, and the fewest that capacity allows (Ra-12)."""

    feasible: list[int]
    floor: int


def band(total: float, under: float, over: float, nodes: int) -> Band:
    """Which node counts suit a total demand.

    >>> band(3.65, 0.6, 0.75, 14), band(0.4, 0.6, 0.75, 14)
    (Band(feasible=[5, 6], floor=5), Band(feasible=[], floor=1))
    """
    fits = [m for m in range(1, nodes + 1) if m * under <= total + SLACK and total <= m * over + SLACK]
    return Band(fits, math.ceil(total / over - SLACK))


@dataclass(frozen=True, eq=False)
class Scaled:
    """Subgraphs after scaling, numbered from 0 without gaps, and those that could not be brought into the band."""

    labels: Ints
    parts: int
    under_accepted: tuple[int, ...]
    over_accepted: tuple[int, ...]
    steps: int


def scale(graph: Graph, labels: Ints, limits: Limits, under: float, nodes: int) -> Scaled:
    """Algorithm 2 in its terminating form; `limits.demand_max` is the upper end of the band."""
    groups = _Groups(graph, labels, limits)
    budget = 4 * max(1, graph.size) * max(1, groups.alive_count)
    over_accepted: set[int] = set()
    under_accepted: set[int] = set()
    steps = 0
    while steps < budget:
        steps += 1
        over = groups.first_over(over_accepted)
        if over is not None:
            if not groups.push(over, nodes):
                over_accepted.add(over)
            continue
        low = groups.smallest_under(under, under_accepted)
        if low is None:
            break
        if not (groups.merge(low) or groups.dissolve(low) or groups.pull(low, under)):
            under_accepted.add(low)
    while steps < budget and groups.alive_count > groups.floor() and groups.dissolve(groups.smallest()):
        steps += 1  # inside the band with fewer nodes is better than inside the band with more
    labels = groups.labels
    packed = None if over_accepted or groups.alive_count <= groups.floor() else pack_tightly(limits)
    if packed is not None and packed.max(initial=-1) + 1 < groups.alive_count:
        # Some loads cannot be joined pair by pair; starting over by size then needs fewer nodes.
        sums = np.bincount(packed, limits.demand)
        labels, under_accepted = packed, set(np.flatnonzero(sums < under - SLACK).tolist())
    names, compact = np.unique(labels, return_inverse=True)
    number = {int(name): at for at, name in enumerate(names)}
    return Scaled(
        compact.astype(np.int64).reshape(-1),
        len(names),
        tuple(sorted(number[name] for name in under_accepted if name in number)),
        tuple(sorted(number[name] for name in over_accepted if name in number)),
        steps,
    )


def pack_tightly(limits: Limits) -> Ints | None:
    """Best fit in order of falling demand; None when some task is too large for any subgraph."""
    size = len(limits.demand)
    labels = np.full(size, -1, dtype=np.int64)
    demand, needs = np.zeros(size), np.zeros((size, limits.needs.shape[1]))
    count = np.zeros(size, dtype=np.int64)
    opened = 1
    for task in np.argsort(-limits.demand, kind="stable").tolist():
        held = slice(0, opened)
        fits = (
            (demand[held] + limits.demand[task] <= limits.demand_max + SLACK)
            & (count[held] < limits.tasks_max)
            & np.all(needs[held] + limits.needs[task] <= limits.need_max + SLACK, axis=1)
        )
        if not fits.any():
            if not count[opened - 1] or opened == size:
                return None
            opened += 1
            into = opened - 1
            if limits.demand[task] > limits.demand_max + SLACK or np.any(limits.needs[task] > limits.need_max + SLACK):
                return None
        else:
            into = int(np.argmax(np.where(fits, demand[held], -1.0)))
        labels[task] = into
        demand[into] += limits.demand[task]
        needs[into] += limits.needs[task]
        count[into] += 1
    return labels


class _Groups:
    """Subgraphs while they change."""

    def __init__(self, graph: Graph, labels: Ints, limits: Limits) -> None:
        self._graph, self._limits = graph, limits
        names, compact = np.unique(labels, return_inverse=True)
        self.labels = compact.astype(np.int64).reshape(-1)
        size = len(names)
        self._demand: Floats = np.bincount(self.labels, limits.demand, size).astype(np.float64, copy=False)
        self._needs = np.column_stack([np.bincount(self.labels, column, size) for column in limits.needs.T])
        self._count = np.bincount(self.labels, minlength=size)
        self._members: list[set[int]] = [set() for _ in range(size)]
        for task, label in enumerate(self.labels.tolist()):
            self._members[label].add(task)
        starts, near, weight = graph.neighbours
        owner = np.repeat(np.arange(graph.size), np.diff(starts))
        together = self.labels[owner] == self.labels[near]
        # Traffic of every task with its own subgraph, kept up to date move by move.
        self._own = np.bincount(owner[together], weight[together], graph.size).astype(np.float64)

    @property
    def alive_count(self) -> int:
        return int((self._count > 0).sum())

    def floor(self) -> int:
        """Fewer subgraphs than this cannot hold the load, nor the tasks."""
        total = float(self._limits.demand.sum())
        by_load = math.ceil(total / self._limits.demand_max - SLACK) if self._limits.demand_max > 0 else 1
        return max(1, by_load, math.ceil(self._graph.size / max(1, self._limits.tasks_max)))

    def first_over(self, accepted: set[int]) -> int | None:
        """The most overloaded subgraph: too much demand, a dimension beyond the node, or too many tasks."""
        limits = self._limits
        crowded = (self._count > limits.tasks_max) | np.any(self._needs > limits.need_max + SLACK, axis=1)
        bad = (self._demand > limits.demand_max + SLACK) | crowded
        bad[list(accepted)] = False
        return int(np.argmax(np.where(bad, self._demand, -np.inf))) if bad.any() else None

    def smallest_under(self, under: float, accepted: set[int]) -> int | None:
        low = (self._count > 0) & (self._demand < under - SLACK)
        low[list(accepted)] = False
        return int(np.argmin(np.where(low, self._demand, np.inf))) if low.any() else None

    def smallest(self) -> int:
        return int(np.argmin(np.where(self._count > 0, self._demand, np.inf)))

    def _room(self, demand: float, needs: Floats, tasks: int, without: int) -> Bools:
        limits = self._limits
        room: Bools = (
            (self._count > 0)
            & (self._demand + demand <= limits.demand_max + SLACK)
            & (self._count + tasks <= limits.tasks_max)
            & np.all(self._needs + needs <= limits.need_max + SLACK, axis=1)
        )
        room[without] = False
        return room

    def _traffic(self, tasks: Sequence[int]) -> Floats:
        """Traffic of some tasks with every subgraph."""
        starts, near, weight = self._graph.neighbours
        parts = [slice(int(starts[task]), int(starts[task + 1])) for task in tasks]
        others = np.concatenate([near[part] for part in parts]) if parts else near[:0]
        amounts = np.concatenate([weight[part] for part in parts]) if parts else weight[:0]
        return np.bincount(self.labels[others], amounts, len(self._count)).astype(np.float64)

    def _best(self, room: Bools, traffic: Floats) -> int | None:
        """Most traffic; among equals the fullest, which leaves large gaps for others."""
        if not room.any():
            return None
        at = np.flatnonzero(room)
        return int(at[np.lexsort((at, -self._demand[at], -traffic[at]))[0]])

    def _move(self, task: int, target: int) -> None:
        source = int(self.labels[task])
        self._members[source].discard(task)
        self._members[target].add(task)
        starts, near, weight = self._graph.neighbours
        span = slice(int(starts[task]), int(starts[task + 1]))
        beside, amount = self.labels[near[span]], weight[span]
        self._own[near[span]] += amount * (beside == target) - amount * (beside == source)
        self._own[task] = amount[beside == target].sum()
        self.labels[task] = target
        for label, sign in ((source, -1.0), (target, 1.0)):
            self._demand[label] += sign * self._limits.demand[task]
            self._needs[label] += sign * self._limits.needs[task]
            self._count[label] += int(sign)

    def merge(self, low: int) -> bool:
        """Join the neighbour with the largest mutual traffic that has room for all of it."""
        room = self._room(self._demand[low], self._needs[low], int(self._count[low]), low)
        partner = self._best(room, self._traffic(sorted(self._members[low])) if room.any() else self._demand)
        if partner is None:
            return False
        for task in sorted(self._members[low]):
            self._move(task, partner)
        return True

    def dissolve(self, low: int) -> bool:
        """Spread the tasks over several neighbours, all of them or none; the largest first."""
        if self._spare() < self._demand[low] - SLACK:
            return False
        order = sorted(self._members[low], key=lambda task: (-self._limits.demand[task], task))
        done: list[tuple[int, int]] = []
        for task in order:
            if not self._seat(task, low, done):
                for moved, back in reversed(done):
                    self._move(moved, back)
                return False
        return True

    def _spare(self) -> float:
        gaps = np.maximum(0.0, self._limits.demand_max - self._demand)[self._count > 0]
        return float(gaps.sum())

    def _seat(self, task: int, low: int, done: list[tuple[int, int]]) -> bool:
        """Find a place for a task, if need be by sending a smaller one on to a third subgraph."""
        limits = self._limits
        room = self._room(float(limits.demand[task]), limits.needs[task], 1, low)
        into = self._best(room, self._traffic([task]) if room.any() else self._demand)
        if into is not None:
            done.append((task, int(self.labels[task])))
            self._move(task, into)
            return True
        if self.alive_count > EJECT_PARTS:
            return False
        emptiest = np.argsort(np.where(self._count > 0, self._demand, np.inf), kind="stable")[:EJECT_TRIES]
        for group in emptiest.tolist():
            if group == low or not self._count[group]:
                continue
            for smaller in sorted(self._members[group], key=lambda other: (-limits.demand[other], other)):
                if limits.demand[smaller] >= limits.demand[task]:
                    continue
                if self._trade(task, smaller, group, low, done):
                    return True
        return False

    def _trade(self, task: int, smaller: int, group: int, low: int, done: list[tuple[int, int]]) -> bool:
        limits = self._limits
        more = limits.demand[task] - limits.demand[smaller]
        if self._demand[group] + more > limits.demand_max + SLACK:  # the cheap test first: it settles most tries
            return False
        room = self._room(float(limits.demand[smaller]), limits.needs[smaller], 1, low)
        room[group] = False
        third = self._best(room, self._demand)
        if third is None:
            return False
        self._move(smaller, third)
        if self._room(float(limits.demand[task]), limits.needs[task], 1, low)[group]:
            done += [(smaller, group), (task, int(self.labels[task]))]
            self._move(task, group)
            return True
        self._move(smaller, group)
        return False

    def pull(self, low: int, under: float) -> bool:
        """Take the task that its donor misses least, if the donor stays in the band."""
        limits = self._limits
        if self._count[low] >= limits.tasks_max:
            return False
        gives = (
            (limits.demand > 0)
            & (self.labels != low)
            & (self._demand[self.labels] - limits.demand >= under - SLACK)
            & (self._demand[low] + limits.demand <= limits.demand_max + SLACK)
            & np.all(self._needs[low] + limits.needs <= limits.need_max + SLACK, axis=1)
        )
        if not gives.any():
            return False
        self._move(int(np.argmin(np.where(gives, self._own, np.inf))), low)
        return True

    def push(self, over: int, nodes: int) -> bool:
        """Send the task with the least inside traffic away, to the subgraph that gains most, or to a new one."""
        if self._count[over] < 2:
            return False
        order = sorted(self._members[over], key=lambda task: (float(self._own[task]), task))
        for task in order:
            room = self._room(float(self._limits.demand[task]), self._limits.needs[task], 1, over)
            into = self._best(room, self._traffic([task]) if room.any() else self._demand)
            if into is not None:
                self._move(task, into)
                return True
        if self.alive_count >= nodes:
            return False
        self._demand = np.append(self._demand, 0.0)
        self._needs = np.vstack((self._needs, np.zeros(self._needs.shape[1])))
        self._count = np.append(self._count, 0)
        self._members.append(set())
        self._move(order[0], len(self._count) - 1)
        return True
