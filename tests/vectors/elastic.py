"""Adapters for psps.*, me.* and dabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rstream.schedulers import balancing, bottlenecks, dabs, psps, rates

Result = dict[str, Any]


def psps_plan(
    order: Sequence[str],
    edge_in: Sequence[tuple[str, str, float]],
    root_in: Mapping[str, float],
    lam_G: float,
    mu: Mapping[str, float],
    q: Mapping[str, float],
    et_ms: Mapping[str, float],
    td_ms: float,
    active: Mapping[str, int],
    pool: Mapping[str, int],
    theta_prev: Mapping[str, float] | None = None,
) -> Result:
    interval = psps.Interval(order, edge_in, root_in, lam_G, mu, q, et_ms, pool, td_ms)  # both times in ms
    seen = psps.forecast(interval, psps.edge_ratios(interval, theta_prev or {}))
    names = {"lam": "events", "lam_r": "arriving", "r": "replicas", "r_raw": "replicas_exact", "theta": "theta"}
    result = {key: {name: getattr(seen[name], field) for name in order} for key, field in names.items()}
    return {**result, "delta": {name: seen[name].replicas - active[name] for name in order}}


def psps_theta(order: Sequence[str], ratio: Sequence[tuple[str, str, float]], root: Mapping[str, float]) -> Result:
    return {"theta": rates.propagate(order, ratio, root)}


def psps_util(processed: Sequence[float], et_ms: float, td_ms: float) -> Result:
    return {"U": balancing.utilisation(processed, et_ms, td_ms)}


def psps_group(U: Sequence[float], step: float, n: int, rr: int = 0) -> Result:
    balancer = balancing.LoadBalancer(U, step, rr)
    sequence = [balancer.choose() for _ in range(n)]
    return {"U": balancer.utilisations, "rr": balancer.turn, "seq": sequence}


def psps_metrics(
    inp: Sequence[float],
    out: Sequence[float],
    active: Sequence[float],
    r_over: float,
    processed: float | None = None,
    received: float | None = None,
) -> Result:
    done = sum(out) if processed is None else processed
    came = sum(inp) if received is None else received
    score = psps.score(inp, out, active, r_over, done / came if came else None)
    return {"degradation": score.degradation, "processed": score.processed, "saved": score.saved}


def me_bottleneck(tasks: Sequence[Mapping[str, Any]]) -> Result:
    seen = bottlenecks.transfer([bottlenecks.Work(**task) for task in tasks])
    return {
        "T": seen.total,
        "calc": seen.compute,
        "comm": seen.transfer,
        "half_sum_comm": seen.transfer_half,
        "sum_calc": seen.compute_sum,
    }


def me_fit(t: Sequence[float], y: Sequence[float]) -> Result:
    line = rates.fit_line(t, y)
    mse = line.mean_square
    return {"b": line.intercept, "mse": mse, "residuals": list(line.residuals), "rmse": mse**0.5, "w": line.slope}


def me_effective(t: Sequence[float], y: Sequence[float], w: float, b: float, tol: float = 0.0) -> Result:
    found = bottlenecks.effective(t, y, rates.Line(w, b, ()), tol)
    return {"Tr": max((y[at] for at in found), default=None), "index": found}


def me_same_magnitude(T: float, Tr: float) -> Result:
    return {"same": bottlenecks.same_magnitude(T, Tr)}


def me_levels(T: Mapping[str, float]) -> Result:
    level = bottlenecks.levels(T)
    return {"level": level, "order": sorted(level, key=lambda name: -level[name])}


def me_plan(executors: int, tasks: int, level: int, phi: float = 1.0) -> Result:
    grown = bottlenecks.grow(executors, tasks, level, phi)
    return {"new_executors": grown.executors, "new_tasks": grown.tasks}


def me_migration(old: Mapping[str, Sequence[Any]], new: Mapping[str, Sequence[Any]]) -> Result:
    migration = bottlenecks.migration(
        {name: (slot[0], slot[1]) for name, slot in old.items()},
        {name: (slot[0], slot[1]) for name, slot in new.items()},
    )
    return {"moved": list(migration.moved), "splittable": migration.splittable}


def dabs_plan(
    inputs: Sequence[float],
    freq: float,
    window: float,
    pending: float,
    lat_ms: Sequence[float],
    k: int,
    k_max: int,
    alpha: float = 0.01,
    alloc: float = 1.0,
    util: float = 1.0,
    parent_estimate: float = 0.0,
    stability: float = 0.5,
) -> Result:
    seen = dabs.Observed(inputs, freq, window, pending, lat_ms, k, k_max, util, parent_estimate)
    chosen = dabs.degree(seen, dabs.DabsParameters(alpha=alpha, allocated=alloc, stability=stability, model="linear"))
    return {"action": chosen.action, "capacity": chosen.capacity, "estimate": chosen.estimate, "k": chosen.degree}
