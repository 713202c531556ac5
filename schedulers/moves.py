"""From where a cluster stands to where a plan wants it: `diff` gives the moves in the order in which they are safe.

Nodes come first and leave last; tasks are made before work is routed to them, and stop only after their work has
gone elsewhere. Nothing here executes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from rstream.schedulers.plan import Plan, Settled, StateAction, TopologyPlan, plain, settle
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import TopologyView, View


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a change; the subclasses say which."""

    kind: ClassVar[str] = ""

    def to_data(self) -> dict[str, Any]:
        """The move as plain JSON data, its kind included."""
        return {"kind": self.kind, **plain(self)}


@dataclass(frozen=True, slots=True)
class RequestNodes(Move):
    """Ask the autoscaler for further nodes."""

    kind: ClassVar[str] = "request_nodes"
    count: int


@dataclass(frozen=True, slots=True)
class AddNode(Move):
    """Bring a node into use."""

    kind: ClassVar[str] = "add_node"
    node: str


@dataclass(frozen=True, slots=True)
class AddTask(Move):
    """Load a task, idle until it is activated; without a slot the executor chooses one."""

    kind: ClassVar[str] = "add_task"
    topology: str
    task: TaskId
    slot: Slot | None


@dataclass(frozen=True, slots=True)
class ActOnState(Move):
    """Back up, drain, re-home or set the sync of state, before or after the tasks change."""

    kind: ClassVar[str] = "state"
    topology: str
    action: StateAction


@dataclass(frozen=True, slots=True)
class MoveTask(Move):
    """Bring a task to another slot, with the other tasks of its batch."""

    kind: ClassVar[str] = "move_task"
    topology: str
    task: TaskId
    source: Slot
    target: Slot
    batch: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Activate(Move):
    """Route work to an idle task."""

    kind: ClassVar[str] = "activate"
    topology: str
    task: TaskId


@dataclass(frozen=True, slots=True)
class Deactivate(Move):
    """Route no more work to a task; it drains its queue and sleeps."""

    kind: ClassVar[str] = "deactivate"
    topology: str
    task: TaskId


@dataclass(frozen=True, slots=True)
class Rescale(Move):
    """Deal a keyed or stateful operator's key ranges out among other owners."""

    kind: ClassVar[str] = "rescale"
    topology: str
    operator: str
    owners_old: tuple[int, ...]
    owners_new: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetGrouping(Move):
    """Route an edge in another way."""

    kind: ClassVar[str] = "set_grouping"
    topology: str
    source: str
    target: str
    grouping: str


@dataclass(frozen=True, slots=True)
class RemoveTask(Move):
    """End a task that no work reaches any more."""

    kind: ClassVar[str] = "remove_task"
    topology: str
    task: TaskId


@dataclass(frozen=True, slots=True)
class ReleaseNode(Move):
    """Give an emptied node back."""

    kind: ClassVar[str] = "release_node"
    node: str


def diff(current: View, wanted: Plan) -> tuple[Move, ...]:
    """The ordered moves from the view to the plan; empty when they agree.

    >>> from rstream.schedulers.tables import TaskTable
    >>> from rstream.schedulers.view import NodeView, OperatorView, TopologyView
    >>> table = TaskTable.columns(operator=[0], index=[0], node=[0], process=[0])
    >>> view = View(0, 1, (NodeView("n1"),), (TopologyView("t", (OperatorView("split"),), (), table),))
    >>> [move.kind for move in diff(view, Plan({"t": TopologyPlan(parallelism={"split": 2})}))]
    ['add_task', 'activate']
    """
    moves: list[Move] = []
    if wanted.nodes_more:
        moves.append(RequestNodes(wanted.nodes_more))
    moves += [AddNode(node) for node in wanted.nodes_taken]
    for name, plan in wanted.topologies.items():
        moves += _topology_moves(current.topology(name), plan)
    moves += [ReleaseNode(node) for node in wanted.nodes_released]
    return tuple(moves)


_BEFORE = frozenset({"backup", "rehome", "drain"})


def _topology_moves(topology: TopologyView, plan: TopologyPlan) -> Iterator[Move]:
    name, end = topology.name, settle(topology, plan)
    existing = set(topology.task_ids)
    standing = {TaskId(op, index) for op, indices in end.loaded.items() for index in indices}
    for task in sorted(standing - existing, key=lambda task: (topology.positions[task.operator], task.instance)):
        yield AddTask(name, task, end.placement.get(task))
    for action in plan.state_actions:
        if action.kind in _BEFORE:
            yield ActOnState(name, action)
    yield from _relocations(topology, plan, end)
    stopped: list[TaskId] = []
    for operator in topology.operators:
        rows = topology.rows(operator.name, active=True)
        before, after = tuple(topology.tasks.index[rows].tolist()), end.active[operator.name]
        if before == after:
            continue
        if operator.keyed or operator.stateful:
            yield Rescale(name, operator.name, before, after)
        yield from (Activate(name, TaskId(operator.name, index)) for index in sorted(set(after) - set(before)))
        stopped += [TaskId(operator.name, index) for index in sorted(set(before) - set(after), reverse=True)]
    for action in plan.state_actions:
        if action.kind not in _BEFORE:
            yield ActOnState(name, action)
    for (source, target), grouping in plan.groupings.items():
        if any(edge.grouping != grouping for edge in topology.children(source) if edge.target == target):
            yield SetGrouping(name, source, target, grouping)
    yield from (Deactivate(name, task) for task in stopped)
    yield from (RemoveTask(name, task) for task in topology.task_ids if task not in standing)


def _relocations(topology: TopologyView, plan: TopologyPlan, end: Settled) -> Iterator[Move]:
    before = topology.placement
    moved = [task for task in topology.task_ids if task in end.placement and task in before]
    moved = [task for task in moved if before[task] != end.placement[task]]
    batch_of = {task: (at, batch.pause_s) for at, batch in enumerate(plan.batches) for task in batch.tasks}
    last = (len(plan.batches), 0.0)
    for task in sorted(moved, key=lambda task: batch_of.get(task, last)[0]):
        at, pause_s = batch_of.get(task, last)
        yield MoveTask(topology.name, task, before[task], end.placement[task], at, pause_s)
