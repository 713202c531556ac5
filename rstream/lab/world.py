"""The modelled cluster as columns: every operator, edge and task of every topology in one set of arrays.

Operators and edges never change; tasks come, go and move, so that their columns are rebuilt by `retask`. The arrays
are what makes an hour of a thousand nodes cheap: `flow` steps all tasks at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rstream.errors import TopologyError
from rstream.lab.spec import ClusterSpec, TopologySpec
from rstream.lab.sums import add_up
from rstream.schedulers.base import Slot, TaskId
from rstream.schedulers.tables import Bools, Floats, Ints

KEY = 1_000_000  # more tasks than any operator has

# One float per task each; `retask` carries all of them over.
COLUMNS = (
    "queue",  # tuples waiting
    "arriving",  # tuples on their way, which join the queue at the next step
    "ready_s",  # paused until this time
    "busy",  # share of time busy, smoothed over about a second
    "flow",  # tuples/s processed, smoothed likewise
    "credit",  # load-balancing grouping: U of the PSPS paper, from what waits at the start of an interval
    "processed",  # the rest: totals since the window began
    "received",
    "busy_s",
    "cpu_s",
    "io_s",
    "wait_s",
)


class World:
    """All state of the model, and the changes that a plan can make to it."""

    def __init__(self, cluster: ClusterSpec, topologies: Sequence[TopologySpec]) -> None:
        self.cluster, self.topologies = cluster, tuple(topologies)
        self.node_ids = cluster.node_ids()
        self.node_at = {node: at for at, node in enumerate(self.node_ids)}
        self.operators = [(at, op) for at, topology in enumerate(self.topologies) for op in topology.operators]
        self.op_at = {(self.topologies[at].name, op.name): place for place, (at, op) in enumerate(self.operators)}
        specs = [op for _, op in self.operators]
        self.op_topology: Ints = np.array([at for at, _ in self.operators], dtype=np.int64)
        self.op_service: Floats = np.array([op.service_s for op in specs])
        self.op_cpu_share: Floats = np.array([op.cpu_share for op in specs])
        self.op_mem: Floats = np.array([op.mem for op in specs])
        self.op_idle: Floats = np.array([op.idle for op in specs])
        self.op_use: Floats = np.array([op.use_s for op in specs])
        self.is_source: Bools = np.array([op.kind == "source" for op in specs])
        self.op_limit: Floats = np.array(
            [np.inf if (limit := self.topologies[at].queue_limit) is None else limit for at, _ in self.operators]
        )
        edges = [(topology.name, edge) for topology in self.topologies for edge in topology.edges]
        self.edges = [edge for _, edge in edges]
        self.edge_source: Ints = np.array([self.op_at[name, edge.source] for name, edge in edges], dtype=np.int64)
        self.edge_target: Ints = np.array([self.op_at[name, edge.target] for name, edge in edges], dtype=np.int64)
        self.edge_selectivity: Floats = np.array([edge.selectivity for _, edge in edges])
        self.edge_bytes: Floats = np.array([edge.tuple_bytes for _, edge in edges])
        self.groupings = [edge.grouping for _, edge in edges]
        self.roots = [self.op_at[topology.name, name] for topology in self.topologies for name in topology.roots()]
        self.is_sink: Bools = ~np.isin(np.arange(len(specs)), self.edge_source)
        self.resized: Bools = np.zeros(len(specs), dtype=np.bool_)  # whose active tasks changed since the last look
        self.added_order: dict[int, int] = {}
        self.op: Ints = np.zeros(0, dtype=np.int64)
        self.index: Ints = np.zeros(0, dtype=np.int64)
        self.node: Ints = np.zeros(0, dtype=np.int64)
        self.process: Ints = np.zeros(0, dtype=np.int64)
        self.active: Bools = np.zeros(0, dtype=np.bool_)
        self.values: dict[str, Floats] = {name: np.zeros(0) for name in COLUMNS}
        self.weight: Floats = np.zeros(0)
        self.version = 0

    def start(self) -> None:
        """Place every topology as Storm does: its tasks in turn over one slot of each node, then the second slots."""
        rows: list[tuple[int, int, int, int, bool]] = []
        taken: set[tuple[int, int]] = set()
        for at, topology in enumerate(self.topologies):
            slots = [
                (node, process)
                for process in range(self.cluster.processes)
                for node in range(self.cluster.nodes)
                if (node, process) not in taken
            ]
            slots = slots[: topology.workers or self.cluster.nodes]
            tasks = [(op, index) for op in topology.operators for index in range(max(op.parallelism, op.pool))]
            if not slots:
                raise TopologyError(f"topology {topology.name!r}: no free slot is left for it")
            # The active tasks first, so that an idle pool never crowds them onto few nodes.
            tasks.sort(key=lambda task: task[1] >= task[0].parallelism)
            for place, (op, index) in enumerate(tasks):
                node, process = slots[place % len(slots)]
                taken.add((node, process))
                rows.append(
                    (self.op_at[self.topologies[at].name, op.name], index, node, process, index < op.parallelism)
                )
        rows.sort()
        self.op, self.index, self.node, self.process = (
            np.array([row[column] for row in rows], dtype=np.int64) for column in range(4)
        )
        self.active = np.array([row[4] for row in rows], dtype=np.bool_)
        self.values = {name: np.zeros(len(rows)) for name in COLUMNS}
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.weight = self.even_weights()

    def even_weights(self) -> Floats:
        """Each task's share of its operator's input: equal among the active, or by key groups where keys are skewed."""
        weight = self.active.astype(np.float64)
        for place, (_, op) in enumerate(self.operators):
            if op.keyed and op.skew > 0.0:
                rows = np.flatnonzero((self.op == place) & self.active)
                weight[rows] = _zipf_shares(len(rows), op.skew)
        total = add_up(self.op, weight, len(self.operators))
        return np.asarray(weight / np.maximum(total, 1e-12)[self.op])

    def rows(self, topology: str, tasks: Sequence[TaskId]) -> list[int]:
        """The rows of those tasks that are there."""
        wanted = np.array([self.op_at[topology, task.operator] * KEY + task[1] for task in tasks], dtype=np.int64)
        keys = self.keys()
        places = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        return [int(place) for place in places[keys[places] == wanted]] if len(keys) else []

    def keys(self) -> Ints:
        """One ascending number per task: the columns are kept in this order."""
        return self.op * KEY + self.index

    def topology_rows(self, at: int) -> Ints:
        """The rows of one topology's tasks, by operator and index."""
        return np.flatnonzero(self.op_topology[self.op] == at)

    def add_tasks(self, topology: str, tasks: Sequence[tuple[TaskId, Slot]]) -> None:
        """Load tasks, idle."""
        if not tasks:
            return
        new = [(self.op_at[topology, t.operator], t[1], self.node_at[slot.node], slot.process) for t, slot in tasks]
        fresh = np.array(new, dtype=np.int64)
        columns = (self.op, self.index, self.node, self.process)
        joined = [np.append(column, fresh[:, at]) for at, column in enumerate(columns)]
        order = np.lexsort((joined[1], joined[0]))
        self.op, self.index, self.node, self.process = (column[order] for column in joined)
        self.active = np.append(self.active, np.zeros(len(new), dtype=np.bool_))[order]
        self.values = {name: np.append(column, np.zeros(len(new)))[order] for name, column in self.values.items()}
        self._changed()

    def remove_tasks(self, gone: Sequence[int]) -> None:
        """End tasks; what still waits in their queues goes to their operator's other tasks."""
        if not gone:
            return
        keep = np.ones(len(self.op), dtype=np.bool_)
        keep[list(gone)] = False
        for name in ("queue", "arriving"):
            left = add_up(self.op[~keep], self.values[name][~keep], len(self.operators))
            heirs = keep & self.active
            count = np.bincount(self.op[heirs], minlength=len(self.operators))
            self.values[name][heirs] += (left / np.maximum(count, 1))[self.op[heirs]]
        self.op, self.index, self.node, self.process = (
            column[keep] for column in (self.op, self.index, self.node, self.process)
        )
        self.active = self.active[keep]
        self.values = {name: column[keep] for name, column in self.values.items()}
        self._changed()

    def move_tasks(self, rows: Sequence[int], slots: Sequence[Slot], until_s: float) -> None:
        """Bring tasks to other slots; they are paused until then."""
        for row, slot in zip(rows, slots, strict=True):
            self.node[row], self.process[row] = self.node_at[slot.node], slot.process
        self.pause(rows, until_s)
        self._changed()

    def activate(self, rows: Sequence[int], on: bool) -> None:
        """Route work to these tasks, or no more; one that is switched off drains what it has."""
        if not rows:
            return
        self.active[list(rows)] = on
        changed = np.isin(self.op, self.op[list(rows)])
        self.values["credit"][changed] = 0.0  # figures of before a change say nothing of after it
        self.resized[self.op[list(rows)]] = True
        self._changed()

    def pause(self, rows: Sequence[int] | Ints, until_s: float) -> None:
        """Let these tasks process nothing before that time."""
        ready = self.values["ready_s"]
        ready[rows] = np.maximum(ready[rows], until_s)

    def drop_queues(self, at: int) -> float:
        """Empty every queue of a topology; returns how many tuples were lost."""
        rows = self.topology_rows(at)
        lost = float(self.values["queue"][rows].sum() + self.values["arriving"][rows].sum())
        self.values["queue"][rows] = 0.0
        self.values["arriving"][rows] = 0.0
        self._changed()
        return lost

    def used_nodes(self) -> Ints:
        """The nodes that host an active task, or one that still drains."""
        working = self.active | (self.values["queue"] > 1e-9)
        return np.unique(self.node[working])

    def slot_tasks(self) -> dict[Slot, int]:
        """How many tasks each slot holds."""
        pairs, counts = np.unique(np.stack((self.node, self.process)), axis=1, return_counts=True)
        return {
            Slot(self.node_ids[node], process): count
            for (node, process), count in zip(pairs.T.tolist(), counts.tolist(), strict=True)
        }


def _zipf_shares(tasks: int, exponent: float, groups: int = 128) -> Floats:
    """Shares of `tasks` owners of contiguous ranges among key groups whose weights follow a Zipf law.

    The groups are dealt out in a fixed shuffled order, for hot keys are not neighbours after hashing.
    """
    weights = 1.0 / np.arange(1, groups + 1) ** exponent
    weights = weights[np.random.default_rng(7).permutation(groups)]
    owners = np.arange(groups) * tasks // groups
    return np.asarray(add_up(owners, weights, tasks) / weights.sum())
