"""From a plan to the steps that carry it out on a running topology. Plain data, so that the journal can hold it.

A step is a target, as the coordinator machine's requests are: it may be asked for again after a crash of the
coordinator. Tasks are loaded first and lose their work last; moved tasks come in the batches of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rstream.core.channel import TaskId
from rstream.core.slots import Numbering
from rstream.schedulers import base
from rstream.schedulers.base import Plan, Slot, TopologyPlan, TopologyView, View, diff, settle

Kind = Literal["nodes", "workers", "load", "move", "activate", "deactivate", "rescale", "restart"]
Progress = Literal["waiting", "running", "done", "given up"]
Place = tuple[str, int, str, int]
"""Operator and number of a task, node and number of a slot."""


@dataclass
class Step:
    """One thing to do with a topology, and how it went. `active` are the tasks of `operator` that are to have work."""

    kind: Kind
    what: str
    operator: str = ""
    active: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    """For a restart: the parallelism that it comes back with; `uri` is the savepoint in between."""
    uri: str = ""
    drop: bool = False
    count: int = 0
    pause_s: float = 0.0
    state: Progress = "waiting"
    started_s: float = 0.0
    took_s: float | None = None
    paused: str = ""
    """What had to wait meanwhile, in words, and `paused_ms` at most how long."""
    paused_ms: float = 0.0
    error: str = ""

    def to_data(self) -> dict[str, Any]:
        """The step as JSON data; `Step(**data)` leads back."""
        return asdict(self)

    @property
    def slot_list(self) -> list[Slot]:
        """The slots that it names."""
        return [Slot(node, slot) for _, _, node, slot in self.places]

    @property
    def slots(self) -> dict[TaskId, Slot]:
        """Where its tasks are to be."""
        return {TaskId(operator, number): Slot(node, slot) for operator, number, node, slot in self.places}


def steps_of(
    view: View, numbering: Numbering, plan: Plan, name: str, present: Mapping[TaskId, Slot] | None = None
) -> list[Step]:
    """What to do, one after another, so that a topology stands as the plan wants it.

    Operators change size in the order in which the plan names them, growing ones before shrinking ones. `present` says
    where all tasks of the topology are, those too that the view does not show because they idle for good; nothing is
    said where tasks cannot move.
    """
    present = present or {}
    topology = view.topology(name)
    mine = {name: plan.topologies[name]} if name in plan.topologies else {}
    moves = diff(view, Plan(mine, plan.nodes_taken, plan.nodes_released, plan.nodes_more))
    named = [*(mine[name].parallelism if mine else ()), *topology.positions]
    sizes = [step for operator in dict.fromkeys(named) for step in _sizes(topology, operator, moves)]
    return [
        *_nodes(moves),
        *_loads(moves, numbering, present),
        *_regrown(topology, moves, numbering, present),
        *_batches(topology, moves, numbering),
        *sorted(sizes, key=lambda step: step.kind == "deactivate"),
        *_gathered(topology, mine.get(name, TopologyPlan()), numbering, present),
    ]


def restart_steps(view: View, numbering: Numbering, plan: Plan, name: str, uri: str, drop: bool) -> list[Step]:
    """The same change by a restart of the topology, as Storm makes it."""
    topology, mine = view.topology(name), plan.topologies.get(name, TopologyPlan())
    sizes = {step: size for step, size in mine.parallelism.items() if size != topology.active(step)}
    moved = [task for task, slot in mine.placement.items() if topology.placement.get(task, slot) != slot]
    nodes = list(_nodes(diff(view, Plan(nodes_more=plan.nodes_more))))
    if not sizes and not moved:
        return nodes
    changes = [f"{step} {topology.active(step)} -> {size}" for step, size in sizes.items()]
    changes += [f"{len(moved)} tasks elsewhere"] if moved else []
    dropping = ", dropping what is queued" if drop else ""
    places = _restarted(topology, mine, numbering) if mine.placement else []
    return [*nodes, Step("restart", f"restart with {_list(changes)}{dropping}", "", [], places, sizes, uri, drop)]


def _restarted(topology: TopologyView, plan: TopologyPlan, numbering: Numbering) -> list[Place]:
    """Where the active tasks of a plan start: their numbers then have no gaps. None where one of them has no place."""
    end = settle(topology, plan)
    places: list[Place] = []
    for operator, active in end.active.items():
        for number, index in enumerate(active):
            slot = end.placement.get(base.TaskId(operator, index))
            if slot is None:
                return []
            places.append((operator, number, *numbering.real(slot)))
    return places


def _nodes(moves: Sequence[base.Move]) -> Iterator[Step]:
    for move in moves:
        if isinstance(move, base.RequestNodes):
            yield Step("nodes", f"ask the autoscaler for {move.count} more nodes", count=move.count)


def _loads(moves: Sequence[base.Move], numbering: Numbering, present: Mapping[TaskId, Slot]) -> Iterator[Step]:
    new = [move for move in moves if isinstance(move, base.AddTask) and TaskId(*move.task) not in present]
    for operator in dict.fromkeys(move.task.operator for move in new):
        mine = [move for move in new if move.task.operator == operator]
        places = _places(((move.task, move.slot) for move in mine if move.slot is not None), numbering)
        what = f"load {_tasks(move.task for move in mine)}{_where(places)}"
        yield Step("load", what, operator, [move.task.instance for move in mine], places)


def _regrown(
    topology: TopologyView, moves: Sequence[base.Move], numbering: Numbering, present: Mapping[TaskId, Slot]
) -> Iterator[Step]:
    """Tasks that were removed are still there, idle: where the plan wants them elsewhere now, they move."""
    wanted = {
        TaskId(*move.task): numbering.real(move.slot)
        for move in moves
        if isinstance(move, base.AddTask) and move.slot is not None
    }
    moved = {task: slot for task, slot in wanted.items() if present.get(task, slot) != slot}
    return layered(topology.positions, moved)


def _gathered(
    topology: TopologyView, plan: TopologyPlan, numbering: Numbering, present: Mapping[TaskId, Slot]
) -> Iterator[Step]:
    """Removed tasks go where others are, if they would be alone: a worker, and a node, that has no other then ends."""
    end = settle(topology, plan)
    standing = {TaskId(name, index) for name, indices in end.loaded.items() for index in indices}
    homes = sorted({numbering.real(slot) for slot in end.placement.values()})
    alone = sorted(task for task, slot in present.items() if task not in standing and slot not in homes)
    if not homes:
        return iter(())
    return layered(topology.positions, {task: homes[at % len(homes)] for at, task in enumerate(alone)})


def _batches(topology: TopologyView, moves: Sequence[base.Move], numbering: Numbering) -> Iterator[Step]:
    """Moved tasks, layer by layer and half a layer at a time, in the order of the plan's batches."""
    moved = [move for move in moves if isinstance(move, base.MoveTask)]
    layers: dict[tuple[int, str], list[base.MoveTask]] = {}
    for move in sorted(moved, key=lambda move: (move.batch, topology.positions[move.task.operator])):
        layers.setdefault((move.batch, move.task.operator), []).append(move)
    for (_, operator), layer in layers.items():
        in_halves = sum(name == operator for _, name in layers) > 1
        half = len(layer) if in_halves else (len(layer) + 1) // 2
        for mine in (layer[:half], layer[half:]):
            if mine:
                places = _places(((move.task, move.target) for move in mine), numbering)
                yield _move(operator, places, max(move.pause_s for move in mine))


