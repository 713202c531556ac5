"""The Plan: what a policy wants, and why, as data; and `diff`, which turns it into ordered moves.

A policy fills only what it decides: an operator that is missing from `parallelism` keeps its size, a task that is
missing from `placement` stays where it is. `settle` completes a plan against a view, so that everyone who executes,
models or checks a plan reads it in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import chain, count, islice
from typing import Any, Literal

from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import TopologyView

Execute = Literal["live", "restart", "restart-drop"]
StateKind = Literal["backup", "repartition", "replay", "restore", "drain", "rehome", "sync"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Something that was considered and lost."""

    what: str
    why_not: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one thing (an operator, a topology, the cluster) is decided as it is."""

    subject: str
    summary: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    forecast: Mapping[str, Any] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class StateAction:
    """Something to do with state. `detail` holds figures such as m_old, m_new or the sync interval."""

    kind: StateKind
    operator: str
    tasks: tuple[TaskId, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks that move together; the next batch starts `pause_s` after this one is live."""

    operator: str
    tasks: tuple[TaskId, ...]
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """What is wanted for one topology.

    `parallelism` counts active tasks, `pool` all loaded ones. `retire` names the tasks to stop when an operator
    shrinks; where it is silent the highest indices go. `batches` orders the moves; tasks outside any batch come last.
    """

    parallelism: Mapping[str, int] = field(default_factory=dict)
    pool: Mapping[str, int] = field(default_factory=dict)
    placement: Mapping[TaskId, Slot] = field(default_factory=dict)
    retire: tuple[TaskId, ...] = ()
    batches: tuple[Batch, ...] = ()
    state_actions: tuple[StateAction, ...] = ()
    groupings: Mapping[tuple[str, str], str] = field(default_factory=dict)
    execute: Execute = "live"

    def __bool__(self) -> bool:
        return bool(self.parallelism or self.pool or self.placement or self.state_actions or self.groupings)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy wants of the whole cluster.

    `nodes_taken` are nodes of the view to bring into use, `nodes_released` those to give back, `nodes_more` how many
    further nodes the autoscaler should supply because the view has none that fits.
    """

    topologies: Mapping[str, TopologyPlan] = field(default_factory=dict)
    nodes_taken: tuple[str, ...] = ()
    nodes_released: tuple[str, ...] = ()
    nodes_more: int = 0
    reasons: tuple[Reason, ...] = ()

    def __bool__(self) -> bool:
        """False when there is nothing to do; a plan may still carry reasons for that."""
        return any(self.topologies.values()) or bool(self.nodes_taken or self.nodes_released or self.nodes_more)

    def to_data(self) -> dict[str, Any]:
        """The plan as plain JSON data, for the journal, `explain` and reports."""
        data = plain(self)
        assert isinstance(data, dict)
        return data


def plain(value: Any) -> Any:
    """Records, mappings and numpy scalars as plain JSON data; tuples as keys become `a/b`.

    >>> plain(Plan(reasons=(Reason("wc/count", "grow", {"rho": 2.5}),)))["reasons"][0]["inputs"]
    {'rho': 2.5}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {
            "/".join(map(str, key)) if isinstance(key, tuple) else str(key): plain(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


@dataclass(frozen=True, slots=True)
class Settled:
    """A topology as it will stand once a plan is carried out."""

    active: Mapping[str, tuple[int, ...]]
    loaded: Mapping[str, tuple[int, ...]]
    placement: Mapping[TaskId, Slot]

    def unplaced(self) -> list[TaskId]:
        """Loaded tasks that have no slot."""
        return [
            TaskId(name, index)
            for name, indices in self.loaded.items()
            for index in indices
            if TaskId(name, index) not in self.placement
        ]


def settle(topology: TopologyView, plan: TopologyPlan) -> Settled:
    """Complete a plan: which tasks are active, which loaded and where, after it.

    Growing wakes the lowest idle indices first and then makes tasks with the lowest free indices; shrinking stops
    the retired tasks, then the highest indices. Idle tasks stay loaded, and so do stopped ones where the operator's
    pool has room for all of its tasks, unless the plan names another size of the pool.
    """
    active: dict[str, tuple[int, ...]] = {}
    loaded: dict[str, tuple[int, ...]] = {}
    retired = set(plan.retire)
    for operator in topology.operators:
        rows = topology.rows(operator.name)
        every = topology.tasks.index[rows].tolist()
        running = topology.tasks.index[rows[topology.tasks.active[rows]]].tolist()
        wanted = plan.parallelism.get(operator.name, len(running))
        now, there = _resize(every, running, wanted, {index for name, index in retired if name == operator.name})
        idle = [index for index in every if index not in now]
        if operator.name in plan.pool:
            room = max(0, plan.pool[operator.name] - len(now))
            fresh = (index for index in count() if index not in there)
            kept = [*idle[:room], *islice(fresh, max(0, room - len(idle)))]
        else:
            stopped = set(running) if len(every) > operator.pool else set()
            kept = [index for index in idle if index not in stopped]
        active[operator.name] = tuple(sorted(now))
        loaded[operator.name] = tuple(sorted({*now, *kept}))
    standing = {TaskId(name, index) for name, indices in loaded.items() for index in indices}
    placement = {task: slot for task, slot in {**topology.placement, **plan.placement}.items() if task in standing}
    return Settled(active, loaded, placement)


def _resize(every: list[int], running: list[int], wanted: int, retired: set[int]) -> tuple[set[int], set[int]]:
    now = list(running)
    if wanted < len(now):
        go = [index for index in now if index in retired]
        go += [index for index in reversed(now) if index not in retired]
        stopped = set(go[: len(now) - wanted])
        now = [index for index in now if index not in stopped]
    there, before = set(every), set(running)
    idle = [index for index in every if index not in before]
    unused = (index for index in count() if index not in there)
    for index in islice(chain(idle, unused), max(0, wanted - len(now))):
        now.append(index)
    return set(now), there | set(now)


def growth(topology: TopologyView, operator: str, wanted: int) -> tuple[list[TaskId], list[TaskId]]:
    """The tasks with which `settle` brings an operator up to `wanted`: idle ones to wake, then new ones to make."""
    rows = topology.rows(operator)
    every = topology.tasks.index[rows].tolist()
    running = set(topology.tasks.index[rows[topology.tasks.active[rows]]].tolist())
    now, _ = _resize(every, sorted(running), max(wanted, len(running)), set())
    fresh = sorted(now - running)
    there = set(every)
    return (
        [TaskId(operator, index) for index in fresh if index in there],
        [TaskId(operator, index) for index in fresh if index not in there],
    )
