"""What each task takes of its node, and what a node has left for a topology: the input of Ra-Stream and Sl-Stream."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rstream.schedulers.partition import Graph
from rstream.schedulers.rates import edge_rates
from rstream.schedulers.tables import Floats
from rstream.schedulers.view import TopologyView, View

Mode = Literal["paper", "measured"]


def task_needs(view: View, mode: Mode) -> dict[str, Floats]:
    """The (tasks, 3) needs of every topology, as fractions of a node.

    `paper` splits what a node uses beyond its baseline among its tasks by the tuples they processed, `measured` takes
    each task's own figures (Ra-2).
    """
    if mode == "measured":
        return {topology.name: topology.tasks.loads for topology in view.topologies}
    size = len(view.nodes)
    total = np.zeros(size + 1)  # the last entry collects tasks that run nowhere
    for topology in view.topologies:
        total += np.bincount(topology.tasks.node % (size + 1), topology.tasks.processed, size + 1)
    use = np.vstack((np.maximum(view.node_loads - view.node_baselines, 0.0), np.zeros(3)))
    needs = {}
    for topology in view.topologies:
        node = topology.tasks.node % (size + 1)
        share = np.divide(topology.tasks.processed, total[node], out=np.zeros(len(node)), where=total[node] > 0)
        needs[topology.name] = share[:, None] * use[node]
    return needs


def node_use(view: View, needs: dict[str, Floats], *, without: str = "") -> Floats:
    """Baseline plus the needs of all tasks on each node, one topology left out."""
    use = view.node_baselines.copy()
    for topology in view.topologies:
        if topology.name != without:
            inside = topology.tasks.node >= 0
            np.add.at(use, topology.tasks.node[inside], needs[topology.name][inside])
    return use


def joint_graph(view: View) -> Graph:
    """The tasks of all topologies in one graph, topology after topology in the view's order."""
    graphs = [traffic_graph(topology) for topology in view.topologies]
    first = np.cumsum([0, *(graph.size for graph in graphs)])
    return Graph(
        int(first[-1]),
        np.concatenate([np.zeros(0, np.int64), *(g.source + at for g, at in zip(graphs, first, strict=False))]),
        np.concatenate([np.zeros(0, np.int64), *(g.target + at for g, at in zip(graphs, first, strict=False))]),
        np.concatenate([np.zeros(0), *(graph.weight for graph in graphs)]),
    )


def traffic_graph(topology: TopologyView) -> Graph:
    """The topology's tasks and the trimmed rates between them, whatever their present placement (Sl-1)."""
    return Graph(len(topology.tasks), topology.traffic.source, topology.traffic.target, edge_rates(topology.traffic))
