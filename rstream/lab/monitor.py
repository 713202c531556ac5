"""Turns the model's counters into the View that policies see, exactly as a live monitor would.

Counters run over the window since the last view; rates of channels and the series of operators are sampled once a
second. Nothing that a real monitor could not measure goes in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rstream.lab.flow import Flow
from rstream.lab.latency import Latency
from rstream.lab.spec import TopologySpec
from rstream.lab.sums import add_up
from rstream.schedulers.base import (
    EdgeView,
    Links,
    Load,
    NodeView,
    OperatorView,
    TaskTable,
    TierCosts,
    TopologyView,
    Traffic,
    View,
)
from rstream.schedulers.tables import Floats, Ints

_RESET = ("processed", "received", "busy_s", "cpu_s", "io_s")


@dataclass
class _Sample:
    keys: Ints
    flow: Floats
    weight: Floats
    received: Floats
    latency: Latency


@dataclass
class Monitor:
    """Collects one window at a time."""

    flow: Flow
    start_s: float = 0.0
    _samples: list[_Sample] = field(default_factory=list)
    _offered: list[float] = field(default_factory=list)
    _failed: list[float] = field(default_factory=list)
    _received: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.reset(self.start_s)

    def reset(self, now_s: float) -> None:
        """Begin a new window."""
        world = self.flow.world
        self.start_s, self._samples = now_s, []
        self._offered = [totals.offered for totals in self.flow.totals]
        self._failed = [totals.dropped + totals.timed_out for totals in self.flow.totals]
        self._received = np.zeros(len(world.operators))
        for name in _RESET:
            world.values[name][:] = 0.0
        self.flow.edge_count[:] = 0.0

    def sample(self, latency: Latency) -> None:
        """Take one sample of rates and latencies."""
        world = self.flow.world
        received = add_up(world.op, world.values["received"], len(world.operators))
        keys = world.keys()
        flow, weight = world.values["flow"].copy(), world.weight.copy()
        self._samples.append(_Sample(keys, flow, weight, np.maximum(0.0, received - self._received), latency))
        self._received = received

    def view(self, now_s: float) -> View:
        """The picture of the window that ends now."""
        world, cluster, values = self.flow.world, self.flow.world.cluster, self.flow.world.values
        window_s = max(now_s - self.start_s, 1e-9)
        idle = world.op_idle[world.op]
        use = idle + world.op_use[world.op] * values["processed"] / window_s
        cpu = values["cpu_s"] / (window_s * cluster.cores) + idle
        mem, io = world.op_mem[world.op] + use, values["io_s"] / window_s + use
        loads = [add_up(world.node, column, cluster.nodes) for column in (cpu, mem, io)]
        baseline = Load(cluster.baseline_cpu, cluster.baseline_mem)
        nodes = tuple(
            NodeView(
                id=name,
                processes=cluster.processes,
                tasks_per_process=cluster.tasks_per_process,
                cpu_cores=cluster.cores,
                memory_bytes=cluster.memory_bytes,
                load=Load(*(float(column[at]) for column in loads)).plus(baseline),
                baseline=baseline,
                added_order=world.added_order.get(at),
            )
            for at, name in enumerate(world.node_ids)
        )
        topologies = tuple(self._topology(at, spec, cpu, mem, io) for at, spec in enumerate(world.topologies))
        tiers = self.flow.tiers
        costs = TierCosts(tiers.thread.latency_s, tiers.process.latency_s, tiers.node.latency_s)
        return View(self.start_s, now_s, nodes, topologies, 1.0, costs, Links(cluster.bandwidth_bytes_s))

    def _topology(self, at: int, spec: TopologySpec, cpu: Floats, mem: Floats, io: Floats) -> TopologyView:
        world, values, totals = self.flow.world, self.flow.world.values, self.flow.totals[at]
        rows = world.topology_rows(at)
        first = world.op_at[spec.name, spec.operators[0].name]
        latest = self._samples[-1].latency if self._samples else None
        same_size = latest is not None and len(latest.task_process_s) == len(world.op)
        process_ms = latest.task_process_s[rows] * 1e3 if latest is not None and same_size else np.zeros(len(rows))
        state = np.array([op.state_bytes for op in spec.operators])[world.op[rows] - first]
        active = add_up(world.op[rows], world.active[rows], len(world.operators))[world.op[rows]]
        tasks = TaskTable.columns(
            operator=world.op[rows] - first,
            index=world.index[rows],
            node=world.node[rows],
            process=world.process[rows],
            active=world.active[rows],
            processed=values["processed"][rows],
            received=values["received"][rows],
            queue=values["queue"][rows],
            busy_s=values["busy_s"][rows],
            cpu=cpu[rows],
            mem=mem[rows],
            io=io[rows],
            execute_ms=self.flow.service[rows] * 1e3,
            process_ms=process_ms,
            state_bytes=np.where(world.active[rows], state / np.maximum(active, 1), 0.0),
        )
        roots = spec.roots()
        offered = totals.offered - self._offered[at]
        failed = totals.dropped + totals.timed_out - self._failed[at]
        return TopologyView(
            name=spec.name,
            operators=tuple(self._operator(spec, place, first + place) for place in range(len(spec.operators))),
            edges=self._edges(spec),
            tasks=tasks,
            traffic=self._traffic(spec, rows),
            source_counts={root: offered / len(roots) for root in roots},
            workers=spec.workers,
            latency_ms=float(latest.total_s[at]) * 1e3 if latest is not None else 0.0,
            failed=failed,
        )

    def _operator(self, spec: TopologySpec, place: int, op: int) -> OperatorView:
        operator = spec.operators[place]
        sources, targets = {edge.source for edge in spec.edges}, {edge.target for edge in spec.edges}
        return OperatorView(
            name=operator.name,
            kind="sink" if operator.name in targets - sources else ("bolt" if operator.name in targets else "source"),
            stateful=operator.stateful,
            keyed=operator.keyed,
            parallelism_max=operator.parallelism if operator.kind == "source" else operator.parallelism_max,
            pool=operator.pool,
            state_bytes=operator.state_bytes,
            received_samples=tuple(float(sample.received[op]) for sample in self._samples),
            execute_samples_ms=tuple(float(sample.latency.execute_s[op]) * 1e3 for sample in self._samples),
            process_samples_ms=tuple(float(sample.latency.process_s[op]) * 1e3 for sample in self._samples),
        )

    def _edges(self, spec: TopologySpec) -> tuple[EdgeView, ...]:
        world = self.flow.world
        start = sum(len(topology.edges) for topology in world.topologies[: world.topologies.index(spec)])
        return tuple(
            EdgeView(
                source=edge.source,
                target=edge.target,
                selectivity=edge.selectivity,
                grouping=world.groupings[start + at],
                count=float(self.flow.edge_count[start + at]),
                tuple_bytes=edge.tuple_bytes,
            )
            for at, edge in enumerate(spec.edges)
        )

    def _traffic(self, spec: TopologySpec, rows: Ints) -> Traffic:
        world = self.flow.world
        keys = world.keys()
        flows = np.stack([_aligned(sample, sample.flow, keys) for sample in self._samples] or [np.zeros(len(keys))])
        weights = np.stack([_aligned(sample, sample.weight, keys) for sample in self._samples] or [np.zeros(len(keys))])
        local = np.full(len(keys), -1)
        local[rows] = np.arange(len(rows))
        sources, targets, samples = [], [], []
        for edge in spec.edges:
            up = np.flatnonzero(world.op == world.op_at[spec.name, edge.source])
            down = np.flatnonzero(world.op == world.op_at[spec.name, edge.target])
            sources.append(np.repeat(local[up], len(down)))
            targets.append(np.tile(local[down], len(up)))
            rates = flows[:, up, None] * weights[:, None, down] * edge.selectivity
            samples.append(rates.reshape(len(flows), -1).T)
        if not sources:
            return Traffic.none()
        return Traffic.columns(np.concatenate(sources), np.concatenate(targets), np.concatenate(samples))


def _aligned(sample: _Sample, column: Floats, keys: Ints) -> Floats:
    """A sample's column in the order of today's tasks; those that were not there are 0."""
    if len(sample.keys) == len(keys) and bool((sample.keys == keys).all()):
        return column
    places = np.minimum(np.searchsorted(sample.keys, keys), max(0, len(sample.keys) - 1))
    return np.where(sample.keys[places] == keys, column[places], 0.0)
