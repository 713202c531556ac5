"""The View: an immutable picture of a cluster over one window, which is all that a policy ever sees.

It covers every topology and every node at once, so that a policy can rank across topologies and no slot is booked
twice. What exists a few times (nodes, operators, edges) is a tuple of small records; what exists ten thousand times
(tasks, channels) is a table of numpy columns, which costs milliseconds to build and can be read row by row too.
Loads are fractions of the node (0 to 1), counts are totals of the window, rates are tuples per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np

from rstream.errors import PolicyError
from rstream.schedulers.tables import DIMENSIONS, MEASURES, Floats, Ints, Load, Slot, TaskId, TaskTable, Traffic

IDLE = Load()
Kind = Literal["source", "bolt", "sink"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node: what it offers, what it carries.

    `cpu_cores`, `memory_bytes` and `speed` (work per second relative to a plain node) describe the machine; `load` is
    measured over the window with everything included, `baseline` is what it shows when idle. `added_order` is None
    for nodes that were there from the start, and counts up for nodes that scaling has taken into use.
    """

    id: str
    processes: int = 2
    tasks_per_process: int = 2
    cpu_cores: float = 4.0
    memory_bytes: float = 3072.0 * 2**20
    speed: float = 1.0
    load: Load = IDLE
    baseline: Load = IDLE
    rack: str = "default"
    alive: bool = True
    added_order: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        """How many tasks fit on the node."""
        return self.processes * self.tasks_per_process


@dataclass(frozen=True, slots=True)
class OperatorView:
    """One operator: what the user declared, and its per-sample series over the window.

    `service_s` is busy time per tuple with queueing excluded; None asks for the figure measured in the tasks.
    The series have one entry per sample of the window, or none at all where the monitor does not record them.
    """

    name: str
    kind: Kind = "bolt"
    stateful: bool = False
    keyed: bool = False
    parallelism_min: int = 1
    parallelism_max: int = 100
    pool: int = 0
    service_s: float | None = None
    state_bytes: float = 0.0
    received_samples: tuple[float, ...] = ()
    execute_samples_ms: tuple[float, ...] = ()
    process_samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EdgeView:
    """One edge between operators. `selectivity` is tuples sent on it per tuple that the source operator processed."""

    source: str
    target: str
    selectivity: float = 1.0
    grouping: str = "shuffle"
    count: float = 0.0
    tuple_bytes: float = 92.0


@dataclass(frozen=True, slots=True)
class TaskView:
    """One row of the task table, for reading."""

    id: TaskId
    active: bool
    slot: Slot | None
    processed: float
    received: float
    queue: float
    busy_s: float
    load: Load
    execute_ms: float
    process_ms: float
    state_bytes: float


@dataclass(frozen=True)
class TopologyView:
    """One topology: operators in topological order, edges, tasks, traffic, and what came out of it.

    `source_counts` is what each source emitted in the window, before any queue: lam_G is their sum.
    """

    name: str
    operators: tuple[OperatorView, ...]
    edges: tuple[EdgeView, ...]
    tasks: TaskTable
    traffic: Traffic = field(default_factory=Traffic.none)
    source_counts: Mapping[str, float] = field(default_factory=dict)
    workers: int | None = None
    latency_ms: float = 0.0
    failed: float = 0.0
    node_ids: tuple[str, ...] = ()

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Operator name to its position in topological order."""
        return MappingProxyType({operator.name: at for at, operator in enumerate(self.operators)})

    def operator(self, name: str) -> OperatorView:
        """The operator of that name."""
        return self.operators[self.positions[name]]

    def parents(self, name: str) -> list[EdgeView]:
        """The edges that end in this operator."""
        return [edge for edge in self.edges if edge.target == name]

    def children(self, name: str) -> list[EdgeView]:
        """The edges that start in this operator."""
        return [edge for edge in self.edges if edge.source == name]

    @cached_property
    def _rows(self) -> tuple[Ints, ...]:
        order = np.lexsort((self.tasks.index, self.tasks.operator))
        cuts = np.searchsorted(self.tasks.operator[order], np.arange(1, len(self.operators)))
        return tuple(np.split(order, cuts))

    def rows(self, name: str, *, active: bool = False) -> Ints:
        """The rows of an operator's tasks by index; `active=True` leaves the idle pool out."""
        rows = self._rows[self.positions[name]]
        return rows[self.tasks.active[rows]] if active else rows

    def active(self, name: str) -> int:
        """How many tasks of the operator are active."""
        return len(self.rows(name, active=True))

    @cached_property
    def task_ids(self) -> tuple[TaskId, ...]:
        """The identity of every row."""
        names = [operator.name for operator in self.operators]
        return tuple(
            TaskId(names[operator], index)
            for operator, index in zip(self.tasks.operator.tolist(), self.tasks.index.tolist(), strict=True)
        )

    @cached_property
    def placement(self) -> Mapping[TaskId, Slot]:
        """Where every placed task runs."""
        node, process = self.tasks.node.tolist(), self.tasks.process.tolist()
        return MappingProxyType(
            {
                task: Slot(self.node_ids[node[row]], process[row])
                for row, task in enumerate(self.task_ids)
                if node[row] >= 0
            }
        )

    def task(self, row: int) -> TaskView:
        """One row as a record."""
        table, identity = self.tasks, self.task_ids[row]
        measured = {name: float(getattr(table, name)[row]) for name in MEASURES if name not in DIMENSIONS}
        return TaskView(
            id=identity,
            active=bool(table.active[row]),
            slot=self.placement.get(identity),
            load=Load(float(table.cpu[row]), float(table.mem[row]), float(table.io[row])),
            **measured,
        )

    def __iter__(self) -> Iterator[TaskView]:
        return (self.task(row) for row in range(len(self.tasks)))

    def service_s(self, name: str) -> float:
        """Mean service time of one instance: declared by the monitor, or busy time over tuples processed; 0 if none."""
        declared = self.operator(name).service_s
        if declared is not None:
            return declared
        rows = self.rows(name)
        processed = float(self.tasks.processed[rows].sum())
        return float(self.tasks.busy_s[rows].sum()) / processed if processed > 0 else 0.0

    @property
    def source_count(self) -> float:
        """lam_G: everything that the sources emitted in the window."""
        return float(sum(self.source_counts.values()))


