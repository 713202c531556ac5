"""Storm's EvenScheduler and the DefaultScheduler around it.

Free slots are dealt out node by node, rank by rank, and tasks are dealt onto them in turn. Nothing changes at run
time unless tasks or slots have come or gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import TopologyView, View


def interleave(free: Mapping[str, Sequence[int]]) -> list[Slot]:
    """Storm's order of slots: nodes by number of free slots, largest first (then by id), one slot of each in turn.

    >>> [f"{slot.node}:{slot.process}" for slot in interleave({"a": [1], "b": [2, 1]})]
    ['b:1', 'a:1', 'b:2']
    """
    groups = [[Slot(node, port) for port in sorted(free[node])] for node in sorted(free)]
    groups.sort(key=len, reverse=True)
    longest = max(map(len, groups), default=0)
    return [group[rank] for rank in range(longest) for group in groups if rank < len(group)]


def deal(
    free: Mapping[str, Sequence[int]], workers: int, executors: Sequence[int]
) -> tuple[list[Slot], dict[int, Slot]]:
    """A first assignment: the slots in use, and the slot of every executor (named by its first task)."""
    slots = interleave(free)[: max(0, workers)]
    return slots, {task: slots[at % len(slots)] for at, task in enumerate(sorted(executors))} if slots else {}


def misfits(held: Mapping[Slot, int], tasks: int, workers: int) -> list[Slot]:
    """Slots whose number of tasks is not one of an even distribution: DefaultScheduler frees them first."""
    base, more = divmod(tasks, max(1, workers))
    wanted = Counter({base + 1: more, base: workers - more})
    freed = []
    for slot in sorted(held):
        if wanted[held[slot]] > 0:
            wanted[held[slot]] -= 1
        else:
            freed.append(slot)
    return freed


def assign_evenly(
    topology: TopologyView, tasks: Sequence[TaskId], ledger: Ledger, view: View, workers: int
) -> dict[TaskId, Slot]:
    """Place `tasks` of a topology in Storm's way, keeping what stands on fitting slots; the ledger is updated.

    Tasks that no process has room for are left out.
    """
    wanted = set(tasks)
    alive = {node.id for node in view.nodes if node.alive}
    standing = {task: slot for task, slot in topology.placement.items() if task in wanted and slot.node in alive}
    freed = set(misfits(Counter(standing.values()), len(tasks), workers))
    keep = {task: slot for task, slot in standing.items() if slot not in freed}
    for task in topology.placement:
        if task not in keep:
            ledger.release(topology.name, task)
    free = {node.id: ledger.free_slots(node.id) for node in view.nodes if node.alive}
    slots = interleave(free)[: max(0, workers - len(set(keep.values())))]
    place = dict(keep)
    turn = 0
    for task in tasks:
        if task in keep:
            continue
        for step in range(len(slots)):
            slot = slots[(turn + step) % len(slots)]
            if ledger.book_slot(topology.name, task, slot):
                place[task] = slot
                turn += step + 1
                break
        else:
            home = next((slot for slot in sorted(set(place.values())) if ledger.room_in(topology.name, slot)), None)
            if home is not None and ledger.book_slot(topology.name, task, home):
                place[task] = home
    return place


def workers_for(topology: TopologyView, view: View, tasks: int, asked: int | None) -> int:
    """Storm's numWorkers: as asked, as declared, or one per node as far as the slots go round among the topologies.

    Where that many processes could not hold the tasks, there are more.
    """
    alive = [node for node in view.nodes if node.alive]
    width = min((node.tasks_per_process for node in alive), default=1)
    fair = sum(node.processes for node in alive) // max(1, len(view.topologies))
    return max(asked or topology.workers or min(len(alive), fair), -(-tasks // max(1, width)))


class EvenParameters(Parameters):
    """Parameters of `even`."""

    workers: int | None = Field(
        default=None, ge=1, description="Processes per topology; None: declared, or one per node."
    )


class Even:
    """The policy `even`: place what is not placed, keep the rest."""

    name: ClassVar[str] = "even"
    Parameters: ClassVar = EvenParameters

    def __init__(self, parameters: EvenParameters | None = None) -> None:
        self.parameters = parameters or EvenParameters()

    @property
    def interval_s(self) -> float:
        """Storm looks every ten seconds whether something needs a slot."""
        return 10.0

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Place topologies that have tasks without a live slot."""
        ledger = Ledger(view)
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        alive = {node.id for node in view.nodes if node.alive}
        for topology in view.topologies:
            tasks = in_start_order(topology)
            homeless = [
                task for task in tasks if (slot := topology.placement.get(task)) is None or slot.node not in alive
            ]
            if not homeless:
                reasons.append(Reason(topology.name, "every task has a live slot: nothing to do"))
                continue
            workers = workers_for(topology, view, len(tasks), self.parameters.workers)
            place = assign_evenly(topology, tasks, ledger, view, workers)
            moved = {task: slot for task, slot in place.items() if topology.placement.get(task) != slot}
            left = len(tasks) - len(place)
            plans[topology.name] = TopologyPlan(placement=moved)
            reasons.append(
                Reason(
                    topology.name,
                    f"{len(homeless)} tasks had no live slot; {len(moved)} placed"
                    + (f", {left} find no room" if left else ""),
                    {"tasks": len(tasks), "workers": workers, "nodes": len(alive)},
                    alternatives=(Alternative("place by traffic or load", "Storm's default looks at neither"),),
                )
            )
        return Plan(plans, reasons=tuple(reasons)), {}


def in_start_order(topology: TopologyView) -> list[TaskId]:
    """Tasks as Storm numbers them: operator by operator, instance by instance."""
    return [topology.task_ids[row] for operator in topology.operators for row in topology.rows(operator.name).tolist()]
