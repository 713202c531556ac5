"""The worker machine: the tasks of one worker, their links, their backups and their recovery. No I/O.

The host feeds it frames that arrived and asks it to run; it gives back frames to send. Channels between two tasks of
this worker pass batches by reference; the others go over links. A batch leaves as soon as its receiver could be idle
(fewer than two batches of that channel unacknowledged) and grows while the receiver is busy.
"""

from __future__ import annotations

from collections.abc import Sequence

from rstream.core import messages
from rstream.core.backup import LostTask
from rstream.core.channel import TaskId
from rstream.core.deployment import Deployment
from rstream.core.messages import (
    Ack,
    Data,
    Echo,
    FragmentEnd,
    FragmentHeld,
    FragmentPiece,
    Hello,
    Order,
    Probe,
    Pull,
    Pulled,
    Safe,
    Witnessed,
)
from rstream.core.recovery_times import RecoveryTimes
from rstream.core.restoring import Pulling, Restore
from rstream.core.sink_task import SinkTask
from rstream.core.task import Complaint
from rstream.core.worker_moves import LeavingTasks


class WorkerMachine(LeavingTasks):
    """All that one worker does, without I/O."""

    def handle(self, peer: str, message: messages.Message, body: bytes) -> None:
        """Anything but a greeting, from a worker that greeted or was greeted."""
        match message:
            case Data():
                self.on_data(peer, message, body)
            case Ack():
                self.on_ack(peer, message)
            case Hello():
                self.on_hello(peer, message)
                self._resend(peer)
            case Order():
                self.on_order(peer, message)
            case Witnessed():
                self.on_witnessed(peer, message)
            case FragmentPiece():
                self.on_piece(peer, message, body)
            case FragmentEnd():
                self.on_fragment_end(peer, message)
            case FragmentHeld():
                self.on_held(peer, message)
            case Safe():
                self.on_safe(peer, message)
            case Pull():
                self.on_pull(peer, message)
            case Pulled():
                self.on_pulled(peer, message, body)
            case Probe():
                self.on_probe(peer, message)
            case Echo():
                self.on_echo(peer, message)

    # Recovery (R3 to R6).

    def fence(self, deployment: Deployment, lost: Sequence[TaskId]) -> dict[TaskId, LostTask]:
        """Take new tables, close the sessions of workers that are gone, and only then say what is known (W9)."""
        if deployment.version < self.deployment.version:
            return {}  # a newer fence has overtaken this one, and nobody waits for its answer any more
        retiring = deployment.retiring - self.deployment.retiring
        self._take_tables(deployment)
        self._roll_back(lost)
        self._settle_moves()
        self.awaited = {id for id in lost if id not in self.by_id}
        for peer in [peer for peer in self.out_links if peer not in deployment.workers]:
            del self.out_links[peer]
        for peer in [peer for peer in self.in_links if peer not in deployment.workers]:
            del self.in_links[peer]
        for link in self.out_links.values():
            link.owes_order = True  # who has to know which records follows from where everybody is now (W4)
        for task in self.tasks:
            self._grow(task)
            task.touched = True
        self._rewire()
        for id in lost:
            self.backups.fence(id, deployment.incarnations.get(id, 0))
        self.backups.place(deployment, self.by_id)
        if retiring:
            self.backups.renew()
        return {id: self.backups.answer(id) for id in lost}

    def start(self, restores: Sequence[Restore]) -> None:
        """Bring lost tasks back here: pull their fragments, then restore and replay (R5)."""
        if not restores:
            return  # told again; they are here
        self.recoveries.append(RecoveryTimes(self.clock(), len(restores)))
        if self.checkpointed:
            self._reload(restores)
            self._restore_if_complete()
            return
        for restore in restores:
            pulling = self.restoring[restore.task] = Pulling(restore, self.worker)
            self._give_own(pulling)
            for holder in restore.holders:
                if holder != self.worker:
                    link = self._out_link(holder)
                    if link.session is not None:
                        link.outbox += [self._pull(pulling, wanted) for wanted in pulling.wanted(holder)]
        self._restore_if_complete()

    def _restore_if_complete(self) -> None:
        """Once every snapshot is here, bring all lost tasks back together: they may be each other's neighbours."""
        if not self.restoring or not all(pulling.is_ready for pulling in self.restoring.values()):
            return
        for pulling in self.restoring.values():
            loaded = pulling.loader if pulling.has_snapshot else None
            id = pulling.restore.task
            task = self._add_first(id) if loaded is None else self._add_task(id, loaded.state)
            self._open(task, self.clock())
            task.restore(None if loaded is None else loaded.content(), pulling.restore.records)
            self.backups.note_stable(task.id, task.position)
            self.backups.former[task.id] = set(pulling.restore.holders)
            self.awaited.discard(task.id)
        self.restoring.clear()
        self.recoveries[-1].restored(self.clock())
        for task in self.tasks:
            task.touched = True
            self.backups.held.pop(task.id, None)
            for channel in task.out_channels:
                channel.local = channel.id in self._receivers
                if channel.local:
                    receiver, _ = self._receivers[channel.id]
                    channel.come_together()
                    receiver.come_together()
                    channel.sent = receiver.recv
                    channel.rewind(receiver.cons)
                    channel.sealed.clear()
                    channel.hold_against(receiver.recv, receiver.digest, receiver.since)
                    for batch in channel.log:
                        self._deliver_local(channel, batch)
        self.backups.place(self.deployment, self.by_id)
        if self.checkpointed:
            self._relink()
            return
        # Links that were there before the tasks came know nothing of their channels: both ends start over. Until now
        # they carried fragments only; workers that are restored together may hold them for each other.
        for in_link in self.in_links.values():
            if in_link.session is not None:
                self._open_session(in_link)
        for out_link in self.out_links.values():
            if out_link.session is not None:
                out_link.outbox.append(self.greet())

    # What the host needs to know.

    @property
    def ended_tasks(self) -> list[TaskId]:
        """The tasks here that have ended: the coordinator gives them nothing new to do."""
        return [task.id for task in self.tasks if task.ended]

    def take_progress(self) -> dict[tuple[TaskId, str], int]:
        """How far tasks here have come in the versions of their operators, as far as it is news; most often nothing."""
        if not self._has_versions:
            return {}
        found = {}
        for task in self.tasks:
            if task.news:
                task.news = False
                found.update({(task.id, operator): version for operator, version in task.reached().items()})
        return found

    @property
    def finished(self) -> bool:
        """Every task has ended, and everything sent to others was consumed."""
        return (
            not self.restoring
            and len(self.tasks) >= len(self.deployment.tasks_of(self.worker))
            and all(task.ended and not task.replay for task in self.tasks)
            and all(
                channel.ack >= channel.next and not channel.pending
                for task in self.tasks
                for channel in task.out_channels
            )
        )

    @property
    def healed(self) -> bool:
        """Nothing is being restored or replayed, and every task's state survives the loss of its domain (section 9)."""
        if self.restoring or len(self.tasks) < len(self.deployment.tasks_of(self.worker)):
            return False
        links = all(link.session is not None and not link.owes_order for link in self.out_links.values())
        if self.checkpointed:
            return links
        return links and all(
            not task.replay
            and (task.commits or task.id in self.backups.secured or not self.backups.is_protected(task.id))
            for task in self.tasks
        )

    def next_wake_s(self) -> float | None:
        """When a task will have something to do although nothing arrives."""
        soonest: float | None = None
        interval_s = self.backup_interval_s
        for tasks in (self.sources, self.bolts):
            for task in tasks:
                at_s = None if task.parked else task.next_wake_s()
                if task.commits and isinstance(task, SinkTask):
                    cut_s = self.commit_wake_s(task)
                else:
                    cut_s = None if interval_s is None else self.backups.next_cut_s(task, interval_s)
                for at in (at_s, cut_s):
                    if at is not None and (soonest is None or at < soonest):
                        soonest = at
        return soonest

    def oldest_born_s(self) -> float | None:
        """The age of the oldest source tuple that still has work to be done here or on the way from here."""
        ages = [
            age for task in self.tasks for channel in task.out_channels if (age := channel.oldest_born_s()) is not None
        ]
        for bolt in self.bolts:
            if bolt.held and bolt._step is not None:
                ages.append(bolt._step[2])
            ages += [channel.queue[0].born_s for channel in bolt.in_channels.values() if channel.queue]
        ages += [age for sink in self.committing if (age := sink.oldest_born_s()) is not None]
        return min(ages, default=None)

    def take_complaints(self) -> list[Complaint]:
        """What people should know of, since the last time asked."""
        found: list[Complaint] = []
        for task in self.tasks:
            found += task.complaints
            task.complaints.clear()
        return found

    def pause(self, paused: bool) -> None:
        """Stop reading sources, or go on: Storm's deactivate and activate."""
        for source in self.sources:
            source.paused = paused

    def empty(self) -> None:
        """Drop what is queued at the bolts here."""
        for bolt in self.bolts:
            bolt.empty()

    def drain(self) -> None:
        """End all sources here; everything on its way is still processed."""
        for source in self.sources:
            source.drain()

    def close(self) -> None:
        """Close every task that has not ended by itself."""
        for task in (*self.sources, *self.bolts):
            task.close()

    def validate(self) -> None:
        """Check the invariants that must hold between any two calls; for tests."""
        for task in self.tasks:
            for channel in task.out_channels:
                at = channel.base
                for batch in channel.log:
                    assert batch.first == at, (channel.id, batch.first, at)
                    at += batch.count
                assert at == channel.next, (channel.id, at, channel.next)
                if channel.ack > channel.next + len(channel.pending):
                    assert task.replay, (channel.id, "I2: only a replaying task is behind its receivers")
                if channel.expect is not None:
                    offset, _ = channel.expect
                    assert offset > channel.next, (channel.id, "I2: what is reached is not expected any more")
                    made = channel.next + len(channel.pending)
                    assert task.replay or offset <= made, (channel.id, "I2: only a replay has something to arrive at")
                if channel.local and channel.id in self._receivers:
                    receiver, _ = self._receivers[channel.id]
                    assert receiver.recv >= channel.next, channel.id
            assert list(task.replay) == task.log.records[len(task.log.records) - len(task.replay) :], task.id
        for bolt in self.bolts:
            for in_channel in bolt.in_channels.values():
                in_channel.validate()
                assert self.covered(in_channel, bolt) <= in_channel.cons <= in_channel.recv, in_channel.id
                waits = in_channel in bolt.waiting or in_channel.id in bolt.barred
                assert not in_channel.queue or bolt.held or waits, in_channel.id
        self.backups.store.validate()

    def validate_sent(self, peer: str) -> None:
        """I10, right after data or fragments have left for a worker: the records they may depend on left before."""
        link = self.out_links[peer]
        for task in self.tasks:
            assert max(link.cursor.get(task.id, 0), task.log.base) >= task.log.end, (peer, task.id, "I10")
        for id, log in self.backups.held.items():
            if self._is_exposed(id) and (id in self.awaited or self.deployment.placement[id] != peer):
                assert max(link.cursor.get(id, 0), log.base) >= log.end, (peer, id, "I10: held for another")
