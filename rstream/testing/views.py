"""Made-up clusters for trying policies: a view of chained operators at a given rate, consistent in its figures.

Everything follows from a few numbers: how many instances, how long a tuple takes, how many tuples come. So a test can
say "twice the rate" and get the view that a monitor would have filled then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from rstream.schedulers.even import interleave
from rstream.schedulers.tables import Bools, Floats, Ints, Load, TaskTable, Traffic
from rstream.schedulers.view import EdgeView, NodeView, OperatorView, TopologyView, View


@dataclass(frozen=True)
class Chain:
    """A topology of operators in a row; the first is the source.

    `service_s` is busy time per tuple, `active` the working instances out of `parallelism` loaded ones. Selectivity
    belongs to the edge that leaves an operator. `skew` in 0 to 1 makes the last instances get less than the first.
    """

    name: str = "chain"
    parallelism: Mapping[str, int] = field(default_factory=lambda: {"read": 2, "split": 3, "count": 3, "out": 2})
    rate: float = 1000.0
    service_s: Mapping[str, float] = field(default_factory=dict)
    selectivity: Mapping[str, float] = field(default_factory=dict)
    active: Mapping[str, int] = field(default_factory=dict)
    stateful: frozenset[str] = frozenset()
    backlog: Mapping[str, float] = field(default_factory=dict)
    parallelism_max: int = 1000
    skew: float = 0.0
    memory_each: float = 0.02
    state_bytes: float = 1e6


def view_of(
    chains: Sequence[Chain],
    nodes: int | Sequence[NodeView] = 4,
    *,
    end_s: float = 60.0,
    window_s: float = 30.0,
    samples: int = 5,
    placed: bool = True,
) -> View:
    """The cluster that runs these chains, spread evenly over the nodes (or `placed` nowhere yet)."""
    hosts = [NodeView(f"n{at:04d}") for at in range(nodes)] if isinstance(nodes, int) else list(nodes)
    slots = interleave({node.id: list(range(node.processes)) for node in hosts}) if placed else []
    position = {node.id: at for at, node in enumerate(hosts)}
    taken = 0
    topologies: list[TopologyView] = []
    loads = np.array([node.baseline for node in hosts], dtype=np.float64).reshape(-1, 3)
    for chain in chains:
        size = sum(chain.parallelism.values())
        width = hosts[0].tasks_per_process if hosts else 1
        ours = slots[taken : taken + -(-size // width)]
        taken += len(ours)
        where = [ours[task % len(ours)] if ours else None for task in range(size)]
        node = np.array([position[slot.node] if slot else -1 for slot in where], dtype=np.int64)
        process = np.array([slot.process if slot else -1 for slot in where], dtype=np.int64)
        topology = _topology(chain, node, process, window_s, samples)
        inside = node >= 0
        np.add.at(loads, node[inside], topology.tasks.loads[inside])
        topologies.append(topology)
    hosts = [replace(host, load=Load(*loads[at].tolist())) for at, host in enumerate(hosts)]
    return View(end_s - window_s, end_s, tuple(hosts), tuple(topologies), sample_s=window_s / max(1, samples))


def _topology(chain: Chain, node: Ints, process: Ints, window_s: float, samples: int) -> TopologyView:
    names = list(chain.parallelism)
    counts = [chain.parallelism[name] for name in names]
    service = [chain.service_s.get(name, 0.001) for name in names]
    working = [min(chain.active.get(name, count), count) for name, count in zip(names, counts, strict=True)]
    operator = np.repeat(np.arange(len(names), dtype=np.int64), counts)
    index = np.concatenate([np.arange(count) for count in counts]) if counts else np.zeros(0)
    active = index < np.repeat(working, counts)
    weight = np.where(active, 1.0 - chain.skew * index / np.maximum(1, np.repeat(working, counts)), 0.0)
    share = weight / np.maximum(np.bincount(operator, weight, len(names))[operator], 1e-300)
    arriving, processed = [], []
    rate = chain.rate
    for name, busy_s, k in zip(names, service, working, strict=True):
        arriving.append(rate)
        processed.append(min(rate + chain.backlog.get(name, 0.0) / window_s, k / busy_s if busy_s > 0 else rate))
        rate = processed[-1] * chain.selectivity.get(name, 1.0)
    done = share * np.repeat(processed, counts) * window_s
    busy = done * np.repeat(service, counts)
    queue = share * np.repeat(
        [
            max(0.0, (a - p) * window_s + chain.backlog.get(n, 0.0))
            for n, a, p in zip(names, arriving, processed, strict=True)
        ],
        counts,
    )
    table = TaskTable.columns(
        operator,
        index,
        node,
        process,
        active,
        processed=done,
        received=share * np.repeat(arriving, counts) * window_s,
        queue=queue,
        busy_s=busy,
        cpu=busy / window_s / 4.0,
        mem=np.full(len(operator), chain.memory_each),
        io=busy / window_s / 40.0,
        execute_ms=np.repeat(service, counts) * 1e3,
        process_ms=np.repeat(service, counts) * 2e3,
        state_bytes=np.repeat([chain.state_bytes if name in chain.stateful else 0.0 for name in names], counts),
    )
    operators = tuple(
        OperatorView(
            name,
            kind="source" if at == 0 else "sink" if at == len(names) - 1 else "bolt",
            stateful=name in chain.stateful,
            keyed=name in chain.stateful,
            parallelism_max=chain.parallelism_max,
            pool=counts[at] if name in chain.active else 0,
            service_s=service[at],
            state_bytes=chain.state_bytes * working[at] if name in chain.stateful else 0.0,
            received_samples=(arriving[at] * window_s / samples,) * samples,
            execute_samples_ms=(service[at] * 1e3,) * samples,
            process_samples_ms=(service[at] * 2e3,) * samples,
        )
        for at, name in enumerate(names)
    )
    edges = tuple(
        EdgeView(
            one,
            other,
            chain.selectivity.get(one, 1.0),
            "fields" if other in chain.stateful else "shuffle",
            processed[at] * chain.selectivity.get(one, 1.0) * window_s,
        )
        for at, (one, other) in enumerate(pairwise(names))
    )
    traffic = _traffic(operator, share, active, [edge.count / window_s for edge in edges], samples)
    emitted = {names[0]: chain.rate * window_s} if names else {}
    return TopologyView(chain.name, operators, edges, table, traffic, emitted, latency_ms=sum(service) * 2e3)


def _traffic(operator: Ints, share: Floats, active: Bools, rates: Sequence[float], samples: int) -> Traffic:
    sources, targets, flows = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
    for at, rate in enumerate(rates):
        left, right = (np.flatnonzero((operator == at + step) & active) for step in (0, 1))
        sources.append(np.repeat(left, len(right)))
        targets.append(np.tile(right, len(left)))
        flows.append((share[left][:, None] * share[right][None, :]).ravel() * rate)
    flow = np.concatenate(flows)
    return Traffic.columns(np.concatenate(sources), np.concatenate(targets), np.repeat(flow[:, None], samples, axis=1))
