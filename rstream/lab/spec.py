"""What the lab models: a cluster, its topologies and what a change costs, as frozen values checked when made.

Times are seconds, loads are fractions of one node. Nothing here runs; `flow` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from rstream.errors import TopologyError

Grouping = Literal["shuffle", "fields", "load_balanced"]


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator: its cost per tuple and what one task of it occupies.

    `service_s` is the thread's busy time for one tuple on an idle node, of which `cpu_share` burns a core. `mem` is
    one task's share of its node's memory. For papers that give no profile, `idle` is load of a task in every
    dimension and `use_s` load of memory and I/O per tuple/s. `skew` is the exponent of a Zipf law over a keyed
    operator's key groups. A `source` only hands on what comes in and does not count as an instance.
    """

    name: str
    service_s: float
    parallelism: int = 1
    kind: Literal["source", "bolt"] = "bolt"
    stateful: bool = False
    keyed: bool = False
    cpu_share: float = 1.0
    mem: float = 0.0
    idle: float = 0.0
    use_s: float = 0.0
    pool: int = 0
    parallelism_max: int = 100
    state_bytes: float = 0.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        if self.service_s <= 0.0:
            raise TopologyError(f"operator {self.name!r}: service time must be above 0 s, got {self.service_s:g}")
        if self.parallelism < 1:
            raise TopologyError(f"operator {self.name!r}: parallelism must be at least 1, got {self.parallelism}")


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """One edge: `selectivity` tuples are sent on it per tuple that `source` processes."""

    source: str
    target: str
    selectivity: float = 1.0
    grouping: Grouping = "shuffle"
    tuple_bytes: float = 92.0


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """A DAG of operators in topological order; those without a parent are fed by the source trace.

    `workers` is Storm's numWorkers. `queue_limit` is the credit of one task's queue: a full one slows its senders and
    in the end the source (None: queues are unbounded). `q_size` bounds the source's queue, before the first
    operators that work: the newest are dropped beyond it. `t_out_s` drops what is older when it is dequeued.
    """

    name: str
    operators: tuple[OperatorSpec, ...]
    edges: tuple[EdgeSpec, ...]
    workers: int | None = None
    queue_limit: float | None = None
    q_size: float | None = None
    t_out_s: float | None = None

    def __post_init__(self) -> None:
        names = [operator.name for operator in self.operators]
        if not names:
            raise TopologyError(f"topology {self.name!r}: it needs at least one operator")
        if len(set(names)) != len(names):
            raise TopologyError(f"topology {self.name!r}: operator names must differ, got {names}")
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in names:
                    raise TopologyError(f"topology {self.name!r}: edge to unknown operator {end!r}; there are {names}")
            if names.index(edge.source) >= names.index(edge.target):
                raise TopologyError(
                    f"topology {self.name!r}: list operators from source to sink; {edge.source!r} -> {edge.target!r} "
                    "goes back"
                )

    def operator(self, name: str) -> OperatorSpec:
        """The operator of that name."""
        return next(operator for operator in self.operators if operator.name == name)

    def roots(self) -> tuple[str, ...]:
        """The operators that the source feeds."""
        targets = {edge.target for edge in self.edges}
        return tuple(operator.name for operator in self.operators if operator.name not in targets)

    def resized(self, **parallelism: int) -> TopologySpec:
        """The same topology with other start sizes.

        >>> spec = TopologySpec("t", (OperatorSpec("read", 0.001),), ())
        >>> spec.resized(read=3).operator("read").parallelism
        3
        """
        return replace(
            self,
            operators=tuple(
                replace(operator, parallelism=parallelism.get(operator.name, operator.parallelism))
                for operator in self.operators
            ),
        )


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Equal nodes: slots, cores, and the load that they show when idle."""

    nodes: int
    processes: int = 2
    tasks_per_process: int = 2
    cores: float = 2.0
    memory_bytes: float = 2.0 * 2**30
    bandwidth_bytes_s: float = 12.5e6
    baseline_cpu: float = 0.0
    baseline_mem: float = 0.0

    def node_ids(self) -> tuple[str, ...]:
        """Names that sort in the order of the nodes."""
        width = len(str(self.nodes))
        return tuple(f"n{at:0{width}d}" for at in range(1, self.nodes + 1))


@dataclass(frozen=True, slots=True)
class Tier:
    """One way to hand a tuple over: how long it takes, and the thread time it costs each of the two ends."""

    latency_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Tiers:
    """The three ways, by where the two tasks stand."""

    thread: Tier
    process: Tier
    node: Tier


@dataclass(frozen=True, slots=True)
class ChangeCosts:
    """What executing a plan takes: starting a task or process, moving state, restarting a topology.

    A live move pauses the task for `move_s` plus its state over the link; `restart` stops the whole topology for
    `restart_s`; `restart-drop` does so and empties every queue.
    """

    start_s: float = 1.0
    move_s: float = 0.2
    restart_s: float = 10.0
