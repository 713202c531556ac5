"""When the sinks of a worker may commit: after a witness in another failure domain knows every record they depend on.

What a sink has committed outlives everything, so the order records that led to it must not die with this domain (W8).
Records of tasks here, and those held for others of this domain, go to one worker elsewhere with a request to say that
they arrived; what was consumed before the request is then committed. Where nothing is unstable there is nothing to
ask. A commit also needs the lease: a worker that no coordinator has heard of for long has no effect outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rstream.core.channel import TaskId
from rstream.core.messages import Order, Witnessed, frame
from rstream.core.sink_task import SinkTask
from rstream.core.worker_links import LinkedTasks

LEASE_POLL_S = 0.1


@dataclass(slots=True)
class Request:
    """A witness was asked: in which session, and up to where its records would reach."""

    serial: int
    witness: str
    session: int
    ends: dict[TaskId, int]


class CommittingTasks(LinkedTasks):
    """The tasks of one worker, with the commits of those that are transactional sinks."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._request: Request | None = None
        self._requests = 0
        self.witnessed: dict[TaskId, int] = {}
        """Up to which position some worker of another domain has the records of a task."""
        self.lease_until_s = float("inf")
        super().__init__(*arguments, **options)

    @property
    def committing(self) -> list[SinkTask]:
        """The tasks that commit."""
        return [bolt for bolt in self.bolts if bolt.commits and isinstance(bolt, SinkTask)]

    def run_pass(self) -> bool:
        worked = super().run_pass()
        return self.commit_due() or worked

    def commit_due(self) -> bool:
        """Set apart what is due, ask a witness where one is needed, and commit what is allowed."""
        now_s = self.clock()
        sinks = [sink for sink in self.committing if not sink.ended]
        if not sinks or now_s >= self.lease_until_s:
            return False
        waiting = [sink for sink in sinks if sink.frozen is not None]
        if not waiting:
            for sink in sinks:
                due_s = sink.due_s()
                if due_s is not None and now_s >= due_s:
                    sink.freeze()
                    waiting.append(sink)
        if not waiting or not self._may_commit():
            return False
        for sink in waiting:
            sink.commit()
        return True

    def commit_wake_s(self, sink: SinkTask) -> float | None:
        """When a sink wants to commit; without a lease, when to look for one again."""
        due_s, now_s = sink.due_s(), self.clock()
        return now_s + LEASE_POLL_S if due_s is not None and now_s >= self.lease_until_s else due_s

    def _may_commit(self) -> bool:
        """Everything that is set apart depends on records that outlive this domain; asks for it where not."""
        if self._request is not None:
            link = self.out_links.get(self._request.witness)
            if link is not None and link.session == self._request.session:
                return False
            self._request = None  # the session ended: ask anew, perhaps somebody else
        unstable = self._unstable()
        if all(self.witnessed.get(id, 0) >= end for id, end in unstable.items()):
            return True
        witness = self._choose_witness()
        if witness is None:
            return True  # nobody lives in another domain: `survives` says so
        link = self._out_link(witness)
        if link.session is not None:
            self._requests += 1
            self._request = Request(self._requests, witness, link.session, unstable)
            link.serial, link.owes_order = self._requests, True
        return False

    def _unstable(self) -> dict[TaskId, int]:
        """The ends of all records that no safe snapshot covers: of tasks here, and of others of this domain."""
        ends = {task.id: task.log.end for task in self.tasks if task.log.records}
        ends.update({id: log.end for id, log in self.backups.held.items() if log.records and self._is_exposed(id)})
        return ends

    def _choose_witness(self) -> str | None:
        """A worker of another domain, one that is connected if possible."""
        home = self._domain_of[self.worker]
        staying = self._domain_of.keys() - self.deployment.retiring
        others = sorted(worker for worker in staying if self._domain_of[worker] != home)
        connected = [each for each in others if each in self.out_links and self.out_links[each].session is not None]
        return next(iter([*connected, *others]), None)

    def on_order(self, peer: str, order: Order) -> None:
        """Hold the records, and say so if asked."""
        super().on_order(peer, order)
        link = self.in_links.get(peer)
        if order.serial and link is not None and link.session is not None and self._in_session(link, order):
            link.outbox.append(frame(Witnessed(self.incarnation, link.session, order.serial)))

    def on_witnessed(self, peer: str, witnessed: Witnessed) -> None:
        """The witness has the records: what was set apart before the request is committed now."""
        request = self._request
        if request is None or (request.witness, request.serial) != (peer, witnessed.serial):
            return
        if not self._in_session(self.out_links.get(peer), witnessed):
            return
        self._request = None
        for id, end in request.ends.items():
            self.witnessed[id] = max(end, self.witnessed.get(id, 0))
        if self.clock() < self.lease_until_s:
            for sink in self.committing:
                if sink.frozen is not None:
                    sink.commit()
