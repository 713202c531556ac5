"""Tasks that leave a worker for another while the stream runs, as their present host sees it (PROTOCOL.md section 8).

A task that is told to leave is first copied, whole, to its target (and to a third worker where the two could be lost
together) while it goes on. When the copy is safe it stops between two steps, what has happened since follows as a last
delta, and the coordinator is told. New tables then name the target: the task is let go here, but the whole copy and
its records stay until the task has a safe snapshot from where it runs. Any other tables let it go on here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rstream.core.backup import copies_of
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import TaskId
from rstream.core.source_task import SourceTask
from rstream.core.task import Task
from rstream.core.worker_savepoints import SavingTasks
from rstream.errors import OperatorError


@dataclass(slots=True)
class Leaving:
    """A task that is to go on elsewhere, by which order of the coordinator."""

    order: int
    stopped_s: float = math.inf
    """When it took its last step here."""
    done: bool = False
    """It has stopped, and all of it is safe."""


class LeavingTasks(SavingTasks):
    """The tasks of one worker, some of which may be on their way to another."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.leaving: dict[TaskId, Leaving] = {}
        super().__init__(*arguments, **options)

    def park(self, order: int, version: int, targets: Mapping[TaskId, str]) -> None:
        """Make these tasks ready to go on in other workers, unless other tables than the order's have come."""
        if version != self.deployment.version:
            return
        for task in self.tasks:
            known = self.leaving.get(task.id)
            # One of before a restart of the coordinator may come late, after tables that are said again.
            if task.id in targets and (known is None or known.order < order):
                task.parked = False
                self.leaving[task.id] = Leaving(order)
                if not task.commits:
                    self.backups.lay_out(task.id, copies_of(self.deployment, task.id, targets[task.id]))

    def has_parked(self, order: int) -> bool | None:
        """Whether all tasks of an order have stopped and are safe elsewhere; None if it is not in force any more."""
        mine = self._leaving_by(order)
        return all(leaving.done for leaving in mine) if mine else None

    def parked_since(self, order: int) -> float:
        """When the first task of an order stopped."""
        return min((leaving.stopped_s for leaving in self._leaving_by(order)), default=math.inf)

    def _leaving_by(self, order: int) -> list[Leaving]:
        return [leaving for leaving in list(self.leaving.values()) if leaving.order == order]

    def run_pass(self) -> bool:
        worked = super().run_pass()
        if self.leaving and not self.restoring:
            for task in self.tasks:
                leaving = self.leaving.get(task.id)
                if leaving is not None and not leaving.done:
                    leaving.done = self._stop(task)
                    if task.parked:
                        leaving.stopped_s = min(leaving.stopped_s, self.clock())
                    worked = worked or leaving.done
        return worked

    def _stop(self, task: Task) -> bool:
        """Stop a task once it is copied, and send what has happened since; True when nothing is left to send."""
        if not task.parked:
            copied = task.commits or task.id in self.backups.secured
            task.parked = copied and task.opened and not task.held and not task.replay
        if not task.parked or task.commits:
            # What a sink has not committed is sent again to where it goes on.
            return task.parked
        if task.id in self.backups.in_flight:
            return False
        if task.position > self.backups.stable.get(task.id, 0):
            self.backups.cut(task, self.deployment.incarnations.get(task.id, 0), self.clock())
            return False
        return True

    # New tables.

    def _settle_moves(self) -> None:
        """Let go of tasks that the tables have elsewhere by now; all others go on."""
        self.leaving.clear()
        for task in self.tasks:
            task.parked = False
            if self.deployment.placement[task.id] != self.worker:
                self._let_go(task)

    def _let_go(self, task: Task) -> None:
        with contextlib.suppress(OperatorError):  # it goes on elsewhere; that it cannot be closed well harms nobody
            task.close()
        if not task.commits:
            self.backups.held[task.id] = task.log
        if isinstance(task, SourceTask):
            self.sources.remove(task)
        elif isinstance(task, BoltTask):
            self.bolts.remove(task)
            for id in task.in_channels:
                self._receivers.pop(id, None)
                self._unconsumed.pop(id, None)
        for channel in task.out_channels:
            self._unconsumed.pop(channel.id, None)

    def _rewire(self) -> None:
        """Which link a channel belongs to, if any, follows from where its two ends are now."""
        ends, placement, here = self.deployment.ends, self.deployment.placement, self.by_id
        for out_link in self.out_links.values():
            for id in list(out_link.channels):
                source, target = ends(id)
                if source not in here or placement[target] != out_link.peer:
                    for book in (out_link.channels, out_link.dirty, out_link.unsent):
                        book.pop(id, None)
        for in_link in self.in_links.values():
            for id in list(in_link.channels):
                source, target = ends(id)
                if target not in here or placement[source] != in_link.peer:
                    del in_link.channels[id]
        for task in self.tasks:
            for channel in task.out_channels:
                if channel.local and channel.id not in self._receivers:
                    channel.come_apart()
                elif not channel.next and channel.id in self._receivers:
                    # New between two tasks that are both here, and were.
                    channel.come_together()
                    self._receivers[channel.id][0].come_together()
                host = placement[ends(channel.id)[1]]
                if host != self.worker:
                    self._out_link(host).channels[channel.id] = channel
        for bolt in self.bolts:
            for in_channel in bolt.in_channels.values():
                sender = ends(in_channel.id)[0]
                if in_channel.local and sender not in here:
                    in_channel.come_apart()
                if placement[sender] != self.worker:
                    self._in_link(placement[sender]).channels[in_channel.id] = (in_channel, bolt)
