"""Where new instances go when a policy decides only how many there are: Storm's even order over what is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rstream.schedulers.even import assign_evenly, interleave, workers_for
from rstream.schedulers.ledger import Ledger
from rstream.schedulers.plan import TopologyPlan, growth, settle
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import TopologyView, View


@dataclass(frozen=True, slots=True)
class Growing:
    """Sizes that fit the cluster, the slots of the instances that are made for them, and how many found none."""

    parallelism: Mapping[str, int]
    placement: Mapping[TaskId, Slot]
    missing: int


def open_slots(topology: str, ledger: Ledger) -> list[Slot]:
    """Slots with room for a topology, its own first, each as often as it has room, spread over the nodes."""
    room = ledger.open(topology)
    free: dict[str, list[int]] = {}
    for slot in room:
        free.setdefault(slot.node, []).append(slot.process)
    order = interleave(free)
    order.sort(key=lambda slot: ledger.owner(slot) is None)
    deepest = max(room.values(), default=0)
    return [slot for rank in range(deepest) for slot in order if rank < room[slot]]


def grow_evenly(
    topology: TopologyView, wanted: Mapping[str, int], ledger: Ledger, *, keep_loaded: bool = False
) -> Growing:
    """Shrink and grow operators to the wanted sizes as far as slots allow; operators come in the order given.

    An instance that stops gives its slot free unless it stays loaded in the pool.
    """
    parallelism: dict[str, int] = {}
    placement: dict[TaskId, Slot] = {}
    missing = 0
    for name, k in wanted.items():
        active, pool = topology.active(name), topology.operator(name).pool
        kept = keep_loaded or len(topology.rows(name)) <= pool
        if k < active and not kept:
            for row in topology.rows(name, active=True)[k:].tolist():
                ledger.release(topology.name, topology.task_ids[row])
    slots: Iterator[Slot] | None = None
    for name, k in wanted.items():
        idle, fresh = growth(topology, name, k)
        if fresh and slots is None:  # waking idle replicas needs no slot, and looking for slots is the costly part
            slots = iter(open_slots(topology.name, ledger))
        placed = _book(topology.name, fresh, slots, ledger, placement) if slots else 0
        parallelism[name] = min(k, topology.active(name) + len(idle) + placed)
        missing += len(fresh) - placed
    return Growing(parallelism, placement, missing)


def rebalance(topology: TopologyView, wanted: Mapping[str, int], ledger: Ledger, view: View) -> Growing:
    """The wanted sizes as Storm's `rebalance` places them: dealt out evenly over as many processes as before.

    Tasks on processes that already hold an even share stay; what no process has room for is not started.
    """
    places = topology.placement
    workers = len({slot for slot in places.values() if ledger.knows(slot.node)})
    end = settle(topology, TopologyPlan(dict(wanted)))
    tasks = [TaskId(op.name, index) for op in topology.operators for index in end.loaded[op.name]]
    tasks.sort(key=lambda task: task not in places)  # what runs has its room first: it is not given up for new ones
    new = assign_evenly(topology, tasks, ledger, view, workers_for(topology, view, len(tasks), workers or None))
    lost = Counter(task.operator for task in tasks if task not in new and task not in places)
    sizes = {name: max(k - lost[name], min(k, topology.active(name))) for name, k in wanted.items()}
    return Growing(sizes, {task: slot for task, slot in new.items() if places.get(task) != slot}, lost.total())


def _book(
    topology: str, tasks: Sequence[TaskId], slots: Iterator[Slot], ledger: Ledger, placement: dict[TaskId, Slot]
) -> int:
    placed = 0
    for task in tasks:
        slot = next((slot for slot in slots if ledger.book_slot(topology, task, slot)), None)
        if slot is None:
            break
        placement[task] = slot
        placed += 1
    return placed
