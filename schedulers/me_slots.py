"""Me-Stream's slot migration: the new sizes dealt out evenly (Algorithm 3 and its instance scheduling).

New executors that squeezed into the slots a topology already holds would only crowd them. One free slot is opened for
every executor that is added, as far as there are, and all executors are dealt out evenly over the held and the opened
slots, the highest level first. Whoever may stay where it stands does not move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from rstream.schedulers.bottlenecks import migration
from rstream.schedulers.even import interleave
from rstream.schedulers.ledger import Ledger
from rstream.schedulers.plan import Batch, TopologyPlan, growth
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import TopologyView


def spread(topology: TopologyView, wanted: Mapping[str, int], ranked: Sequence[str], ledger: Ledger) -> TopologyPlan:
    """Sizes that fit, and who goes where; `ranked` are the operators that grow, the highest level first."""
    fresh = {name: growth(topology, name, k)[1] for name, k in wanted.items()}
    order = [*ranked, *(o.name for o in topology.operators if o.name not in ranked)]
    standing = [task for name in order for task in _executors(topology, name, wanted)]
    added = [task for name in order for task in fresh.get(name, ())]
    old = {task: slot for task in standing if (slot := topology.placement.get(task)) and ledger.knows(slot.node)}
    slots = sorted(set(old.values())) + _opened(topology, ledger, len(added))
    new = _deal(topology.name, [*standing, *added], old, slots, ledger)
    moved = migration(old, new).moved
    missing = Counter(task.operator for task in added if task not in new)
    batches = [Batch(name, tuple(task for task in moved if task.operator == name)) for name in order]
    return TopologyPlan(
        {name: k - missing[name] for name, k in wanted.items() if k - missing[name] > topology.active(name)},
        placement={task: slot for task, slot in new.items() if old.get(task) != slot},
        batches=tuple(batch for batch in batches if batch.tasks),
    )


def _executors(topology: TopologyView, name: str, wanted: Mapping[str, int]) -> list[TaskId]:
    """The tasks of an operator that run, and those of its pool that are to be woken."""
    running = [topology.task_ids[row] for row in topology.rows(name, active=True).tolist()]
    return running + (growth(topology, name, wanted[name])[0] if name in wanted else [])


def _opened(topology: TopologyView, ledger: Ledger, count: int) -> list[Slot]:
    nodes = dict.fromkeys(slot.node for slot in ledger.open(topology.name))
    return interleave({node: ledger.free_slots(node) for node in nodes})[:count]


def _deal(
    topology: str, tasks: Sequence[TaskId], old: Mapping[TaskId, Slot], slots: Sequence[Slot], ledger: Ledger
) -> dict[TaskId, Slot]:
    """Everyone keeps its slot up to an even share of tasks; the rest go where the fewest are."""
    share = -(-len(tasks) // max(1, len(slots)))
    for task in old:
        ledger.release(topology, task)
    held: Counter[Slot] = Counter()
    place: dict[TaskId, Slot] = {}
    for task in tasks:
        slot = old.get(task)
        if slot is not None and held[slot] < share and ledger.book_slot(topology, task, slot):
            place[task] = slot
            held[slot] += 1
    emptiest = [(held[slot], at, slot) for at, slot in enumerate(slots)]
    heapify(emptiest)
    for task in sorted((task for task in tasks if task not in place), key=lambda task: task not in old):
        while emptiest:
            count, at, slot = emptiest[0]
            if ledger.book_slot(topology, task, slot):
                place[task] = slot
                heapreplace(emptiest, (count + 1, at, slot))
                break
            heappop(emptiest)
    return place
