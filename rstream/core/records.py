"""What the coordinator knows of each topology: this is what its journal holds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rstream.config import ControlConfig
from rstream.core.backup import LostTask
from rstream.core.channel import TaskId
from rstream.core.deployment import Deployment, WorkerAddress
from rstream.core.poison import Evidence
from rstream.core.savepoint import SavedTask
from rstream.core.versions import Version, active_of
from rstream.graph import Graph

if TYPE_CHECKING:
    from rstream.schedulers.tables import Slot

State = Literal["INACTIVE", "ACTIVE", "REBALANCING", "KILLED", "FINISHED", "FAILED"]
Phase = Literal["starting", "started", "ready", "running", "finished", "gone"]

OVER: frozenset[State] = frozenset({"KILLED", "FINISHED", "FAILED"})


def topology_of(worker: str) -> str:
    """The topology that a worker serves, from its name.

    >>> topology_of("counts/w0.1")
    'counts'
    """
    return worker.rpartition("/")[0]


@dataclass(slots=True)
class WorkerRecord:
    """One worker of a topology."""

    address: WorkerAddress
    phase: Phase = "starting"
    pid: int = 0
    spare: bool = False
    """It has no tasks."""
    reserved: bool = False
    """It was started for tasks that are to move to it."""
    retiring: bool = False
    """Its tasks have moved away, and it ends when nobody relies on what it holds."""
    slot: int | None = None
    """Its slot on its node, where one was given to it."""

    @property
    def is_spare(self) -> bool:
        """It waits for tasks of workers that die."""
        return self.spare and not self.reserved and not self.retiring

    def host_tasks(self) -> None:
        """It has tasks from now on."""
        self.spare = self.reserved = self.retiring = False
        self.phase = "running"


@dataclass(slots=True)
class Parking:
    """Tasks that are being made ready to move, and the hosts that have not said that theirs are."""

    number: int
    targets: dict[TaskId, str]
    waiting: set[str]
    stopped_s: float = math.inf
    """When the first of them stopped."""


@dataclass(slots=True)
class Round:
    """An open recovery: who was asked, and what they know of the lost tasks (R3)."""

    number: int
    lost: list[TaskId]
    asked: set[str]
    answers: dict[str, dict[TaskId, LostTask]] = field(default_factory=dict)
    started: bool = False
    restored: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Checkpoints:
    """How far checkpoints have come, where there are any (`rstream.core.checkpointing`)."""

    number: int = 0
    """The newest one that was ordered; no number is used twice."""
    open: bool = False
    """It is being made."""
    prepared: set[TaskId] = field(default_factory=set)
    committed: int = 0
    """The newest one that everything can go back to; 0 is the beginning."""


@dataclass(slots=True)
class SavepointOrder:
    """A savepoint that was asked for (`rstream.core.savepoints` says how it is made)."""

    number: int
    uri: str
    stop: bool
    """End the topology with it."""
    restart: dict[str, int] | None = None
    """Start the topology again from it, with this parallelism of some steps."""
    places: dict[TaskId, Slot] = field(default_factory=dict)
    """Where its tasks are then to be; all of them, or none to leave it to the engine."""
    attempt: int = 0
    """The present attempt; 0 while none could begin yet."""
    attempts: int = 0
    probe: int = 0
    asked: set[str] = field(default_factory=set)
    quiet: dict[str, int] = field(default_factory=dict)
    """What each worker answered to the present probe."""
    before: dict[str, int] | None = None
    """What all of them answered to the one before."""
    cutting: bool = False
    """Nothing is on its way: the cut is being made, or has been."""
    cut: set[str] = field(default_factory=set)
    saved: dict[str, tuple[SavedTask, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavepointResult:
    """How a savepoint ended."""

    number: int
    uri: str
    error: str = ""
    tasks: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class FallBack:
    """A completed savepoint, with what a start from it has to know."""

    uri: str
    parallelism: dict[str, int]


@dataclass(slots=True)
class TopologyRecord:
    """Everything that the coordinator knows of a topology; this is what the journal holds."""

    name: str
    outline: Graph
    splits: Mapping[str, Sequence[str]]
    parallelism: dict[str, int]
    policy: str
    worker_count: int
    spare_count: int
    token: str
    code: str
    config: bytes
    state: State = "INACTIVE"
    paused: bool = False
    draining: State | None = None
    placement: dict[TaskId, str] = field(default_factory=dict)
    workers: dict[str, WorkerRecord] = field(default_factory=dict)
    version: int = 1
    restarts: int = 0
    error: bytes = b""
    origin: dict[TaskId, str] = field(default_factory=dict)
    incarnations: dict[TaskId, int] = field(default_factory=dict)
    round: Round | None = None
    rounds: int = 0
    starts: int = 0
    """How often it was started from the beginning."""
    recovers: bool = True
    """Whether tasks of a dead worker are brought back; without backups the topology fails instead."""
    exact: bool = True
    """Whether they go on exactly where they were, or only process again what they may have processed."""
    crashes_max: int = 1000
    control: ControlConfig = field(default_factory=lambda: ControlConfig())
    settings: Sequence[tuple[str, Any, str]] = ()
    """(key, value, origin) of every setting, for `status`."""
    instances: dict[str, int] = field(default_factory=dict)
    """How many tasks of each operator there are, inactive ones included; they are never taken away while it runs."""
    pool: dict[str, int] = field(default_factory=dict)
    """How many inactive tasks of each operator are loaded from the start."""
    versions: dict[str, list[Version]] = field(default_factory=dict)
    elastic: set[str] = field(default_factory=set)
    born: dict[TaskId, dict[str, int]] = field(default_factory=dict)
    ended: set[TaskId] = field(default_factory=set)
    """Tasks that were known to have ended when tables were last given out."""
    targets: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The active tasks that were asked for and that no version names yet."""
    loads: dict[str, int] = field(default_factory=dict)
    """How many tasks of an operator were asked for, idle ones included, where there are fewer yet."""
    wishes: dict[TaskId, str] = field(default_factory=dict)
    """The workers on which new tasks are to start, where it was said."""
    placed: int = 0
    """The version of the tables that last gave somebody tasks."""
    moves: dict[TaskId, str] = field(default_factory=dict)
    """The workers that tasks are to move to."""
    parking: Parking | None = None
    stopped_s: float = math.inf
    """When the tasks that moved last had stopped."""
    parks: int = 0
    """How often tasks were told to park."""
    relieved: set[str] = field(default_factory=set)
    """Workers of which everything is safe by the present tables."""
    reached: dict[tuple[TaskId, str], int] = field(default_factory=dict)
    """The version of an operator that each task has come to, as far as it has said so."""
    checkpointed: bool = False
    """State is kept by checkpoints, and any failure takes every task back to the last one."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    settled: dict[str, int] = field(default_factory=dict)
    """Up to which version each operator's input is shared out as its newest version says."""

    losses: dict[TaskId, int] = field(default_factory=dict)
    """How often each task was lost, in a time with many crashes."""
    evidence: list[Evidence] = field(default_factory=list)
    """At which tuple workers ended, as often as it was the same in a row (`rstream.core.poison`)."""
    poison_max: int = 3
    """So many times in a row are too many."""
    start_from: str = ""
    """The savepoint that it began with, if any."""
    savepoint: SavepointOrder | None = None
    savepoints: int = 0
    """How many were asked for."""
    attempts: int = 0
    """How often one was begun; never goes back, so that answers to an earlier attempt are known as such."""
    result: SavepointResult | None = None
    """How the newest one that is over ended."""
    fall_back: FallBack | None = None
    """The newest completed savepoint of this topology, or the one that it began with."""
    starts_over: str = ""
    """Why it is to be started again from there, until it is."""
    start_places: dict[TaskId, Slot] = field(default_factory=dict)
    """Where its tasks are then to be, if that was said."""

    def deployment(self, recipient: str = "") -> Deployment:
        """Where everything is now, as a value that stays. A spare counts, and may hold backups, once it is ready; the
        recipient always."""
        return Deployment(
            self.outline,
            {name: self.instances.get(name, tasks) for name, tasks in self.parallelism.items()},
            dict(self.placement),
            self.splits,
            {
                name: worker.address
                for name, worker in self.workers.items()
                if not worker.spare or worker.phase == "ready" or name == recipient
            },
            self.version,
            dict(self.origin),
            dict(self.incarnations),
            self.run,
            {name: list(versions) for name, versions in self.versions.items()},
            frozenset(self.elastic),
            dict(self.born),
            self.start_from,
            frozenset(task for task, times in self.losses.items() if times > 1),
            frozenset(name for name, worker in self.workers.items() if worker.retiring),
        )

    def active(self, operator: str) -> tuple[int, ...]:
        """The tasks that take part in an operator's work, by its newest version."""
        return active_of(self.versions, operator, self.parallelism[operator])

    def active_tasks(self, operator: str) -> list[TaskId]:
        """The same as tasks."""
        return [TaskId(operator, number) for number in self.active(operator)]

    def tasks(self, operator: str) -> list[TaskId]:
        """All tasks of an operator, inactive ones included."""
        return [TaskId(operator, number) for number in range(self.instances.get(operator, self.parallelism[operator]))]

    @property
    def changing(self) -> bool:
        """A change that was asked for is not complete yet."""
        return bool(self.targets or self.loads or self.moves) or any(
            self.settled.get(name, 0) < len(versions) - 1 for name, versions in self.versions.items()
        )

    @property
    def quiet(self) -> bool:
        """No recovery is open, and all workers that have tasks, or may get some, are up."""
        return self.round is None and all(worker.phase in ("running", "finished") for worker in self.hosts().values())

    @property
    def is_up(self) -> bool:
        """It runs, and all workers that have tasks are up."""
        up = all(worker.phase in ("running", "finished") for worker in self.hosts().values())
        return up and self.state in ("ACTIVE", "REBALANCING")

    @property
    def run(self) -> str:
        """Names this run; made of the token, which nobody can guess, and tells nothing of it."""
        return f"{hashlib.blake2b(self.token.encode(), digest_size=6).hexdigest()}.{self.starts}"

    def hosts(self) -> dict[str, WorkerRecord]:
        """The workers that have tasks."""
        return {name: worker for name, worker in self.workers.items() if not worker.spare}