def layered(order: Iterable[str], targets: Mapping[TaskId, Slot]) -> Iterator[Step]:
    """Tasks to these slots, operator by operator in this order, and half of an operator's tasks at a time."""
    for operator in order:
        mine: list[Place] = [
            (operator, task.number, *slot) for task, slot in sorted(targets.items()) if task.operator == operator
        ]
        half = (len(mine) + 1) // 2
        yield from (_move(operator, places) for places in (mine[:half], mine[half:]) if places)


def _move(operator: str, places: list[Place], pause_s: float = 0.0) -> Step:
    what = f"move {_list(f'{name}#{number}' for name, number, _, _ in sorted(places))}{_where(places)}"
    return Step("move", what, operator, places=places, pause_s=pause_s)


def worker_step(slots: Sequence[Slot]) -> Step:
    """Workers for slots that have none."""
    return Step("workers", f"start workers on {_slots(slots)}", places=[("", 0, *slot) for slot in slots])


def _sizes(topology: TopologyView, name: str, moves: Sequence[base.Move]) -> Iterator[Step]:
    on = {move.task for move in moves if isinstance(move, base.Activate) and move.task.operator == name}
    off = {move.task for move in moves if isinstance(move, base.Deactivate) and move.task.operator == name}
    if not on and not off:
        return
    before = topology.tasks.index[topology.rows(name, active=True)].tolist()
    after = sorted({*before, *(task.instance for task in on)} - {task.instance for task in off})
    if topology.operator(name).keyed:
        what = f"rescale {name}: its key ranges from {len(before)} to {len(after)} tasks"
        yield Step("rescale", what, name, after)
        return
    said = [f"{verb} {_tasks(tasks)}" for verb, tasks in (("activate", on), ("deactivate", off)) if tasks]
    yield Step("activate" if on else "deactivate", " and ".join(said), name, after)


def _places(slots: Iterable[tuple[base.TaskId, Slot]], numbering: Numbering) -> list[Place]:
    return [(*task, *numbering.real(slot)) for task, slot in slots]


def _tasks(tasks: Iterable[base.TaskId]) -> str:
    return _list(f"{task.operator}#{task.instance}" for task in sorted(tasks))


def _where(places: Sequence[Place]) -> str:
    slots = sorted({Slot(node, slot) for _, _, node, slot in places})
    return f" on {_slots(slots)}" if slots else ""


def _slots(slots: Iterable[Slot]) -> str:
    return _list(f"{slot.node[:8]}/{slot.process}" for slot in slots)


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)
