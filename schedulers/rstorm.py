"""R-Storm and its successor, Storm's ResourceAwareScheduler: place once by declared needs.

`version: "1"` is R-Storm as in Storm 1.0: breadth-first over the operators, the node at the smallest distance.
`version: "2"` is the later scheduler: well-connected operators first, the node with the largest share of what is free.
Neither changes anything at run time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.tables import Bools, Floats, Slot, TaskId
from rstream.schedulers.view import NodeView, TopologyView, View


def distances(
    need: Sequence[float],
    nodes: Mapping[str, Sequence[float]],
    reference: str | None,
    racks: Mapping[str, Sequence[str]],
) -> dict[str, float | None]:
    """R-Storm's distance of a task (cpu, memory) to what each node has free; None where it does not fit.

    The network term is 0 on the node chosen last, 0.5 in its rack, 1 elsewhere, and 0 before the first choice.

    >>> distances([50, 512], {"a": [60, 600], "b": [40, 4096]}, None, {"r": ["a", "b"]})["b"] is None
    True
    """
    ids = list(nodes)
    rack = {node: name for name, members in racks.items() for node in members}
    network = np.zeros(len(ids))
    if reference is not None:  # it may be full or gone, and not among the nodes any more
        near = np.array([rack.get(node) == rack.get(reference) for node in ids], dtype=np.bool_)
        network = np.where([node == reference for node in ids], 0.0, np.where(near, 0.5, 1.0))
    free = np.array([nodes[node] for node in ids], dtype=np.float64).reshape(len(ids), len(need))
    found = _distances(np.array(need, dtype=np.float64), free, network)
    return {node: None if np.isinf(value) else float(value) for node, value in zip(ids, found, strict=True)}


def _network(racks: npt.NDArray[np.str_], last: int | None) -> Floats:
    if last is None:
        return np.zeros(len(racks))
    network = np.where(racks == racks[last], 0.5, 1.0)
    network[last] = 0.0
    return network


def _distances(need: Floats, free: Floats, network: Floats) -> Floats:
    apart = np.sqrt((((need - free) / (free + 1.0)) ** 2).sum(axis=1) + network**2)
    return np.where(np.all(free >= need, axis=1), apart, np.inf)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Nodes best first, and the scarcest share of each."""

    order: list[str]
    effective: dict[str, float]


def rank_nodes(free: Mapping[str, Sequence[float]], own: Mapping[str, int]) -> Ranked:
    """RAS 2.x: nodes with most own executors first, then by the smallest share of what the cluster has free.

    >>> rank_nodes({"a": [100, 100], "b": [300, 300]}, {}).order
    ['b', 'a']
    """
    ids = sorted(free)
    kinds = len(free[ids[0]]) if ids else 0
    amounts = np.array([free[node] for node in ids], dtype=np.float64).reshape(len(ids), kinds)
    totals = amounts.sum(axis=0)
    shares = np.divide(amounts, totals, out=np.zeros_like(amounts), where=totals > 0)
    least = shares.min(axis=1) if shares.size else np.zeros(len(ids))
    mean = shares.mean(axis=1) if shares.size else np.zeros(len(ids))
    rank = sorted(range(len(ids)), key=lambda at: (-own.get(ids[at], 0), -least[at], -mean[at], ids[at]))
    return Ranked([ids[at] for at in rank], dict(zip(ids, least.tolist(), strict=True)))


class RStormParameters(Parameters):
    """Parameters of `rstorm`; Storm's defaults."""

    version: Literal["1", "2"] = Field(default="1", description="`1`: R-Storm of Storm 1.0; `2`: RAS of Storm 2.x.")
    cpu_points: float = Field(default=10.0, gt=0, description="CPU need of one executor; a core has 100 points.")
    memory_mb: float = Field(default=128.0, gt=0, description="Memory need of one executor.")
    worker_heap_mb: float = Field(
        default=768.0, gt=0, description="Most memory that the executors of one process need."
    )


