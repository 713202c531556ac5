"""What the coordinator machine tells its host to do. All of it is idempotent: it may be told again after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rstream.core.channel import TaskId
from rstream.core.restoring import Restore
from rstream.core.savepoint import SavedTask


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the topology's record to the journal, before anything that follows."""

    topology: str


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker process on a node."""

    topology: str
    worker: str
    node: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Deploy:
    """Give a worker its tasks and the addresses of the others."""

    topology: str
    worker: str


@dataclass(frozen=True, slots=True)
class Go:
    """Let a worker's tasks run."""

    topology: str
    worker: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop reading sources, or go on."""

    topology: str
    worker: str
    paused: bool


@dataclass(frozen=True, slots=True)
class Empty:
    """Drop what is queued at a worker's bolts."""

    topology: str
    worker: str


@dataclass(frozen=True, slots=True)
class Drain:
    """End the sources; what is on its way is still processed."""

    topology: str
    worker: str


@dataclass(frozen=True, slots=True)
class Collect:
    """Fetch what a worker's collecting sinks hold, before it is stopped."""

    topology: str
    worker: str


@dataclass(frozen=True, slots=True)
class StopWorker:
    """End a worker process."""

    topology: str
    worker: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Give a worker new tables and ask what it knows of the lost tasks."""

    topology: str
    worker: str
    round: int


@dataclass(frozen=True, slots=True)
class Start:
    """Bring lost tasks back on a worker."""

    topology: str
    worker: str
    round: int
    restores: list[Restore]


@dataclass(frozen=True, slots=True)
class Park:
    """Let a worker stop some of its tasks, each with its whole state copied to the worker where it is to go on."""

    topology: str
    worker: str
    order: int
    version: int
    """Of the tables by which it was ordered; a worker that has others does nothing."""
    targets: Mapping[TaskId, str]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Let a worker's sources put the barrier of a checkpoint into their channels."""

    topology: str
    worker: str
    number: int


@dataclass(frozen=True, slots=True)
class Committed:
    """Tell a worker that all states at a checkpoint are in the store."""

    topology: str
    worker: str
    number: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a worker still for a savepoint, and hear when nothing is on its way there; asked again for each probe."""

    topology: str
    worker: str
    attempt: int
    probe: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut the state of all tasks of a worker, which are at rest."""

    topology: str
    worker: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Save:
    """Let a worker write what it has cut."""

    topology: str
    worker: str
    attempt: int
    uri: str


@dataclass(frozen=True, slots=True)
class Resume:
    """A worker need not be still any more for this attempt; what it has cut is of use, or not."""

    topology: str
    worker: str
    attempt: int
    abandon: bool


@dataclass(frozen=True, slots=True)
class Close:
    """All of a savepoint is written: complete it with its manifest."""

    topology: str
    attempt: int
    uri: str
    files: tuple[SavedTask, ...]


@dataclass(frozen=True, slots=True)
class StartOver:
    """Start the topology again, from its savepoint, on the nodes there are: more is lost than the backups cover, or
    it was `asked` for."""

    topology: str
    why: str
    asked: bool = False


Instruction = (
    Persist
    | StartWorker
    | Deploy
    | Go
    | Pause
    | Empty
    | Drain
    | Collect
    | StopWorker
    | Fence
    | Start
    | Park
    | Hold
    | Cut
    | Save
    | Resume
    | Close
    | Checkpoint
    | Committed
    | StartOver
)
