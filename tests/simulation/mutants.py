"""Ways to break the protocol, each one rule left out: PROTOCOL.md section 13 lists them, with the rules by number.

A mutant changes the product's own classes for as long as a test lasts. The last two in the list break nothing: they
do more work than needed and must stay exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rstream.core import order
from rstream.core.backup import Backups, LostTask
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import InChannel, OutChannel, TaskId
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.link import OutLink
from rstream.core.records import TopologyRecord
from rstream.core.recovery import plan_restore
from rstream.core.restoring import Restore
from rstream.core.sink_commits import CommittingTasks
from rstream.core.task import Task
from rstream.core.worker import WorkerMachine
from rstream.core.worker_links import LinkedTasks
from rstream.lab.fault_cluster import Pipe, SimulatedCluster, SimWorker
from rstream.lab.fault_topologies import StoreSink

Patch = pytest.MonkeyPatch
Mutate = Callable[[Patch], None]


def no_deduplication(patch: Patch) -> None:
    receive = InChannel.receive

    def anything(self: InChannel, batch: Any) -> bool:
        self.recv = batch.first
        return receive(self, batch)

    patch.setattr(InChannel, "receive", anything)


def _change_restore(patch: Patch, change: Callable[[Restore], Restore]) -> None:
    def changed(task: TaskId, answers: Any) -> Restore:
        return change(plan_restore(task, answers))

    patch.setattr("rstream.core.coordinator.plan_restore", changed)


def no_order_log(patch: Patch) -> None:
    _change_restore(patch, lambda found: replace(found, records=[]))


def replay_one_record_short(patch: Patch) -> None:
    _change_restore(patch, lambda found: replace(found, records=found.records[:-1]))


def mixed_epochs(patch: Patch) -> None:
    """The state of an older snapshot with the records of the newest, or a delta on the wrong base."""

    def mix(found: Restore) -> Restore:
        chain = found.chain if len(found.chain) < 2 else (found.chain[0], *found.chain[2:])
        return replace(found, chain=chain)

    _change_restore(patch, mix)


def snapshot_without_output(patch: Patch) -> None:
    snapshot = Task.snapshot

    def bare(self: Task, output: Any = None) -> dict[str, Any]:
        content = snapshot(self, output)
        content["outs"] = [
            [list(channel.id), channel.next, [channel.since, channel.next, channel.digest], [], [], channel.ended]
            for channel in self.out_channels
        ]
        return content

    patch.setattr(Task, "snapshot", bare)


def truncate_when_the_snapshot_is_taken(patch: Patch) -> None:
    cut = Backups.cut

    def hasty(self: Backups, task: Task, incarnation: int, now_s: float) -> Any:
        flying = cut(self, task, incarnation, now_s)
        if isinstance(task, BoltTask):
            task.covered_by(flying.own)
        return flying

    patch.setattr(Backups, "cut", hasty)


def truncate_when_consumed(patch: Patch) -> None:
    acknowledge = OutChannel.acknowledge
    patch.setattr(OutChannel, "acknowledge", lambda self, consumed, covered: acknowledge(self, consumed, consumed))


def records_without_clock(patch: Patch) -> None:
    append = order.OrderLog.append
    patch.setattr(order.OrderLog, "append", lambda self, record: append(self, (*record[:4], 0.0)))


def oldest_snapshot_wins(patch: Patch) -> None:
    answer = Backups.answer

    def no_fragments(self: Backups, task: TaskId) -> LostTask:
        found = answer(self, task)
        return LostTask(found.base, found.records, 0, [], {})

    patch.setattr(Backups, "answer", no_fragments)


def epochs_without_incarnation(patch: Patch) -> None:
    cut = Backups.cut

    def timeless(self: Backups, task: Task, incarnation: int, now_s: float) -> Any:
        return cut(self, task, 0, now_s)

    patch.setattr(Backups, "cut", timeless)
    patch.setattr("rstream.state.fragments.FragmentStore.fence", lambda self, task, incarnation: None)


def sink_store_without_token(patch: Patch) -> None:
    def claim(self: StoreSink, token: int) -> bytes | None:
        return self.store.places.get(self._task, (0, None))[1]

    def commit(self: StoreSink, records: list[Any], progress: bytes, token: int) -> None:
        self.store.rows.extend(records)
        self.store.places[self._task] = token, progress

    patch.setattr(StoreSink, "claim", claim)
    patch.setattr(StoreSink, "commit", commit)


def no_fencing_of_messages(patch: Patch) -> None:
    """Workers go on listening to those that were given up."""
    fence, cut = WorkerMachine.fence, SimulatedCluster._cut

    def open_ears(self: WorkerMachine, deployment: Any, lost: Any) -> Any:
        kept = dict(self.in_links)
        answer = fence(self, deployment, lost)
        for peer, link in kept.items():
            self.in_links.setdefault(peer, link)
        return answer

    def keep(self: SimulatedCluster, pipe: Pipe) -> None:
        ends = [self.workers[pipe.dialler], self.workers[pipe.acceptor]]
        if not any(each.cut_off and each.alive for each in ends):
            cut(self, pipe)

    patch.setattr(WorkerMachine, "fence", open_ears)
    patch.setattr(LinkedTasks, "_is_current", lambda self, peer, incarnation: True)
    patch.setattr(SimulatedCluster, "_cut", keep)


def fragments_without_records(patch: Patch) -> None:
    """A link that carries fragments and no data carries no records either."""
    order_frame = LinkedTasks._order_frame

    def only_with_data(self: LinkedTasks, link: OutLink) -> Any:
        return order_frame(self, link) if link.channels or link.serial else None

    patch.setattr(LinkedTasks, "_order_frame", only_with_data)


def answer_before_the_fence(patch: Patch) -> None:
    """A worker says what it knows first, and goes on listening to the dead for a while."""
    fence = SimulatedCluster._fence

    def hasty(self: SimulatedCluster, worker: SimWorker, number: int, table: Any, lost: list[Any]) -> None:
        assert worker.machine is not None
        answer = {id: worker.machine.backups.answer(id) for id in lost}
        self._to_coordinator(worker, lambda: self.coordinator.fenced(self.name, worker.name, number, answer))
        late_s = self.random.uniform(0.0, 3 * self.delay_s)
        self.after(late_s, lambda: fence(self, worker, -1, table, lost) if worker.alive else None)

    patch.setattr(SimulatedCluster, "_fence", hasty)


def forward_to_the_first_receiver_only(patch: Patch) -> None:
    """Depth 1: records of own tasks only, none of those held for others of the domain."""
    order_frame = LinkedTasks._order_frame

    def own_only(self: LinkedTasks, link: OutLink) -> Any:
        held, self.backups.held = self.backups.held, {}
        try:
            return order_frame(self, link)
        finally:
            self.backups.held = held

    patch.setattr(LinkedTasks, "_order_frame", own_only)


def no_witness(patch: Patch) -> None:
    patch.setattr(CommittingTasks, "_may_commit", lambda self: True)


def keep_answers_of_a_replaced_round(patch: Patch) -> None:
    """R3: when a round replaces an open one, what a worker said then of a task that is still lost counts."""
    fence_all, fenced = CoordinatorMachine._fence_all, CoordinatorMachine.fenced
    kept: dict[tuple[int, str, TaskId], LostTask] = {}

    def remember(self: CoordinatorMachine, record: TopologyRecord, lost: Any = ()) -> Any:
        if record.round is None:
            kept.clear()
        else:
            for worker, answer in record.round.answers.items():
                for task, known in answer.items():
                    kept.setdefault((id(self), worker, task), known)
        return fence_all(self, record, lost)

    def old_first(self: CoordinatorMachine, topology: str, worker: str, number: int, answer: Any, ended: Any) -> Any:
        merged = {task: kept.get((id(self), worker, task), known) for task, known in answer.items()}
        return fenced(self, topology, worker, number, merged, ended)

    patch.setattr(CoordinatorMachine, "_fence_all", remember)
    patch.setattr(CoordinatorMachine, "fenced", old_first)


def no_forwarding_after_a_change_of_domain(patch: Patch) -> None:
    """W4: what was held when its task lived in another domain is never forwarded, wherever the task lives now."""
    order_frame = LinkedTasks._order_frame

    def once(self: LinkedTasks, link: OutLink) -> Any:
        home = self._domain_of[self.worker]
        for id, log in self.backups.held.items():
            if self._domain_of.get(self.deployment.placement[id]) != home:
                link.cursor[id] = max(log.end, link.cursor.get(id, 0))
        return order_frame(self, link)

    patch.setattr(LinkedTasks, "_order_frame", once)


def resend_whole_logs(patch: Patch) -> None:
    """A control: the receiver's deduplication alone is enough."""
    resume = LinkedTasks._resume

    def from_the_start(self: LinkedTasks, link: OutLink, channel: OutChannel, *known: Any) -> None:
        resume(self, link, channel, *known)
        if channel.log:
            channel.sent = channel.base
            link.unsent[channel.id] = list(channel.log)

    patch.setattr(LinkedTasks, "_resume", from_the_start)


def forward_without_limit(patch: Patch) -> None:
    """A control: records of every task go everywhere."""
    order_frame = LinkedTasks._order_frame

    def everything(self: LinkedTasks, link: OutLink) -> Any:
        domains = self._domain_of
        self._domain_of = dict.fromkeys(domains, "one")
        try:
            return order_frame(self, link)
        finally:
            self._domain_of = domains

    patch.setattr(LinkedTasks, "_order_frame", everything)
