"""Adapters for es.mmk, es.kstar, es.topology, es.skew, es.decision, es.place, es.*_time, es.stable, es.trigger, drs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rstream.schedulers import loads, queueing, rates
from rstream.schedulers.es import size_topology

Result = dict[str, Any]


def es_mmk(lam: float, mu: float, k: int) -> Result:
    queue = queueing.queue(lam, mu, k)
    return {"Q": queue.length, "W": queue.sojourn_s, "stable": queue.stable, "wp": queue.waits}


def es_kstar(lam: float, mu: float, beta: float, k_max: int | None = None) -> Result:
    choice = queueing.cheapest(lam, mu, beta, k_max)
    return {"k": choice.servers, "saturated": choice.saturated, "z": choice.cost}


def es_topology_plan(
    order: Sequence[str],
    edges: Sequence[tuple[str, str, float]],
    source_rate: Mapping[str, float],
    mu: Mapping[str, float],
    beta: Mapping[str, float],
    k_max: Mapping[str, int] | None = None,
) -> Result:
    sizing = size_topology(order, edges, source_rate, mu, beta, k_max)
    return {"k": {name: choice.servers for name, choice in sizing.choices.items()}, "rate": sizing.rates}


def es_skew(loads: Sequence[float]) -> Result:
    seen = _spread(loads)
    return {"SK": seen.skewness, "mean": seen.mean, "sigma": seen.sigma}


_spread = loads.spread
_decide = loads.decide


def es_resource_decision(loads: Sequence[float], eta: float, phi: float, chi: float, zeta: float) -> Result:
    seen = _spread(loads)
    return {"SK": seen.skewness, "decision": _decide(loads, eta, phi, chi, zeta), "mean": seen.mean}


def es_place(
    nodes: Mapping[str, Sequence[float]],
    used: Sequence[str],
    need: Sequence[float],
    cap: Sequence[float],
    decision: loads.Decision,
) -> Result:
    return {"node": loads.choose_node(nodes, used, need, cap, decision)}


def es_repartition_time(S: float, k_star: int, ce: Sequence[float], tr: Sequence[float]) -> Result:
    return {"RT": loads.repartition_s(S, k_star, ce, tr)}


def es_repair_time(CI: float, IR: Sequence[float], er: Sequence[float], mu: Sequence[float]) -> Result:
    return {"SR": loads.replay_s(CI, IR, er, mu)}


def es_stable_index(samples: Sequence[float], window: int = 5, spread: float = 4.0) -> Result:
    return {"index": rates.stable_index(samples, window, spread)}


def es_trigger(rate_ref: float, rate_now: float, factor: float = 0.2) -> Result:
    return {"fire": rates.moved(rate_ref, rate_now, factor)}


def drs_rates(ext: Sequence[float], P: Sequence[Sequence[float]]) -> Result:
    return {"lam": rates.traffic_equations(ext, P).tolist()}


def drs_allocate(lam: Sequence[float], mu: Sequence[float], k_max: int, lam0: float) -> Result:
    minimum = [queueing.stable_servers(rate, served) for rate, served in zip(lam, mu, strict=True)]
    steps = list(queueing.allocate(lam, mu, k_max, lam0))
    best = steps[-1] if steps else None
    return {"ET": best and best.sojourn_s, "k": best and list(best.servers), "k_min": minimum}


def drs_min_resources(lam: Sequence[float], mu: Sequence[float], t_max: float, lam0: float, limit: int = 500) -> Result:
    found = queueing.fewest(lam, mu, t_max, limit, lam0)
    return {"K": found and sum(found.servers), "k": found and list(found.servers)}
