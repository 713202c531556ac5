"""What a tuple that arrives now would live through: waits, service and hops along its way to the sinks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rstream.lab.flow import BUSY_MAX, Flow
from rstream.lab.sums import add_up
from rstream.schedulers.tables import Floats


@dataclass(frozen=True)
class Latency:
    """Per topology, the mean over sink records; per operator, the time inside the function and from arrival to done."""

    total_s: Floats
    without_backlog_s: Floats
    execute_s: Floats
    process_s: Floats
    task_process_s: Floats


def observe(flow: Flow, now_s: float) -> Latency:
    """Read the latencies off the present queues and loads."""
    world, values = flow.world, flow.world.values
    busy = np.minimum(values["busy"], BUSY_MAX)
    stationary = flow.service * busy / (1.0 - busy)
    backlog = values["queue"] * flow.service + np.maximum(0.0, values["ready_s"] - now_s)
    ops = len(world.operators)
    execute = add_up(world.op, flow.service * world.weight, ops)
    wait = add_up(world.op, stationary * world.weight, ops)
    behind = add_up(world.op, backlog * world.weight, ops)
    flows = add_up(world.op, values["flow"], ops)
    total, steady = _along(flow, execute + wait + behind, flows), _along(flow, execute + wait, flows)
    return Latency(total, steady, execute, execute + wait + behind, flow.service + stationary + backlog)


def _along(flow: Flow, inside_s: Floats, flows: Floats) -> Floats:
    """Mean time to the sinks of each topology, every path weighed by the tuples that take it."""
    world = flow.world
    arrive, weight = np.zeros(len(inside_s)), np.zeros(len(inside_s))
    incoming: list[list[int]] = [[] for _ in inside_s]
    for e, target in enumerate(world.edge_target.tolist()):
        incoming[target].append(e)
    sources, leave = world.edge_source.tolist(), inside_s.tolist()
    for op, edges in enumerate(incoming):
        if edges:
            parts = [max(float(flows[sources[e]]) * float(world.edge_selectivity[e]), 1e-12) for e in edges]
            arrive[op] = sum(
                part * (leave[sources[e]] + float(flow.edge_latency_s[e])) for part, e in zip(parts, edges, strict=True)
            ) / sum(parts)
            leave[op] += float(arrive[op])
    weight = np.where(world.is_sink, np.maximum(flows, 1e-12), 0.0)
    topologies = len(world.topologies)
    total = add_up(world.op_topology, np.array(leave) * weight, topologies)
    return np.asarray(total / add_up(world.op_topology, weight, topologies))