class RStorm:
    """The policy `rstorm`."""

    name: ClassVar[str] = "rstorm"
    Parameters: ClassVar = RStormParameters

    def __init__(self, parameters: RStormParameters | None = None) -> None:
        self.parameters = parameters or RStormParameters()

    @property
    def interval_s(self) -> float:
        """Storm looks every ten seconds whether something needs a slot."""
        return 10.0

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Place every topology that has tasks without a live slot; nothing here is random."""
        alive = {node.id for node in view.nodes if node.alive}
        planned = memory.get("placed", [])
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        lost = {t.name: [x for x in t.task_ids if not _live(t.placement.get(x), alive)] for t in view.topologies}
        # The first look places every topology in its own way, whatever started it; after that only lost tasks move.
        whole = {topology.name for topology in view.topologies if topology.name not in planned}
        ledger = Ledger(view)
        ledger.narrow(max(1, int(self.parameters.worker_heap_mb // self.parameters.memory_mb)))
        free = _Free(view, self.parameters, whole)
        for topology in view.topologies:
            tasks = self._order(topology) if topology.name in whole else lost[topology.name]
            if not tasks:
                reasons.append(Reason(topology.name, "placed once: nothing changes at run time"))
                continue
            if topology.name in whole:
                for task in topology.placement:
                    ledger.release(topology.name, task)
            place = self._place(topology, tasks, ledger, free)
            if any(task not in place for task in topology.placement if task in tasks and topology.name in whole):
                # Nobody was given the slots on which it stands, so that it can stay there.
                for task in place:
                    ledger.release(topology.name, task)
                for task, slot in topology.placement.items():
                    ledger.book_slot(topology.name, task, slot)
                reasons.append(Reason(topology.name, "stays where it is: not all of its tasks found another place"))
                continue
            moved = {task: slot for task, slot in place.items() if topology.placement.get(task) != slot}
            summary = f"{len(place)} of {len(tasks)} tasks placed by need, {len(moved)} of them on another slot"
            inputs = {"cpu_points": self.parameters.cpu_points, "memory_mb": self.parameters.memory_mb}
            other = Alternative("even placement", "looks neither at needs nor at neighbours")
            reasons.append(Reason(topology.name, summary, inputs, alternatives=(other,)))
            if moved:
                plans[topology.name] = TopologyPlan(placement=moved)
        return Plan(plans, reasons=tuple(reasons)), {"placed": sorted(topology.name for topology in view.topologies)}

    def _place(
        self, topology: TopologyView, tasks: Sequence[TaskId], ledger: Ledger, free: _Free
    ) -> dict[TaskId, Slot]:
        place: dict[TaskId, Slot] = {}
        last: int | None = None
        own: dict[str, int] = {}
        for task in tasks:
            open_nodes = free.open(ledger, topology.name)
            at = free.nearest(open_nodes, last) if self.parameters.version == "1" else free.best(open_nodes, own)
            slot = None if at is None else ledger.book(topology.name, task, free.nodes[at].id)
            if at is None or slot is None:
                continue
            free.take(at)
            place[task] = slot
            last = at
            own[slot.node] = own.get(slot.node, 0) + 1
        # What found no place stays where it stands, if that has not been given away.
        for task in tasks:
            slot = topology.placement.get(task)
            if task not in place and slot is not None and ledger.book_slot(topology.name, task, slot):
                place[task] = slot
        return place

    def _order(self, topology: TopologyView) -> list[TaskId]:
        """One executor of each operator in turn; operators breadth first, or by their number of connections."""
        near: dict[str, list[str]] = {operator.name: [] for operator in topology.operators}
        for edge in topology.edges:
            near[edge.source].append(edge.target)
            near[edge.target].append(edge.source)
        if self.parameters.version == "1":
            names = _breadth_first(topology, near)
        else:
            names = sorted(near, key=lambda name: (-len(near[name]), topology.positions[name]))
        rows = {name: topology.rows(name).tolist() for name in names}
        deepest = max(map(len, rows.values()), default=0)
        return [topology.task_ids[rows[name][at]] for at in range(deepest) for name in names if at < len(rows[name])]


class _Free:
    """What is left of every live node's CPU points and megabytes, in order of their ids."""

    def __init__(self, view: View, parameters: RStormParameters, without: set[str]) -> None:
        self.nodes: list[NodeView] = sorted((node for node in view.nodes if node.alive), key=lambda node: node.id)
        self._need = np.array([parameters.cpu_points, parameters.memory_mb])
        self._free = np.array([[n.cpu_cores * 100.0, n.memory_bytes / 2**20] for n in self.nodes]).reshape(-1, 2)
        self._rack = np.array([node.rack for node in self.nodes])
        self._at = {node.id: at for at, node in enumerate(self.nodes)}
        for topology in view.topologies:
            if topology.name not in without:
                for slot in topology.placement.values():
                    if slot.node in self._at:
                        self.take(self._at[slot.node])

    def take(self, at: int) -> None:
        self._free[at] -= self._need

    def open(self, ledger: Ledger, topology: str) -> Bools:
        """Nodes with a process that takes one more task."""
        return np.array([ledger.room(topology, node.id) > 0 for node in self.nodes], dtype=np.bool_)

    def nearest(self, among: Bools, last: int | None) -> int | None:
        if last is None:  # the rack with most free resources comes first
            totals = {rack: float(self._free[self._rack == rack].sum()) for rack in sorted(set(self._rack.tolist()))}
            best = max(totals, key=lambda rack: totals[rack], default=None)
            inside = among & (self._rack == best)
            among = inside if inside.any() else among
        apart = np.where(among, _distances(self._need, self._free, _network(self._rack, last)), np.inf)
        return int(np.argmin(apart)) if len(apart) and np.isfinite(apart.min()) else None

    def best(self, among: Bools, own: Mapping[str, int]) -> int | None:
        ranked = rank_nodes({node.id: self._free[at].tolist() for at, node in enumerate(self.nodes)}, own)
        for node in ranked.order:
            at = self._at[node]
            if among[at] and np.all(self._free[at] >= self._need):
                return at
        return None


def _breadth_first(topology: TopologyView, near: Mapping[str, Sequence[str]]) -> list[str]:
    sources = [operator.name for operator in topology.operators if operator.kind == "source"]
    waiting, seen = deque(sources), dict.fromkeys(sources)
    while waiting:
        for name in near[waiting.popleft()]:
            if name not in seen:
                seen[name] = None
                waiting.append(name)
    return [*seen, *(operator.name for operator in topology.operators if operator.name not in seen)]


def _live(slot: Slot | None, alive: set[str]) -> bool:
    return slot is not None and slot.node in alive
