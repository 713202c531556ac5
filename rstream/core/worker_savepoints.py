"""A worker's part in a savepoint: being still until nothing is on its way, the cut, and packing what was cut.

While a worker is still its sources are not read and its ticks and timers do not fire; what has arrived is processed and
sinks commit. The cut itself takes no time: state is copied before it is written to from then on, so tasks run on while
slices of it are packed. The host takes the packed chunks and writes them where the savepoint goes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from rstream.core import portable
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import ChannelId, OutChannel, TaskId
from rstream.core.link import OutLink
from rstream.core.packing import Packer
from rstream.core.savepoint import MAGIC, SavedTask
from rstream.core.task import Task
from rstream.core.worker_checkpoints import CheckpointedTasks
from rstream.state.erasure import Fragment

WAITING_BYTES_MAX = 8 << 20
"""No more is packed while so much waits to be written: memory stays bounded where the store is slow."""


class Chunks:
    """The bytes of one task's file, from the packer to whoever writes them."""

    has_stripe = False
    """Nothing has to be encoded: what is written can be taken as it is."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque([MAGIC])
        self.written_bytes = len(MAGIC)
        self.taken_bytes = 0

    def write(self, chunk: bytes) -> None:
        """Add bytes."""
        self.waiting.append(chunk)
        self.written_bytes += len(chunk)

    def pump(self) -> bool:
        """There is never anything to encode."""
        return False

    def finish(self) -> list[Fragment]:
        """No fragments are made of a savepoint."""
        return []

    def take(self) -> bytes | None:
        """The next bytes to be written, None if there are none now. May be called from another thread."""
        if not self.waiting:
            return None
        chunk = self.waiting.popleft()
        self.taken_bytes += len(chunk)
        return chunk


@dataclass(slots=True)
class StateFile:
    """The file of a task in a savepoint that is being made."""

    task: TaskId
    about: SavedTask
    """What the manifest will say of it, once its file is written."""
    chunks: Chunks
    packer: Packer[Chunks]

    @property
    def is_packed(self) -> bool:
        """All of its chunks are there to be taken."""
        return self.packer.fragments is not None


class SavingTasks(CheckpointedTasks):
    """The tasks of one worker, and their savepoints."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.attempt = 0
        """The newest attempt at a savepoint that this worker has heard of."""
        self.still = False
        self.files: list[StateFile] = []
        self._heard: dict[ChannelId, int] = {}
        """For each channel to another worker the incarnation of its receiver that has said what it has."""

    def _resume(self, link: OutLink, channel: OutChannel, *known: int) -> None:
        super()._resume(link, channel, *known)
        receiver = self.deployment.ends(channel.id)[1]
        self._heard[channel.id] = self.deployment.incarnations.get(receiver, 0)

    def hold(self, attempt: int) -> None:
        """Be still, for a savepoint; an earlier attempt is given up."""
        if attempt < self.attempt:
            return
        if attempt > self.attempt:
            self.abandon_savepoint()
            self.attempt, self.still = attempt, True
        for task in self.tasks:
            task.still = self.still

    def resume(self, attempt: int, abandon: bool = False) -> None:
        """Go on, unless a later attempt wants this worker still; what was cut is packed all the same, or not wanted."""
        if attempt < self.attempt:
            return
        self.still = False
        for task in self.tasks:
            task.still = False
        if abandon:
            self.abandon_savepoint()

    def activity(self) -> int | None:
        """A number that grows with every step; None while something here is on its way or to be done.

        That everybody once had nothing to do does not say that nobody has: only the same answers twice do.
        """
        if not self.still or self.restoring or len(self.tasks) < len(self.deployment.tasks_of(self.worker)):
            return None
        if not all(task.still and _is_at_rest(task) and self._is_heard(task) for task in self.tasks):
            return None
        return sum(task.position for task in self.tasks)

    def _is_heard(self, task: Task) -> bool:
        """Receivers that came back have said what they lack: until then, what they had consumed says nothing."""
        for channel in task.out_channels:
            if not channel.local:
                receiver = self.deployment.ends(channel.id)[1]
                if self._heard.get(channel.id, 0) < self.deployment.incarnations.get(receiver, 0):
                    return False
        return True

    def cut_savepoint(self, attempt: int) -> bool:
        """Cut all tasks here, which are at rest; False if another attempt has taken this one's place."""
        if attempt != self.attempt or not self.still or self.files:
            return attempt == self.attempt and bool(self.files)
        for task in self.tasks:
            self.backups.rebase(task.id)
            self.backups.saving.add(task.id)
            head = portable.portable_head(task)
            about, chunks = portable.saved_task(task, head), Chunks()
            cut = task.ctx.state.begin_snapshot(full=True)
            packer = Packer(head, cut, chunks, self.clock, self.limits.slice_items)
            self.files.append(StateFile(task.id, about, chunks, packer))
        return True

    def abandon_savepoint(self) -> None:
        """Forget what was cut."""
        for file in self.files:
            file.packer.abandon()
        self.files.clear()
        self.backups.saving.clear()

    def run_pass(self) -> bool:
        worked = super().run_pass()
        return self.pack_savepoint() or worked

    def pack_savepoint(self) -> bool:
        """Pack for one slice; False if there is nothing to do, or too much waits to be written."""
        start_s = self.clock()
        worked = False
        for file in self.files:
            chunks = file.chunks
            while not file.is_packed and chunks.written_bytes - chunks.taken_bytes < WAITING_BYTES_MAX:
                worked = file.packer.work() or worked
                if file.is_packed:
                    self.backups.saving.discard(file.task)
                if self.clock() - start_s >= self.limits.slice_s:
                    return True
        return worked


def _is_at_rest(task: Task) -> bool:
    if task.held or task.replay or task.stale or not task.opened:
        return False
    if isinstance(task, BoltTask) and not task.at_rest:
        return False
    return all(
        channel.ack >= channel.next and not channel.pending and not channel.sealed for channel in task.out_channels
    )
