"""Checkpoints as the coordinator orders them: one at a time, in two phases, and the way back to the last one.

Phase one: every task's whole state at the barrier is in the store. Phase two: the coordinator has written down that it
is so, and says it to everybody; sinks then commit what they set apart. A failure before the end of phase one undoes the
checkpoint, for its number is never used again; a failure after it takes all tasks back to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from rstream.core.channel import TaskId
from rstream.core.instructions import Checkpoint, Committed, Instruction, Persist
from rstream.core.records import TopologyRecord
from rstream.core.restoring import Restore
from rstream.errors import UsageError


class Checkpointing(ABC):
    """The part of the coordinator machine that makes checkpoints."""

    @abstractmethod
    def _find_running(self, topology: str) -> TopologyRecord | None:
        """The topology, if it runs."""

    def checkpoint_due(self, topology: str) -> list[Instruction]:
        """The interval is over: begin the next checkpoint, unless one is being made or something is being recovered."""
        record = self._find_running(topology)
        if record is None or not record.checkpointed or record.checkpoints.open or record.round is not None:
            return []
        if any(worker.phase not in ("running", "finished") for worker in record.hosts().values()):
            return []
        if record.savepoint is not None and record.savepoint.cutting:
            return []  # state is cut for one thing at a time
        state = record.checkpoints
        state.number += 1
        state.open, state.prepared = True, set()
        return [Persist(topology), *(Checkpoint(topology, worker, state.number) for worker in record.hosts())]

    def prepared(self, topology: str, number: int, tasks: Iterable[TaskId]) -> list[Instruction]:
        """The states of these tasks at a checkpoint are in the store; when all are, it is committed."""
        record = self._find_running(topology)
        if record is None or not record.checkpoints.open or record.checkpoints.number != number:
            return []
        state = record.checkpoints
        state.prepared.update(tasks)
        if not state.prepared.issuperset(record.placement):
            return []
        state.open, state.committed = False, number
        return [Persist(topology), *(Committed(topology, worker, number) for worker in record.hosts())]


def lose_all(record: TopologyRecord) -> list[TaskId]:
    """Every task goes back to the last checkpoint; the one that is being made will never be whole."""
    record.checkpoints.open = False
    for worker in record.hosts().values():
        if worker.phase == "finished":
            worker.phase = "running"
    for task in record.placement:
        record.incarnations[task] = record.incarnations.get(task, 0) + 1
    record.ended.clear()
    return list(record.placement)


def plan_reload(record: TopologyRecord, task: TaskId) -> Restore:
    """How a task comes back from the last checkpoint."""
    return Restore(task, (), [], (), record.checkpoints.committed, record.incarnations.get(task, 0))


def check_can_change(record: TopologyRecord) -> None:
    """Checkpoints are cut through channels that stay as they are; keys that changed hands twice would be here twice."""
    if record.recovers and not record.exact:
        raise UsageError(
            f"topology {record.name!r} has delivery: at_least_once, and cannot change while it runs; "
            "start it anew with another parallelism, or use delivery: exactly_once"
        )
    if record.checkpointed:
        raise UsageError(
            f"topology {record.name!r} has state.backend: checkpoint, and cannot change while it runs; "
            "start it anew with another parallelism, or use state.backend: upstream"
        )
