"""The deployment of a topology: which task runs on which worker. A value that the coordinator makes and workers get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rstream.core.channel import ChannelId, TaskId
from rstream.core.versions import Version
from rstream.graph import Graph

Tier = Literal["thread", "process", "node"]


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where a worker can be reached: by its Unix socket on its own node, by gRPC from others."""

    worker: str
    node: str
    incarnation: int = 0
    socket: str = ""
    endpoint: str = ""


@dataclass(frozen=True)
class Deployment:
    """Parallelism, placement and addresses; `version` grows with every change."""

    graph: Graph
    parallelism: Mapping[str, int]
    placement: Mapping[TaskId, str]
    splits: Mapping[str, Sequence[str]]
    workers: Mapping[str, WorkerAddress] = field(default_factory=dict)
    version: int = 1
    origin: Mapping[TaskId, str] = field(default_factory=dict)
    """The first placement, which local-or-shuffle keeps to; the present one where it is left out."""
    incarnations: Mapping[TaskId, int] = field(default_factory=dict)
    """How often each task has been started anew, where it has."""
    run: str = ""
    """Names this run: recovery and moves keep it, a restart from the beginning has a new one."""
    versions: Mapping[str, Sequence[Version]] = field(default_factory=dict)
    """For each operator how its input was shared out, from the first version on."""
    elastic: frozenset[str] = frozenset()
    """Operators whose tasks have channels to each other, for hand-overs."""
    born: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    """For tasks that were started later, the versions of their receivers that they began with."""

    start_from: str = ""
    """The savepoint that the topology began with, if any."""
    suspects: frozenset[TaskId] = frozenset()
    """Tasks that were lost again and again: they are run carefully when they come back."""

    retiring: frozenset[str] = frozenset()
    """Workers that are about to end: nobody gives them anything new to hold."""

    def tasks_of(self, worker: str) -> list[TaskId]:
        """The tasks of a worker, in topological order."""
        return [task for task in self.tasks() if self.placement[task] == worker]

    def tasks(self) -> list[TaskId]:
        """All tasks, in topological order."""
        return [
            TaskId(operator.name, index)
            for operator in self.graph.operators
            for index in range(self.parallelism[operator.name])
        ]

    def ends(self, channel: ChannelId) -> tuple[TaskId, TaskId]:
        """The sending and the receiving task of a channel."""
        if channel.edge >= len(self.graph.edges):
            name = self.graph.operators[channel.edge - len(self.graph.edges)].name
            return TaskId(name, channel.source), TaskId(name, channel.target)
        edge = self.graph.edges[channel.edge]
        return TaskId(edge.source, channel.source), TaskId(edge.target, channel.target)

    def peer_edge(self, operator: str) -> int:
        """The number that channels between the tasks of an operator have in place of an edge's."""
        names = [each.name for each in self.graph.operators]
        return len(self.graph.edges) + names.index(operator)

    def versions_of(self, operator: str) -> Sequence[Version]:
        """How an operator's input was shared out: its versions, the first one first."""
        return self.versions.get(operator) or [Version.first(self.parallelism[operator])]

    def born_version(self, sender: TaskId, operator: str) -> int:
        """By which version of an operator a sender routed from its beginning."""
        return self.born.get(sender, {}).get(operator, 0)

    def tier(self, source: TaskId, target: TaskId) -> Tier:
        """How two tasks are connected, which follows from where they are."""
        here, there = self.placement[source], self.placement[target]
        if here == there:
            return "thread"
        return "process" if self.workers[here].node == self.workers[there].node else "node"

    def near(self, task: TaskId, operator: str) -> list[int]:
        """The instances of an operator that shared a task's worker in the first placement."""
        first = self.origin or self.placement
        here = first.get(task)
        return [
            number
            for number in range(self.parallelism[operator])
            if here is not None and first.get(TaskId(operator, number)) == here
        ]

    def with_workers(self, workers: Mapping[str, WorkerAddress]) -> Deployment:
        """The same with the workers' addresses filled in."""
        return replace(self, workers=dict(workers))

    def splits_of(self, task: TaskId) -> list[str]:
        """The source splits that are dealt to a task."""
        return list(self.splits.get(task.operator, ()))[task.number :: self.parallelism[task.operator]]
