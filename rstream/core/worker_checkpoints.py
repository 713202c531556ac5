"""Checkpoints as a worker makes them, Storm's way: the whole state of every task at a barrier, to a store elsewhere.

The coordinator orders checkpoint n. Sources put a barrier into every channel; a bolt takes nothing more from an input
whose barrier has come until the barriers of all inputs have, then it passes the barrier on and its state is cut. So all
states are of one moment, nothing is on its way between them, and neither order records nor retained output are needed.
The price: after any failure every task goes back to the last checkpoint that was committed. What is cut is packed in
slices while tuples flow on, and handed to the host, which writes it; `rstream.core.checkpointing` is the other side.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rstream.core.channel import InChannel, TaskId
from rstream.core.packing import Packer
from rstream.core.restoring import DECODE, LOAD, Pulling, Restore
from rstream.core.sink_task import SinkTask
from rstream.core.source_task import SourceTask
from rstream.core.task import Task
from rstream.core.worker_backups import BackedTasks
from rstream.errors import OperatorError
from rstream.state.erasure import Fragment, FragmentWriter, Label


class Saving(NamedTuple):
    """The whole state of a task at a checkpoint, for the host to write."""

    number: int
    task: TaskId
    whole: Fragment


class Reading(NamedTuple):
    """The state of a task at a checkpoint, for the host to read; what comes is for this incarnation of the task."""

    number: int
    task: TaskId
    incarnation: int


@dataclass(slots=True)
class Cut:
    """A checkpoint of one task that is being packed."""

    number: int
    packer: Packer[FragmentWriter]


class Reloading(Pulling):
    """A restore from a checkpoint: its bytes come from the host, in order."""

    def __init__(self, restore: Restore, here: str) -> None:
        super().__init__(restore, here)
        self._pieces: deque[bytes] = deque()
        self._all_here = self._loaded = False

    @property
    def is_ready(self) -> bool:
        return self._loaded or not self.restore.checkpoint

    @property
    def has_snapshot(self) -> bool:
        return bool(self.restore.checkpoint)

    def feed(self, piece: bytes | None) -> None:
        """The next piece; None after the last."""
        if piece is None:
            self._all_here = True
        else:
            self._pieces.append(piece)

    @property
    def is_fetched(self) -> bool:
        return self._all_here or not self.restore.checkpoint

    def work(self) -> str | None:
        if self.is_ready:
            return None
        if self.loader.work():
            return LOAD
        if self._pieces:
            self.loader.feed(self._pieces.popleft())
            return DECODE
        if self._all_here:
            self.loader.end_snapshot()
            self._loaded = True
            return LOAD
        return None


class CheckpointedTasks(BackedTasks):
    """The tasks of one worker, with checkpoints instead of backups where `checkpointed`."""

    def __init__(self, *arguments: Any, checkpointed: bool = False, **options: Any) -> None:
        self.checkpointed = checkpointed
        self._ordered = self._committed = 0
        self._owes_commit = False
        """A checkpoint is whole, and its sinks wait for the lease to commit."""
        self._numbers: dict[TaskId, int] = {}
        """The newest checkpoint that each task was cut for."""
        self._cuts: dict[TaskId, Cut] = {}
        self._read: dict[TaskId, Any] = {}
        """How far each source had read at its newest checkpoint."""
        self.savings: list[Saving] = []
        self.readings: list[Reading] = []
        super().__init__(*arguments, **options)

    def _add_task(self, id: TaskId, *state: Any) -> Task:
        task = super()._add_task(id, *state)
        if self.checkpointed:
            task.at_barrier = self._cut
            if isinstance(task, SinkTask):
                task.two_phase = True
        return task

    def covered(self, channel: InChannel, task: Task) -> int:
        """After a failure everybody goes back, so nobody ever asks for what was consumed."""
        return channel.cons if self.checkpointed else super().covered(channel, task)

    def is_backed_up(self, task: Task) -> bool:
        """What was read counts as covered, for those who push it, once a checkpoint is committed."""
        return self.checkpointed or super().is_backed_up(task)

    def run_pass(self) -> bool:
        worked = super().run_pass()
        return self._save() or worked if self.checkpointed and not self.restoring else worked

    # Making a checkpoint.

    def checkpoint(self, number: int) -> None:
        """The coordinator wants checkpoint `number`: sources begin, and tasks past all input, which get no barrier."""
        self._ordered = max(number, self._ordered)

    def commit_due(self) -> bool:
        """Sinks commit with checkpoints, not by themselves, and as all do under the lease alone: what comes when it is
        over waits for another, or for whoever takes the tasks over and commits it when they are back."""
        if not self.checkpointed:
            return super().commit_due()
        if not self._owes_commit or self.clock() >= self.lease_until_s:
            return False
        self._owes_commit = False
        for sink in self.committing:
            if sink.frozen is not None and self._numbers.get(sink.id) == self._committed:
                sink.commit()
        return True

    def committed(self, number: int) -> None:
        """All tasks' states at this checkpoint are in the store: what sinks set apart at it is committed."""
        self._committed, self._owes_commit = number, True
        self.commit_due()
        for source in self.sources:
            if self._numbers.get(source.id) == number:
                source.covered_by(self._read[source.id])

    def _save(self) -> bool:
        """Begin what is ordered and pack what is cut, for one slice; True if there was something."""
        start_s = self.clock()
        if self._ordered:
            for task in self.tasks:
                if self._numbers.get(task.id, 0) < self._ordered and task.opened and not task.held:
                    self._begin(task)
        for id in list(self._cuts):
            cut = self._cuts[id]
            while cut.packer.work() and self.clock() - start_s < self.limits.slice_s:
                pass
            if cut.packer.fragments is None:
                return True
            del self._cuts[id]
            self.savings.append(Saving(cut.number, id, cut.packer.fragments[0]))
        return bool(self.savings)

    def _begin(self, task: Task) -> None:
        if isinstance(task, SourceTask) and not task.ended:
            task.pass_barrier(self._ordered)
            self._deliver(task)
        elif task.past_input and all(channel.ended for channel in task.out_channels):
            self._cut(task, self._ordered)

    def _cut(self, task: Task, number: int) -> None:
        if number <= self._numbers.get(task.id, 0):
            return
        self._numbers[task.id] = number
        before = self._cuts.pop(task.id, None)
        if before is not None:
            before.packer.abandon()
        state = task.ctx.state.begin_snapshot(full=True)
        label = Label(str(task.id), (self.deployment.incarnations.get(task.id, 0), number))
        writer = FragmentWriter(label, 1, 0, self.limits.stripe_bytes)
        content = task.checkpoint()
        if isinstance(task, SourceTask):
            self._read[task.id] = content["own"]
        packer = Packer(content, state, writer, task.clock, self.limits.slice_items)
        self._cuts[task.id] = Cut(number, packer)

    # Going back to one.

    def _roll_back(self, lost: Sequence[TaskId]) -> None:
        """Everything goes back: let go of all tasks, and of what is on its way to and from them."""
        if not self.checkpointed or not lost:
            return
        for task in self.tasks:
            with contextlib.suppress(OperatorError):  # its work is undone; that it cannot be closed well harms nobody
                task.close()
        for cut in self._cuts.values():
            cut.packer.abandon()
        for book in (self.sources, self.bolts, self.thread_work, self.savings, self.readings):
            book.clear()
        for table in (self._receivers, self._unconsumed, self._cuts, self._numbers, self._read, self.restoring):
            table.clear()
        self._ordered = 0
        for out_link in self.out_links.values():
            out_link.reset()
            out_link.channels.clear()
        for in_link in self.in_links.values():
            in_link.session = None
            in_link.channels.clear()
            in_link.outbox.clear()

    def _reload(self, restores: Sequence[Restore]) -> None:
        """Bring all tasks of this worker back from a checkpoint, one after the other; those of an older round are not
        wanted any more."""
        for restore in restores:
            if restore.incarnation == self.deployment.incarnations.get(restore.task, 0):
                self.restoring[restore.task] = Reloading(restore, self.worker)
                if restore.checkpoint:
                    self.readings.append(Reading(restore.checkpoint, restore.task, restore.incarnation))

    def feed(self, reading: Reading, piece: bytes | None) -> None:
        """The next piece of what was to be read; None after the last."""
        reloading = self.restoring.get(reading.task)
        if isinstance(reloading, Reloading) and reloading.restore.incarnation == reading.incarnation:
            reloading.feed(piece)

    def _relink(self) -> None:
        """All tasks are back: both ends of every link start over."""
        for in_link in self.in_links.values():
            self._open_session(in_link)
        for out_link in self.out_links.values():
            out_link.owes_greet = True
