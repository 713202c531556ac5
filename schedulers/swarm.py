"""Quantum-behaved particle swarm over partitions (Sl-Stream's Algorithm 1).

A particle is a real number per task whose whole part is the task's subgraph. Costs of all particles are computed in one
pass over the edges; best positions are kept over all iterations, smaller being better (Sl-6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from rstream.schedulers.partition import SLACK, Graph
from rstream.schedulers.tables import Floats, Ints

# Up to this many subgraphs labels are matched exactly, beyond it greedily: the exact way grows with the cube.
EXACT_RELABEL_PARTS = 24


@dataclass(frozen=True, eq=False)
class Problem:
    """What a partition is rated by: traffic between subgraphs, resources against a target share, and load caps.

    `resources` is one number per task; `loads` has one column per cap.
    """

    graph: Graph
    parts: int
    resources: Floats
    rho: float
    target: Floats
    loads: Floats
    caps: Floats
    empty_allowed: bool = False


@dataclass(frozen=True, slots=True)
class Rating:
    """Eq 15 for one partition."""

    traffic: float
    shares: list[float]
    targets: list[float]
    balance: float
    cost: float


def rate(problem: Problem, labels: Sequence[int] | Ints, *, target_by_tasks: bool = False) -> Rating:
    """Cost p of one partition, without penalties; `target_by_tasks` takes shares of tasks as target, as the paper."""
    row = np.asarray(labels, dtype=np.int64)
    target = np.bincount(row, minlength=problem.parts) / max(1, len(row)) if target_by_tasks else problem.target
    traffic, shares = _measure(problem, row[None, :])
    balance = float(np.abs(target - shares[0]).sum())
    cost = float(traffic[0]) + problem.rho * balance
    return Rating(float(traffic[0]), shares[0].tolist(), target.tolist(), balance, cost)


def _measure(problem: Problem, labels: Ints) -> tuple[Floats, Floats]:
    """Traffic between subgraphs and the resource share of each subgraph, for many partitions."""
    graph = problem.graph
    # One partition at a time stays in the processor's cache; small numbers make the gathers cheaper still.
    small = labels.astype(np.int16 if problem.parts < 2**15 else np.int32)
    traffic = np.array([graph.weight[row[graph.source] != row[graph.target]].sum() for row in small])
    total = float(problem.resources.sum())
    shares = (
        _sums(labels, problem.resources, problem.parts) / total if total > 0 else np.zeros((len(labels), problem.parts))
    )
    return traffic, shares


def _sums(labels: Ints, values: Floats, parts: int) -> Floats:
    code = labels + np.arange(len(labels))[:, None] * parts
    weight = np.broadcast_to(values, labels.shape).ravel()
    return np.bincount(code.ravel(), weight, len(labels) * parts).reshape(len(labels), parts).astype(np.float64)


def costs(problem: Problem, labels: Ints) -> Floats:
    """Cost of many partitions; a broken cap or an empty subgraph adds a penalty that no gain can outweigh."""
    traffic, shares = _measure(problem, labels)
    cost = traffic + problem.rho * np.abs(problem.target - shares).sum(axis=1)
    excess = np.zeros(len(labels))
    for column, cap in zip(problem.loads.T, problem.caps, strict=True):
        held = _sums(labels, column, problem.parts)
        over = held - cap * (1.0 + SLACK) - SLACK
        excess += np.where(over > 0, 1.0 + over / max(cap, SLACK), 0.0).sum(axis=1)
    if not problem.empty_allowed:
        filled = _sums(labels, np.ones(labels.shape[1]), problem.parts) > 0
        excess += max(0, min(problem.parts, labels.shape[1])) - np.minimum(filled.sum(axis=1), labels.shape[1])
    return np.asarray(cost + excess * 2.0 * (problem.graph.total + problem.rho + 1.0))


def broken(problem: Problem, labels: Ints) -> bool:
    """Whether a partition breaks a cap or leaves a subgraph empty."""
    return bool(costs(problem, labels[None, :])[0] > rate(problem, labels).cost + problem.graph.total + problem.rho)


@dataclass(frozen=True, slots=True)
class Swarm:
    """Size of the search. `edge_visits_max` bounds the work on large graphs by making fewer iterations."""

    particles: int = 30
    iterations: int = 200
    sigma: float = 0.5
    edge_visits_max: int = 200_000_000


@dataclass(frozen=True, eq=False)
class Found:
    """The best partition, its cost with penalties, and how many iterations were made."""

    labels: Ints
    cost: float
    iterations: int


def search(problem: Problem, seeds: Sequence[Ints], swarm: Swarm, rng: np.random.Generator) -> Found:
    """The best partition found; `seeds` are positions of the first particles, such as the running partition."""
    size, parts = problem.graph.size, problem.parts
    particles = max(swarm.particles, len(seeds))
    work = particles * max(len(problem.graph.source), 4 * size, 1)
    iterations = max(1, min(swarm.iterations, swarm.edge_visits_max // work))
    position = rng.random((particles, size)) * parts
    for at, seed in enumerate(seeds):
        position[at] = seed + 0.5
    best, best_cost = position.copy(), np.full(particles, np.inf)
    leader = 0
    stale = np.ones(particles, dtype=np.bool_)  # particles whose names may not agree with the leader's
    for turn in range(iterations + 1):
        cost = costs(problem, _labels(position, parts))
        better = cost < best_cost
        best[better], best_cost[better] = position[better], cost[better]
        stale |= better
        first, leader = leader, int(np.argmin(best_cost))
        if turn == iterations:
            break
        if np.ptp(problem.target) <= SLACK:  # labels of unequal targets are not interchangeable
            stale |= bool(better[leader] or first != leader)
            _relabel(best, leader, parts, np.flatnonzero(stale))
            stale[:] = False
        middle = best.mean(axis=0)
        phi = rng.random((particles, size))
        attractor = phi * best + (1.0 - phi) * best[leader]
        beta = swarm.sigma * (iterations - turn) / iterations + 0.5
        jump = beta * np.abs(middle - position) * -np.log(1.0 - rng.random((particles, size)))
        sign = np.where(rng.random((particles, size)) < 0.5, -1.0, 1.0)
        position = np.mod(attractor + sign * jump, parts)
    return Found(_labels(best[leader], parts), float(best_cost[leader]), iterations)


def _labels(position: Floats, parts: int) -> Ints:
    # A value just below zero wraps to exactly `parts`: the minimum keeps it in range.
    return np.minimum(position.astype(np.int64), parts - 1)


def _relabel(best: Floats, leader: int, parts: int, stale: Ints) -> None:
    """Rename these particles' subgraphs to agree best with the leader's, for names have no order but means do."""
    model = _labels(best[leader], parts)
    for at in stale.tolist():
        if at == leader:
            continue
        mine = _labels(best[at], parts)
        name = _names(mine, model, parts)
        best[at] += name[mine] - mine


def _names(mine: Ints, model: Ints, parts: int) -> Ints:
    if parts <= EXACT_RELABEL_PARTS:
        overlap = np.bincount(mine * parts + model, minlength=parts * parts).reshape(parts, parts)
        return np.asarray(linear_sum_assignment(overlap, maximize=True)[1], dtype=np.int64)
    pairs, count = np.unique(mine * parts + model, return_counts=True)
    order = np.argsort(-count, kind="stable")
    one, other = pairs[order] // parts, pairs[order] % parts
    # The first pair of each old name, and of those the first of each new name: a greedy matching without a loop.
    first = np.sort(np.unique(one, return_index=True)[1])
    one, other = one[first], other[first]
    first = np.unique(other, return_index=True)[1]
    name = np.full(parts, -1, dtype=np.int64)
    name[one[first]] = other[first]
    name[name < 0] = np.setdiff1d(np.arange(parts), name)
    return name


def greedy(problem: Problem) -> Ints:
    """A start for large graphs: the largest tasks first, each where it adds least cost among subgraphs with room.

    Where no subgraph has room the one with most of it left takes the task.
    """
    starts, near, weight = problem.graph.neighbours
    labels = np.full(problem.graph.size, -1, dtype=np.int64)
    total = max(float(problem.resources.sum()), SLACK)
    shares, held = np.zeros(problem.parts), np.zeros((problem.parts, problem.loads.shape[1]))
    for task in np.argsort(-problem.resources, kind="stable").tolist():
        row = slice(int(starts[task]), int(starts[task + 1]))
        known = labels[near[row]] >= 0
        joined = np.bincount(labels[near[row]][known], weight[row][known], problem.parts)
        more = problem.resources[task] / total
        uneven = np.abs(problem.target - shares - more) - np.abs(problem.target - shares)
        after = held + problem.loads[task]
        fits = np.all(after <= problem.caps * (1.0 + SLACK) + SLACK, axis=1)
        if fits.any():
            into = int(np.argmin(np.where(fits, problem.rho * uneven - joined, np.inf)))
        else:
            into = int(np.argmin((after / np.maximum(problem.caps, SLACK)).max(axis=1)))
        labels[task] = into
        shares[into] += more
        held[into] = after[into]
    return labels


def worth_moving(old: float, new: float, xi: float) -> bool:
    """Whether the new cost is below xi times the old one, both on today's rates (Sl-7); a free plan is never left.

    >>> worth_moving(100, 60, 0.7), worth_moving(100, 71, 0.7), worth_moving(0, 0, 0.7)
    (True, False, False)
    """
    return old > 0 and new / old < xi
