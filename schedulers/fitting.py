"""Which subgraph goes on which node, and which tasks share a process (Ra-Stream's Algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rstream.schedulers.tables import Bools, Floats


def task_demands(counts: Floats, use: Floats, alpha: float, beta: float) -> tuple[Floats, Floats]:
    """Eqs 3 to 6 for the tasks of one node: each gets the node's use by its share of tuples (Ra-2).

    Returns the scalar demand per task, and its (cpu, mem, io) parts.

    >>> task_demands(np.array([100.0, 300.0]), np.array([0.8, 0.4, 0.1]), 0.5, 0.35)[0].round(5).tolist()
    [0.13875, 0.41625]
    """
    total = counts.sum()
    share = np.outer(counts / total, use) if total > 0 else np.zeros((len(counts), len(use)))
    return weigh(share, alpha, beta), share


def weigh(parts: Floats, alpha: float, beta: float) -> Floats:
    """Eq 6: cpu, mem and io as one number."""
    return np.asarray(parts @ np.array([alpha, beta, 1.0 - alpha - beta]))


def fitness(available: Floats, need: Floats, gamma: float, delta: float) -> Floats:
    """Eqs 13 to 15 with the I/O test (Ra-3): what would be left on each node, -inf where the need does not fit."""
    left = available - need
    return np.where(np.all(left > 0, axis=1), weigh(left, gamma, delta), -np.inf)


def fitness_by_node(
    available: Mapping[str, Sequence[float]], need: Sequence[float], gamma: float, delta: float
) -> dict[str, float | None]:
    """`fitness` by node id, None where the need does not fit."""
    ids = list(available)
    table = np.array([available[node] for node in ids], dtype=np.float64).reshape(len(ids), len(need))
    found = fitness(table, np.array(need, dtype=np.float64), gamma, delta)
    return {node: None if np.isinf(value) else float(value) for node, value in zip(ids, found, strict=True)}


def assign_nodes(
    available: Floats,
    needs: Floats,
    gamma: float,
    delta: float,
    held: Floats | None = None,
    open_to: Bools | None = None,
) -> list[int | None]:
    """A node for each subgraph in the order given: the one with most left, capacity shrinking as it is used (Ra-14).

    `held[i, n]` is how many tasks of subgraph i node n already runs, which decides among equals; `open_to[i, n]` is
    whether slots allow it. None where no node fits (Ra-4).
    """
    left = available.copy()
    chosen: list[int | None] = []
    for at, need in enumerate(needs):
        score = fitness(left, need, gamma, delta)
        if open_to is not None:
            score = np.where(open_to[at], score, -np.inf)
        if not len(score) or np.isneginf(score.max()):
            chosen.append(None)
            continue
        best = np.flatnonzero(score >= score.max() - 1e-12)
        node = int(best[0] if held is None else best[np.argmax(held[at][best])])
        left[node] -= need
        chosen.append(node)
    return chosen


def pair_tasks(
    tasks: Sequence[int], traffic: Sequence[tuple[int, int, float]], per_process: int = 2
) -> list[list[int]]:
    """Tasks that talk most share a process: the busiest pair first, filled up with whoever talks most to it.

    Traffic counts both ways; among equals the earlier tasks win, so that silent tasks are paired too (Ra-15).

    >>> pair_tasks([0, 1, 2, 3, 4], [(0, 3, 9), (1, 3, 9), (2, 4, 1), (3, 0, 2)])
    [[0, 3], [2, 4], [1]]
    """
    rank = {task: at for at, task in enumerate(tasks)}
    between: dict[tuple[int, int], float] = {}
    for one, other, weight in traffic:
        if one in rank and other in rank and one != other:
            pair = (one, other) if rank[one] < rank[other] else (other, one)
            between[pair] = between.get(pair, 0.0) + weight

    def talk(one: int, other: int) -> float:
        return between.get((one, other) if rank[one] < rank[other] else (other, one), 0.0)

    waiting = list(tasks)
    processes: list[list[int]] = []
    while waiting:
        if per_process < 2 or len(waiting) == 1:
            processes += [[task] for task in waiting]
            break
        pairs = ((one, other) for at, one in enumerate(waiting) for other in waiting[at + 1 :])
        process = list(max(pairs, key=lambda pair: talk(*pair)))
        waiting = [task for task in waiting if task not in process]
        while waiting and len(process) < per_process:
            friend = max(waiting, key=lambda task: sum(talk(task, member) for member in process))
            process.append(friend)
            waiting.remove(friend)
        processes.append(process)
    return processes


@dataclass(frozen=True, slots=True)
class Saving:
    """Communication cost that an edge no longer causes, for reports (eqs 22 and 23)."""

    by_sharing_a_node: float
    by_sharing_a_process: float


def saving(rate: float, node_cost: float, process_cost: float, period_s: float) -> Saving:
    """What an edge saves in a period by moving from other node to same node, and from there into one process.

    >>> saving(500.0, 0.5, 0.25, 30)
    Saving(by_sharing_a_node=3750.0, by_sharing_a_process=3750.0)
    """
    return Saving(rate * (node_cost - process_cost) * period_s, rate * process_cost * period_s)
