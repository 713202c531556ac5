"""How Sl-Stream's tasks move: half a layer at a time, state saved before and blocks re-homed."""

from __future__ import annotations

from collections.abc import Mapping

from rstream.schedulers.matching import half_batch, half_batches
from rstream.schedulers.plan import Batch, StateAction
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import TopologyView


def migration(
    topology: TopologyView, wanted: Mapping[TaskId, Slot], checks: int, pause_s: float
) -> tuple[tuple[Batch, ...], tuple[StateAction, ...]]:
    """Batches in topological order, and what must be done with state around them.

    Every batch begins with a final backup of its stateful tasks and ends with their restore. Blocks that its tasks hold
    for the layer below are re-homed first; the action says whether the check blocks alone would have been enough.
    """
    layers = [[topology.task_ids[row] for row in topology.rows(o.name).tolist()] for o in topology.operators]
    old = {task: slot.node for task, slot in topology.placement.items()}
    new = {**old, **{task: slot.node for task, slot in wanted.items()}}
    batches: list[Batch] = []
    actions: list[StateAction] = []
    for moves in half_batches(layers, old, new):
        tasks = tuple(task for task, _, _ in moves)
        name = tasks[0].operator
        batches.append(Batch(name, tasks, pause_s))
        below = [topology.operator(edge.target) for edge in topology.children(name)]
        if any(operator.stateful for operator in below):
            half = half_batch(len(topology.rows(name)), checks, 2 * len(tasks))
            detail = {"lost_at_once": half.lost, "recoverable_without": half.recoverable}
            actions.append(StateAction("rehome", name, tasks, detail))
        if topology.operator(name).stateful:
            actions.append(StateAction("backup", name, tasks, {"final": True}))
            actions.append(StateAction("restore", name, tasks))
    return tuple(batches), tuple(actions)
