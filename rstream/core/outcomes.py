"""Whether what policies forecast came true: for each figure that they name, the same one of the window that followed.

A figure that has no entry here is an input or a score of the policy's own, and is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rstream.schedulers.base import TopologyView, View
from rstream.schedulers.bottlenecks import transfer
from rstream.schedulers.demands import joint_graph, traffic_graph
from rstream.schedulers.me import work_of
from rstream.schedulers.partition import Graph
from rstream.schedulers.ra_places import saved_costs
from rstream.schedulers.tables import Ints

NEAR = 0.2
"""A forecast came true when what was measured differs from it by no more than this share."""


def outcome(decided: Mapping[str, Any], view: View) -> dict[str, Any] | None:
    """How the forecasts of a decision compare with what the next window shows; None where nothing was forecast."""
    topology = view.topology(decided["topology"])
    compared: list[dict[str, Any]] = []
    for reason in decided["reasons"]:
        for what, forecast in reason["forecast"].items():
            if what in OF_PLACES and decided["state"] != "done":
                continue  # it is about a placement that never was
            found = _measure(what, reason["subject"], topology, view)
            if isinstance(forecast, int | float) and found is not None:
                off = abs(found - forecast) / max(abs(forecast), 1e-9) if forecast else abs(found)
                compared.append(
                    {
                        "subject": reason["subject"],
                        "what": what,
                        "forecast": forecast,
                        "measured": found,
                        "came_true": off <= NEAR,
                    }
                )
    if not compared:
        return None
    return {"at_s": view.end_s, "compared": compared, "latency_ms": topology.latency_ms}


def _measure(what: str, subject: str, topology: TopologyView, view: View) -> float | None:
    """What was measured of something that policies forecast; None where it cannot be."""
    operator = subject.partition("/")[2]
    if operator in topology.positions and what in OF_OPERATORS:
        return float(OF_OPERATORS[what](view, topology, operator))
    if what in OF_TOPOLOGIES:
        return float(OF_TOPOLOGIES[what](view, topology))
    return None


def _received(view: View, topology: TopologyView, name: str) -> float:
    return float(topology.tasks.received[topology.rows(name)].sum())


def _queue(view: View, topology: TopologyView, name: str) -> float:
    return float(topology.tasks.queue[topology.rows(name)].sum())


def _to_do(view: View, topology: TopologyView, name: str) -> float:
    """What an operator had to do in the window, backlog included: what it did, and what is left."""
    return float(topology.tasks.processed[topology.rows(name)].sum()) + _queue(view, topology, name)


def _needed(view: View, topology: TopologyView, name: str) -> float:
    return _to_do(view, topology, name) * topology.service_s(name) / view.window_s if view.window_s else 0.0


def _per_source_tuple(view: View, topology: TopologyView, name: str) -> float:
    return _received(view, topology, name) / topology.source_count if topology.source_count else 0.0


def _capacity(view: View, topology: TopologyView, name: str) -> float:
    """How many tuples one instance can process in a window."""
    service_s = topology.service_s(name)
    return view.window_s / service_s if service_s > 0 else 0.0


OF_OPERATORS: Mapping[str, Callable[[View, TopologyView, str], float]] = {
    "rate": lambda view, topology, name: view.rate(_received(view, topology, name)),
    "arriving": _received,
    "input": _received,
    "queue": _queue,
    "theta": _per_source_tuple,
    "events": _to_do,
    "estimate": _to_do,
    "replicas_exact": _needed,
    "capacity_each": _capacity,
    "T_ms": lambda view, topology, name: transfer([work_of(view, topology, name)]).total,
}
"""Figures of one operator: of `es` and `drs`, `psps`, `dabs`, `me`."""


def _between_nodes(graph: Graph, node: Ints) -> float:
    return float(graph.weight[node[graph.source] != node[graph.target]].sum())


def _cut(view: View, topology: TopologyView) -> float:
    """Share of the traffic of all topologies that crosses nodes."""
    graph = joint_graph(view)
    node = np.concatenate([np.zeros(0, np.int64), *(each.tasks.node for each in view.topologies)])
    return _between_nodes(graph, node) / graph.total if graph.total > 0 else 0.0


def _saved(view: View, what: str) -> float:
    places = {topology.name: topology.placement for topology in view.topologies}
    return float(saved_costs(view, joint_graph(view), places)[what])


OF_PLACES: Mapping[str, Callable[[View, TopologyView], float]] = {
    "nodes": lambda view, _: len(view.used_nodes()),
    "traffic_cut": _cut,
    "traffic_between": lambda view, topology: _between_nodes(traffic_graph(topology), topology.tasks.node),
    "saved_by_node_s": lambda view, _: _saved(view, "saved_by_node_s"),
    "saved_by_process_s": lambda view, _: _saved(view, "saved_by_process_s"),
}
"""Figures of a placement: of `ra` and `sl`."""

OF_TOPOLOGIES: Mapping[str, Callable[[View, TopologyView], float]] = {
    **OF_PLACES,
    "latency_ms": lambda view, topology: topology.latency_ms,
    "sojourn_ms": lambda view, topology: topology.latency_ms,
    "T_ms": lambda view, topology: transfer([work_of(view, topology, each.name) for each in topology.operators]).total,
}
"""Figures of a whole topology, those of placements among them."""