@dataclass(frozen=True, slots=True)
class TierCosts:
    """Measured seconds to hand one tuple over: same process, same node, other node."""

    thread_s: float = 1e-6
    process_s: float = 2e-5
    node_s: float = 1e-4


@dataclass(frozen=True, slots=True)
class Links:
    """Bandwidth between nodes in bytes per second; `pairs` overrides the common figure."""

    default_bytes_s: float = 12.5e6
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def between(self, one: str, other: str) -> float:
        """Bandwidth of one pair, in either direction."""
        return self.pairs.get((one, other), self.pairs.get((other, one), self.default_bytes_s))


@dataclass(frozen=True)
class View:
    """The cluster over the window [start_s, end_s], sampled every `sample_s`."""

    start_s: float
    end_s: float
    nodes: tuple[NodeView, ...]
    topologies: tuple[TopologyView, ...]
    sample_s: float = 1.0
    tiers: TierCosts = TierCosts()
    links: Links = field(default_factory=Links)

    def __post_init__(self) -> None:
        if self.end_s < self.start_s:
            raise PolicyError(f"view: the window must not end before it starts, got [{self.start_s}, {self.end_s}]")
        ids = tuple(node.id for node in self.nodes)
        if len(set(ids)) != len(ids):
            raise PolicyError(f"view: node ids must differ, got {ids}")
        for topology in self.topologies:
            nodes = topology.tasks.node
            if len(nodes) and int(nodes.max()) >= len(ids):
                raise PolicyError(f"topology {topology.name!r}: a task is on node {nodes.max()} of {len(ids)}")
        # Tables hold positions; a topology learns the names that belong to them from the view that it is part of.
        named = tuple(
            topology if topology.node_ids == ids else replace(topology, node_ids=ids) for topology in self.topologies
        )
        object.__setattr__(self, "topologies", named)

    @property
    def window_s(self) -> float:
        """Length of the window."""
        return self.end_s - self.start_s

    def rate(self, count: float) -> float:
        """A count of the window as tuples per second."""
        return count / self.window_s if self.window_s > 0 else 0.0

    def topology(self, name: str) -> TopologyView:
        """The topology of that name."""
        for topology in self.topologies:
            if topology.name == name:
                return topology
        raise PolicyError(f"no topology {name!r} in the view; there are {[t.name for t in self.topologies]}")

    @cached_property
    def node_positions(self) -> Mapping[str, int]:
        """Node id to its position."""
        return MappingProxyType({node.id: at for at, node in enumerate(self.nodes)})

    def node(self, identity: str) -> NodeView:
        """The node of that id."""
        return self.nodes[self.node_positions[identity]]

    @cached_property
    def node_loads(self) -> Floats:
        """The (nodes, 3) matrix of measured loads."""
        return np.array([node.load for node in self.nodes], dtype=np.float64).reshape(-1, 3)

    @cached_property
    def node_baselines(self) -> Floats:
        """The (nodes, 3) matrix of idle baselines."""
        return np.array([node.baseline for node in self.nodes], dtype=np.float64).reshape(-1, 3)

    @cached_property
    def tasks_on_node(self) -> Ints:
        """How many tasks each node hosts, over all topologies."""
        return sum_columns((topology.tasks.node for topology in self.topologies), len(self.nodes))

    def used_nodes(self) -> list[int]:
        """Positions of the live nodes that host at least one task."""
        return [at for at, count in enumerate(self.tasks_on_node.tolist()) if count and self.nodes[at].alive]

    def sample_times_s(self, count: int) -> list[float]:
        """The times of the last `count` samples, the newest at the window's end."""
        return [self.end_s - (count - 1 - at) * self.sample_s for at in range(count)]


def sum_columns(columns: Iterable[Ints], size: int) -> Ints:
    """How often each position 0..size-1 occurs in all columns together; -1 is ignored."""
    total = np.zeros(size, dtype=np.int64)
    for column in columns:
        total += np.bincount(column[column >= 0], minlength=size)
    return total
