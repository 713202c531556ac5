"""Es-Stream's choice of nodes: where new instances go, which instances leave, which nodes are emptied.

One object serves one planning pass over all topologies, so that later topologies see what earlier ones took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.loads import choose, decide
from rstream.schedulers.plan import growth
from rstream.schedulers.tables import Ints, Slot, TaskId
from rstream.schedulers.view import TopologyView, View


class Thresholds(Protocol):
    """The part of the parameters that node scaling reads."""

    @property
    def alpha_cpu(self) -> float: ...
    @property
    def alpha_mem(self) -> float: ...
    @property
    def alpha_io(self) -> float: ...
    @property
    def eta(self) -> float: ...
    @property
    def phi(self) -> float: ...
    @property
    def chi(self) -> float: ...
    @property
    def zeta(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """What one topology gets: instances per operator, places of the new ones, and who leaves."""

    parallelism: Mapping[str, int]
    placement: Mapping[TaskId, Slot]
    retired: tuple[TaskId, ...]


class NodeScaling:
    """Loads and slots while a plan takes shape; nodes are held in order of their ids, which breaks ties."""

    def __init__(self, view: View, thresholds: Thresholds) -> None:
        self.view = view
        self.ledger = Ledger(view)
        order = sorted((at for at, node in enumerate(view.nodes) if node.alive), key=lambda at: view.nodes[at].id)
        self._nodes = [view.nodes[at] for at in order]
        self._at = {node.id: at for at, node in enumerate(self._nodes)}
        self._loads = view.node_loads[order].copy()
        self._tasks = view.tasks_on_node[order].copy()
        self._before = self._tasks > 0
        self._used = self._before.copy()
        self._cap = np.array([thresholds.alpha_cpu, thresholds.alpha_mem, thresholds.alpha_io])
        self.used_loads = self._loads[self._used].max(axis=1).tolist() if self._used.any() else []
        self.decision = decide(self.used_loads, thresholds.eta, thresholds.phi, thresholds.chi, thresholds.zeta)
        self._missing = 0

    def place(self, topology: TopologyView, wanted: Mapping[str, int]) -> Scaling:
        """Shrink first, which makes room, then grow in topological order."""
        parallelism = {name: topology.active(name) for name in wanted}
        placement: dict[TaskId, Slot] = {}
        retired: list[TaskId] = []
        for name, k in wanted.items():
            if k < parallelism[name]:
                retired += self._shrink(topology, name, parallelism[name] - k)
                parallelism[name] = k
        growing = {name: k for name, k in wanted.items() if k > parallelism[name]}
        room = self._room(topology.name) if growing else np.zeros(0, dtype=np.int64)
        for name, k in growing.items():
            parallelism[name] = self._grow(topology, name, k, room, placement)
        return Scaling(parallelism, placement, tuple(retired))

    def _room(self, topology: str) -> Ints:
        """How many more tasks of a topology each node takes."""
        rooms = self.ledger.rooms(topology)
        return np.array([rooms[node.id] for node in self._nodes], dtype=np.int64)

    def _grow(self, topology: TopologyView, name: str, wanted: int, room: Ints, placement: dict[TaskId, Slot]) -> int:
        rows = topology.rows(name, active=True)
        need = topology.tasks.loads[rows].sum(axis=0) / wanted
        idle, fresh = growth(topology, name, wanted)
        reached = len(rows)
        for task in idle:  # a loaded replica already has its slot
            slot = topology.placement.get(task)
            if slot is not None and slot.node in self._at:
                self._loads[self._at[slot.node]] += need
            reached += 1
        for task in fresh:
            at = choose(self._loads, self._used, need, self._cap, self.decision, room > 0)
            if at is None:
                self._missing += wanted - reached
                break
            slot = self.ledger.book(topology.name, task, self._nodes[at].id)
            assert slot is not None, "the ledger had room a moment ago"
            placement[task] = slot
            room[at] -= 1
            self._loads[at] += need
            self._tasks[at] += 1
            self._used[at] = True
            reached += 1
        return reached

    def _shrink(self, topology: TopologyView, name: str, count: int) -> list[TaskId]:
        """Leave the nodes that scaling took, the newest first; elsewhere the highest instances go."""

        def rank(row: int) -> tuple[int, int]:
            node = int(topology.tasks.node[row])
            added = self.view.nodes[node].added_order if node >= 0 else None
            return (-1 if added is None else added, int(topology.tasks.index[row]))

        rows = sorted(topology.rows(name, active=True).tolist(), key=rank, reverse=True)[:count]
        keeps = len(topology.rows(name)) <= topology.operator(name).pool
        loads = topology.tasks.loads
        for row in rows:
            node = int(topology.tasks.node[row])
            at = self._at.get(self.view.nodes[node].id) if node >= 0 else None
            if at is None:
                continue
            self._loads[at] = np.maximum(self._loads[at] - loads[row], 0.0)
            if not keeps:  # a task that stays in the pool keeps its slot
                self._tasks[at] -= 1
                self.ledger.release(topology.name, topology.task_ids[row])
        return [topology.task_ids[row] for row in rows]

    def taken(self) -> tuple[str, ...]:
        """Nodes that this plan brings into use."""
        return tuple(node.id for at, node in enumerate(self._nodes) if self._tasks[at] > 0 and not self._before[at])

    def released(self) -> tuple[str, ...]:
        """Nodes that this plan empties, the newest first."""
        empty = [node for at, node in enumerate(self._nodes) if self._before[at] and self._tasks[at] <= 0]
        empty.sort(key=lambda node: -1 if node.added_order is None else node.added_order, reverse=True)
        return tuple(node.id for node in empty)

    @property
    def missing_nodes(self) -> int:
        """How many plain nodes more would take the instances that found no place."""
        capacity = max((node.capacity for node in self._nodes), default=4)
        return math.ceil(self._missing / max(1, capacity))
