"""Adapters for even, rstorm.distance, ras.sort and spant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rstream.schedulers import even, rstorm, spant

Result = dict[str, Any]


def even_schedule(nodes: Mapping[str, Sequence[int]], num_workers: int, executors: Sequence[int]) -> Result:
    slots, assign = even.deal(nodes, num_workers, executors)
    return {
        "assign": {str(task): f"{slot.node}:{slot.process}" for task, slot in assign.items()},
        "slots": [f"{slot.node}:{slot.process}" for slot in slots],
    }


def rstorm_distance(
    task: Sequence[float],
    nodes: Mapping[str, Sequence[float]],
    ref: str | None,
    racks: Mapping[str, Sequence[str]],
) -> Result:
    found = rstorm.distances(task, nodes, ref, racks)
    fits = {node: value for node, value in found.items() if value is not None}
    return {"distance": found, "node": min(sorted(fits), key=lambda node: fits[node], default=None)}


def ras_sort_nodes(nodes: Mapping[str, Sequence[float]], have: Mapping[str, int]) -> Result:
    ranked = rstorm.rank_nodes(nodes, have)
    return {"effective": ranked.effective, "order": ranked.order}


def spant_probabilities(tau: Sequence[float], eta: Sequence[float], alpha: float = 2.0, beta: float = 1.0) -> Result:
    return {"p": spant.probabilities(tau, eta, alpha, beta).tolist()}


def spant_update(
    tau: Sequence[Sequence[float]], chosen: Sequence[int], latency_s: float, rho: float = 0.05, Q: float = 1.0
) -> Result:
    return {"tau": spant.deposit(tau, chosen, latency_s, rho, Q)}
