"""From subgraphs and their nodes to slots: tasks that talk most share a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rstream.schedulers.fitting import pair_tasks, saving
from rstream.schedulers.ledger import Ledger
from rstream.schedulers.partition import Graph
from rstream.schedulers.tables import Ints, Slot, TaskId
from rstream.schedulers.view import NodeView, View

Link = tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class Packed:
    """A slot per task and topology; how many had to sit beside their subgraph, and how many found no slot."""

    places: Mapping[str, Mapping[TaskId, Slot]]
    spilled: int
    lost: int


def pack(view: View, graph: Graph, labels: Ints, chosen: Sequence[int | None], nodes: Sequence[NodeView]) -> Packed:
    """Seat all tasks.

    A process serves one topology, so that a mixed subgraph can need more processes than its node has: what is left
    over, and what has no node, goes wherever there is room, nodes in use first.
    """
    ledger = Ledger(view, without=[topology.name for topology in view.topologies])
    names = [(topology.name, task) for topology in view.topologies for task in topology.task_ids]
    old = [topology.placement.get(task) for topology in view.topologies for task in topology.task_ids]
    places: dict[str, dict[TaskId, Slot]] = {topology.name: {} for topology in view.topologies}
    links = _links(graph, labels, len(chosen))
    left: list[int] = []
    for part, tasks in enumerate(_members(labels, len(chosen))):
        at = chosen[part]
        if at is None:
            left += tasks
            continue
        for name in dict.fromkeys(names[task][0] for task in tasks):
            ours = [task for task in tasks if names[task][0] == name]
            for together in pair_tasks(ours, links[part], nodes[at].tasks_per_process):
                left += _seat(together, nodes[at], names, old, ledger, places)
    lost = _spill(sorted(left), names, ledger, places)
    return Packed(places, len(left) - lost, lost)


def _members(labels: Ints, parts: int) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(parts)]
    for task, label in enumerate(labels.tolist()):
        members[label].append(task)
    return members


def _links(graph: Graph, labels: Ints, parts: int) -> list[list[Link]]:
    """The channels inside each subgraph."""
    inside = labels[graph.source] == labels[graph.target]
    links: list[list[Link]] = [[] for _ in range(parts)]
    columns = (labels[graph.source], graph.source, graph.target, graph.weight)
    for label, one, other, weight in zip(*(column[inside].tolist() for column in columns), strict=True):
        links[label].append((one, other, weight))
    return links


def _seat(
    tasks: Sequence[int],
    node: NodeView,
    names: Sequence[tuple[str, TaskId]],
    old: Sequence[Slot | None],
    ledger: Ledger,
    places: dict[str, dict[TaskId, Slot]],
) -> list[int]:
    """One process for these tasks: where most of them run already, else the first that takes all; returns the rest."""
    topology = names[tasks[0]][0]
    slots = [Slot(node.id, process) for process in range(node.processes)]
    fit = [slot for slot in slots if ledger.room_in(topology, slot) >= len(tasks)]
    best = min(
        fit,
        key=lambda slot: (-sum(old[task] == slot for task in tasks), ledger.owner(slot) is not None, slot.process),
        default=None,
    )
    rest = []
    for task in tasks:
        name = names[task][1]
        if best is not None and ledger.book_slot(topology, name, best):
            places[topology][name] = best
        elif (slot := ledger.book(topology, name, node.id)) is not None:
            places[topology][name] = slot
        else:
            rest.append(task)
    return rest


def _spill(
    tasks: Sequence[int],
    names: Sequence[tuple[str, TaskId]],
    ledger: Ledger,
    places: dict[str, dict[TaskId, Slot]],
) -> int:
    """Give the tasks any slot with room, on nodes that their topology uses first; returns how many got none."""
    lost = 0
    for topology in dict.fromkeys(names[task][0] for task in tasks):
        used = {slot.node for slot in places[topology].values()}
        slots = iter(sorted(ledger.open(topology), key=lambda slot: (slot.node not in used, slot)))
        slot = next(slots, None)
        for task in (task for task in tasks if names[task][0] == topology):
            while slot is not None and not ledger.book_slot(topology, names[task][1], slot):
                slot = next(slots, None)
            if slot is None:
                lost += 1
            else:
                places[topology][names[task][1]] = slot
    return lost


def saved_costs(view: View, graph: Graph, places: Mapping[str, Mapping[TaskId, Slot]]) -> dict[str, Any]:
    """Eqs 22 and 23 over all channels, by the measured cost of the tiers; for the report only."""
    slots = [places[topology.name].get(task) for topology in view.topologies for task in topology.task_ids]
    node = np.array([-1 if slot is None else view.node_positions[slot.node] for slot in slots], dtype=np.int64)
    process = np.array([-1 if slot is None else slot.process for slot in slots], dtype=np.int64)
    same_node = node[graph.source] == node[graph.target]
    same_process = same_node & (process[graph.source] == process[graph.target])
    tiers, window_s = view.tiers, view.window_s
    near = saving(float(graph.weight[same_node].sum()), tiers.node_s, tiers.process_s, window_s)
    inner = saving(float(graph.weight[same_process].sum()), tiers.node_s, tiers.process_s, window_s)
    return {"saved_by_node_s": near.by_sharing_a_node, "saved_by_process_s": inner.by_sharing_a_process}
