"""Adapters for ra.* and sl.* (partitions, nodes, matching), and the brute force that finds their optima."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rstream.schedulers import bands, fitting, matching, rates, swarm
from rstream.schedulers.partition import Graph, accept_probability, inside_weights, rate_cut

Result = dict[str, Any]
Edges = Sequence[tuple[int, int, float]]
_Labels = npt.NDArray[np.int64]


def trimmed_mean(samples: Sequence[float]) -> Result:
    return {"mean": rates.trimmed_mean(samples)}


def ra_task_resources(counts: Sequence[float], U: Sequence[float], alpha: float, beta: float) -> Result:
    demand, share = fitting.task_demands(np.array(counts, float), np.array(U, float), alpha, beta)
    return {"R": demand.tolist(), "share": share.tolist()}


def ra_objective(edges: Edges, part: Sequence[int], k: int, eps: float) -> Result:
    cut = rate_cut(Graph.of(len(part), edges), part, k, eps)
    return {"W_cut": cut.cut, "W_int": cut.inside, "f_cv": cut.cost, "r": cut.share, "sigma": cut.sigma}


def ra_best_partition(
    n: int, edges: Edges, k: int, eps: float, variant: str = "cv", max_tasks: int | None = None
) -> Result:
    graph = Graph.of(n, edges)
    labels = np.concatenate(list(_partitions(n, k, max_tasks)) or [np.zeros((0, n), dtype=np.int64)])
    inside = inside_weights(graph, labels, k)
    total = graph.total or 1.0  # without traffic nothing is cut
    sigma, share = inside.std(axis=1), (graph.total - inside.sum(axis=1)) / total
    mean = inside.mean(axis=1)
    cv = np.divide(sigma, mean, out=np.full(len(sigma), np.sqrt(k - 1)), where=mean > 0)
    uneven = {"cv": cv, "share": sigma / total, "literal": sigma}[variant]
    cost, best = _optimum(eps * share + (1 - eps) * uneven, labels)
    at = None if cost is None else int(np.argmin(eps * share + (1 - eps) * uneven))
    return {"f": cost, "partition": best, "r": None if at is None else float(share[at])}


def ra_accept(f_new: float, f_cur: float, T: float) -> Result:
    return {"p": accept_probability(f_new, f_cur, T)}


def ra_adjust(R: float, t_under: float = 0.6, t_over: float = 0.75) -> Result:
    return {"adjust": bands.out_of_band(R, t_under, t_over)}


def ra_band(total: float, t_under: float = 0.6, t_over: float = 0.75, n: int = 14) -> Result:
    found = bands.band(total, t_under, t_over, n)
    return {"feasible": found.feasible, "floor": found.floor}


def ra_min_bins(sizes: Sequence[float], cap: float, max_tasks: int | None = None) -> Result:
    # Exact over subsets: the fewest bins of a set are one more than those of what a full first bin leaves.
    every = range(1 << len(sizes))
    load = [sum(size for at, size in enumerate(sizes) if group >> at & 1) for group in every]
    fits = [load[group] <= cap + 1e-9 and (max_tasks is None or group.bit_count() <= max_tasks) for group in every]
    fewest: list[float] = [0.0] * len(every)
    for group in every[1:]:
        first, part, fewest[group] = group & -group, group, np.inf
        while part:  # every part of the group that holds its first task
            if part & first and fits[part]:
                fewest[group] = min(fewest[group], fewest[group ^ part] + 1)
            part = (part - 1) & group
    return {"bins": int(fewest[-1]) if np.isfinite(fewest[-1]) else None}


def ra_fitness(avail: Mapping[str, Sequence[float]], need: Sequence[float], gamma: float, delta: float) -> Result:
    fit = fitting.fitness_by_node(avail, need, gamma, delta)
    nodes = ra_schedule_subgraphs(avail, [need], gamma, delta)["nodes"]
    return {"fit": fit, "node": nodes[0]}


def ra_schedule_subgraphs(
    avail: Mapping[str, Sequence[float]], needs: Sequence[Sequence[float]], gamma: float, delta: float
) -> Result:
    ids = sorted(avail)
    table = np.array([avail[node] for node in ids], dtype=np.float64).reshape(len(ids), 3)
    chosen = fitting.assign_nodes(table, np.array(needs, dtype=np.float64).reshape(len(needs), 3), gamma, delta)
    return {"nodes": [None if at is None else ids[at] for at in chosen]}


def ra_pair_tasks(tasks: Sequence[int], tr: Edges, per_process: int = 2) -> Result:
    return {"processes": fitting.pair_tasks(tasks, tr, per_process)}


def ra_comm_saving(tr: float, c_cn: float, c_cp: float, st: float) -> Result:
    saved = fitting.saving(tr, c_cn, c_cp, st)
    return {"node_to_intra": saved.by_sharing_a_node, "process_to_intra": saved.by_sharing_a_process}


def sl_fitness(
    edges: Edges, part: Sequence[int], k: int, res: Sequence[float], rho: float, target: Sequence[float] | None = None
) -> Result:
    rated = swarm.rate(_problem(edges, len(part), k, res, rho, target), part, target_by_tasks=target is None)
    return {
        "balance": rated.balance,
        "comm": rated.traffic,
        "p": rated.cost,
        "q1": rated.targets,
        "q2": rated.shares,
    }


def sl_best_partition(
    edges: Edges,
    n: int,
    k: int,
    res: Sequence[float],
    rho: float,
    target: Sequence[float] | None = None,
    nonempty: bool = False,
    max_load: float | None = None,
) -> Result:
    problem = _problem(edges, n, k, res, rho, target, max_load)
    alike = target is None or len(set(target)) == 1
    labels = np.concatenate(list(_partitions(n, k, None))) if alike else _all_labels(n, k)
    if nonempty:
        labels = labels[[len(set(row)) == k for row in labels.tolist()]]
    cost = swarm.costs(problem, labels)
    if target is None:  # the paper's target: each subgraph's share of tasks
        cost = np.array([swarm.rate(problem, row, target_by_tasks=True).cost for row in labels])
    loads = swarm._sums(labels, problem.resources, k).max(axis=1)
    allowed = np.ones(len(labels), bool) if max_load is None else loads <= max_load + 1e-9
    best, partition = _optimum(cost[allowed], labels[allowed])
    return {"p": best, "partition": partition}


def hungarian(cost: Sequence[Sequence[float]]) -> Result:
    return _assigned(np.array(cost, dtype=np.float64).reshape(len(cost), len(cost[0]) if cost else 0))


def sl_deploy(free: Sequence[Sequence[float]], need: Sequence[Sequence[float]], mu: float) -> Result:
    left, wanted = (np.array(rows, dtype=np.float64).reshape(len(rows), 2) for rows in (free, need))
    costs = matching.deploy_costs(left, wanted, mu)
    found = _assigned(costs)
    return {**found, "cost": costs.tolist(), "feasible": found["total"] is not None}


def sl_trigger(p_old: float, p_new: float, xi: float = 0.7) -> Result:
    return {"fire": swarm.worth_moving(p_old, p_new, xi)}


def sl_batches(layers: Sequence[Sequence[str]], old: Mapping[str, int], new: Mapping[str, int]) -> Result:
    return {"batches": [[list(move) for move in batch] for batch in matching.half_batches(layers, old, new)]}


def sl_batch_safe(upstream: int, check: int, moved: int) -> Result:
    half = matching.half_batch(upstream, check, moved)
    return {"lost": half.lost, "need_check": half.checks_needed, "recoverable": half.recoverable}


def _problem(
    edges: Edges,
    n: int,
    k: int,
    res: Sequence[float],
    rho: float,
    target: Sequence[float] | None,
    max_load: float | None = None,
) -> swarm.Problem:
    resources = np.array(res, dtype=np.float64)
    goal = np.array(target if target is not None else [1.0 / k] * k, dtype=np.float64)
    caps = np.array([] if max_load is None else [max_load], dtype=np.float64)
    loads = resources[:, None] if max_load is not None else np.zeros((n, 0))
    return swarm.Problem(Graph.of(n, edges), k, resources, rho, goal, loads, caps, empty_allowed=True)


def _partitions(n: int, k: int, max_tasks: int | None) -> Iterator[_Labels]:
    """Every partition of n tasks into at most k subgraphs, names in order of first use, in chunks."""
    rows = np.zeros((1, 1), dtype=np.int64) if n else np.zeros((1, 0), dtype=np.int64)
    for _ in range(1, n):
        used = rows.max(axis=1) + 1
        rows = np.concatenate(
            [np.column_stack((rows[used >= label], np.full((used >= label).sum(), label))) for label in range(k)]
        )
    if max_tasks is not None:
        rows = rows[[max(np.bincount(row), default=0) <= max_tasks for row in rows]]
    yield rows


def _all_labels(n: int, k: int) -> _Labels:
    return np.stack(np.meshgrid(*[np.arange(k)] * n, indexing="ij"), axis=-1).reshape(-1, n)


def _optimum(cost: npt.NDArray[np.float64], labels: _Labels) -> tuple[float | None, list[int] | None]:
    """The least cost, and its partition if there is only one: a vector names none where several tie."""
    if not len(cost):
        return None, None
    least = float(cost.min())
    ties = np.flatnonzero(cost <= least + 1e-9 * max(1.0, abs(least)))
    return least, labels[ties[0]].tolist() if len(ties) == 1 else None


def _assigned(cost: npt.NDArray[np.float64]) -> Result:
    """The cheapest assignment, named only where no other is as cheap."""
    found = matching.assign(cost)
    if found is None:
        return {"assign": None, "total": None}
    others = [cost.copy() for _ in found.columns]
    for row, (column, other) in enumerate(zip(found.columns, others, strict=True)):
        other[row, column] = np.inf
    rivals = [rival.total for other in others if (rival := matching.assign(other)) is not None]
    unique = all(total > found.total + 1e-9 for total in rivals)
    return {"assign": found.columns if unique else None, "total": found.total}
