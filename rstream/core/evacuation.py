"""Moves everything of a topology away from nodes whose end was announced, whatever its policy is. Pure.

A preemption notice leaves seconds, and a policy may look once in a minute; some never move anything. So the controller
moves the tasks itself: each worker's tasks together to a free slot of a node that stays, on the node that has the
fewest workers of the topology, or, where no slot is free, into a worker that the topology has on such a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rstream.core.channel import TaskId
from rstream.core.records import TopologyRecord
from rstream.core.slots import SlotBook
from rstream.core.view import NodeFacts
from rstream.schedulers.base import Slot


def threatened(record: TopologyRecord, nodes: Sequence[NodeFacts]) -> dict[str, list[TaskId]]:
    """The workers on nodes that are about to end, with their tasks."""
    leaving = {node.id for node in nodes if node.draining}
    found: dict[str, list[TaskId]] = {}
    for task, worker in sorted(record.placement.items()):
        if worker in record.workers and record.workers[worker].address.node in leaving:
            found.setdefault(worker, []).append(task)
    return found


def refuges(
    record: TopologyRecord, workers: Mapping[str, Sequence[TaskId]], nodes: Sequence[NodeFacts], book: SlotBook
) -> dict[TaskId, Slot]:
    """Where the tasks of these workers can go; empty where no other node takes them."""
    sizes = {node.id: node.slots for node in nodes if not node.draining}
    shown = [Slot(node, process) for node, all in book.numbering([record.name], sizes).shown.items() for process in all]
    free = [slot for slot in shown if book.worker(slot) is None]
    tasks: Counter[Slot] = Counter({slot: 0 for slot in shown if slot not in free})
    for worker in record.placement.values():
        slot = book.slot(worker)
        if slot is not None and slot in tasks:
            tasks[slot] += 1
    targets: dict[TaskId, Slot] = {}
    for worker in sorted(workers):
        used = Counter(slot.node for slot in tasks)
        if free:
            chosen = min(free, key=lambda slot: (used[slot.node], slot))
            free.remove(chosen)
        elif tasks:
            chosen = min(tasks, key=lambda slot: (tasks[slot], slot))
        else:
            return {}
        tasks[chosen] += len(workers[worker])
        targets.update(dict.fromkeys(workers[worker], chosen))
    return targets
