"""The links of a worker: sessions, data and acknowledgements, and the order records that go before both.

Whatever outlives this worker carries the order records it depends on: before data or fragments leave on a link, so do
the records that the other side has not got yet. PROTOCOL.md has the rules by the numbers given here in brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rstream.core.channel import CONTROL, Batch, ChannelId, OutChannel, TaskId
from rstream.core.link import InLink, OutLink
from rstream.core.messages import Ack, Data, Echo, Frame, Greet, Hello, Order, Probe, frame
from rstream.core.worker_tasks import TaskHost
from rstream.errors import StateLost

UNACKED_BATCHES_MAX = 2
PROBE_FORGETS = 1.1


class LinkedTasks(TaskHost):
    """The tasks of one worker and their channels to other workers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sessions = 0
        self.awaited: set[TaskId] = set()
        """Lost tasks that are not known to run again: wherever they are placed, nobody there has their records yet."""

    # Links.

    def greet(self) -> Frame:
        """What to send first on a new link to another worker."""
        return frame(Greet(self.worker, self.incarnation, self.token))

    def on_greet(self, greet: Greet) -> bool:
        """A worker has connected to send us data. HELLO follows with the outgoing frames; False refuses it."""
        if not self._is_current(greet.worker, greet.incarnation):
            return False
        link = self._in_link(greet.worker)
        self._open_session(link)
        return True

    def _open_session(self, link: InLink) -> None:
        """Tell the sender of a link what we have; what it sent before and has not arrived is sent again."""
        self._sessions += 1
        link.session = self._sessions
        link.outbox.clear()
        known = []
        for id, (channel, task) in link.channels.items():
            facts = (channel.recv, channel.digest, channel.since)
            known.append((id, *facts, channel.cons, self.covered(channel, task)))
        held = [(id, log.end) for id, log in self.backups.held.items()]
        link.outbox.append(frame(Hello(self.incarnation, link.session, known, held)))

    def on_hello(self, peer: str, hello: Hello) -> None:
        """The receiver of a link has opened a session: send on from what it has (W3)."""
        if not self._is_current(peer, hello.incarnation):
            return
        link = self._out_link(peer)
        link.reset()
        link.session = hello.session
        link.cursor = dict(hello.held)
        for id, received, digest, since, consumed, known in hello.channels:
            channel = link.channels.get(id)
            if channel is not None:
                self._resume(link, channel, received, digest, since, consumed, known)
        link.owes_order = True

    def _resume(
        self, link: OutLink, channel: OutChannel, received: int, digest: int, since: int, consumed: int, known: int
    ) -> None:
        if received < channel.base:
            raise StateLost(
                f"channel {channel.id}: the receiver has {received} elements and those up to {channel.base} are gone: "
                "more was lost than the backups cover"
            )
        channel.hold_against(received, digest, since)
        channel.acknowledge(consumed, known)
        channel.rewind(consumed)
        channel.sent = received
        channel.sealed.clear()  # all of the log that the receiver lacks follows
        unsent = [batch for batch in channel.log if batch.end > received]
        if unsent:
            link.unsent[channel.id] = unsent
        link.dirty[channel.id] = channel

    def on_lost(self, peer: str) -> None:
        """The connection of the link to this worker has ended; a new one will greet again."""
        link = self.out_links.get(peer)
        if link is not None:
            link.reset()

    def on_data(self, peer: str, data: Data, body: bytes) -> None:
        """Elements arrived from another worker."""
        link = self.in_links.get(peer)
        if not self._in_session(link, data):
            return
        assert link is not None, "a session has a link"
        found = link.channels.get(data.channel)
        if found is None:
            return
        channel, task = found
        batch = Batch(data.first, data.count, data.kind, None, body, data.born_s)
        if channel.receive(batch):
            task.counters.received += data.count if data.kind < CONTROL else 0
            task.uncovered_bytes += len(body)
            task.arrived(channel)

    def on_ack(self, peer: str, ack: Ack) -> None:
        """A receiver says how far it has come."""
        link = self.out_links.get(peer)
        if not self._in_session(link, ack):
            return
        assert link is not None, "a session has a link"
        for id, consumed, known in ack.channels:
            channel = link.channels.get(id)
            if channel is not None:
                channel.acknowledge(consumed, known)
                if channel.pending or id in link.unsent:
                    link.dirty[id] = channel

    # What a hop costs.

    def probe(self) -> None:
        """Ask every receiving worker for an echo; the quickest counts as what the way itself takes."""
        for link in self.out_links.values():
            if link.session is not None:
                link.outbox.append(frame(Probe(self.incarnation, link.session, self.clock())))

    def on_probe(self, peer: str, probe: Probe) -> None:
        """Answer at once."""
        link = self.in_links.get(peer)
        if self._in_session(link, probe):
            assert link is not None, "a session has a link"
            link.outbox.append(frame(Echo(self.incarnation, probe.session, probe.sent_s)))

    def on_echo(self, peer: str, echo: Echo) -> None:
        """Half of the way there and back; it forgets slowly, for ways get longer too."""
        link = self.out_links.get(peer)
        if self._in_session(link, echo):
            assert link is not None, "a session has a link"
            hop_s = max(0.0, self.clock() - echo.sent_s) / 2
            link.hop_s = hop_s if link.hop_s is None else min(hop_s, link.hop_s * PROBE_FORGETS)

    def _is_current(self, peer: str, incarnation: int) -> bool:
        address = self.deployment.workers.get(peer)
        return address is not None and address.incarnation == incarnation

    def _in_session(self, link: OutLink | InLink | None, message: Any) -> bool:
        return (
            link is not None
            and link.session is not None
            and message.session == link.session
            and self._is_current(link.peer, message.incarnation)
        )

    def on_order(self, peer: str, order: Order) -> None:
        """Hold records of other workers' tasks."""
        if self._in_session(self.in_links.get(peer), order):
            for task, start, records, stable in order.logs:
                if task not in self.by_id:
                    self.backups.take_records(task, start, records, stable)

    def _order_frame(self, link: OutLink) -> Frame | None:
        """The records that the other side lacks (W4): of own tasks, and of those held for others of our domain."""
        assert link.session is not None, "records go out within a session"
        logs: list[tuple[TaskId, int, list[Any], int]] = []
        for task in self.tasks:
            self._add_delta(link, logs, task.id, task.log.base, task.log.end, task.log.since)
        for id, log in self.backups.held.items():
            if self._is_exposed(id) and (id in self.awaited or self.deployment.placement[id] != link.peer):
                self._add_delta(link, logs, id, log.base, log.end, log.since)
        serial, link.serial = link.serial, 0
        return frame(Order(self.incarnation, link.session, logs, serial)) if logs or serial else None

    def _is_exposed(self, id: TaskId) -> bool:
        """Whether records held for a task could be lost together with this domain: it lives here, or nowhere yet."""
        host = self.deployment.placement[id]
        home = self._domain_of[self.worker]
        return id in self.awaited or (host != self.worker and self._domain_of.get(host) == home)

    def _add_delta(
        self,
        link: OutLink,
        logs: list[tuple[TaskId, int, list[Any], int]],
        id: TaskId,
        base: int,
        end: int,
        since: Callable[[int], list[Any]],
    ) -> None:
        start = max(link.cursor.get(id, 0), base)
        if end > start:
            logs.append((id, start, since(start), self.backups.stable.get(id, 0)))
            link.cursor[id] = end

    def outgoing(self) -> Iterator[tuple[str, bool, Frame]]:
        """Frames to send now: (worker, whether on our link to it, frame). Answers go on its link to us."""
        self._acknowledge_local()
        for out_link in list(self.out_links.values()):
            if out_link.owes_greet:
                out_link.owes_greet = False
                yield out_link.peer, True, self.greet()
            if out_link.session is not None and (out_link.dirty or out_link.outbox or out_link.owes_order):
                frames = [*out_link.outbox, *self._data_frames(out_link)]
                out_link.outbox.clear()
                if frames or out_link.owes_order:
                    out_link.owes_order = False
                    order = self._order_frame(out_link)
                    for each in (order, *frames) if order is not None else frames:
                        yield out_link.peer, True, each
        for in_link in list(self.in_links.values()):
            for each in in_link.outbox:
                yield in_link.peer, False, each
            in_link.outbox.clear()
            if in_link.session is not None:
                acks = self._acks(in_link)
                if acks:
                    yield in_link.peer, False, frame(Ack(self.incarnation, in_link.session, acks))

    def _acks(self, link: InLink) -> list[tuple[ChannelId, int, int]]:
        acks = []
        for id, (channel, task) in link.channels.items():
            # A replayed step takes as many elements at once as it did before, which may be more than the window: while
            # a task replays, what has arrived gives credit for more.
            state = (channel.recv if task.replay else channel.cons, self.covered(channel, task))
            if state != channel.reported:
                channel.reported = state
                acks.append((id, *state))
        return acks

    def _data_frames(self, link: OutLink) -> Iterator[Frame]:
        assert link.session is not None, "frames go out within a session"
        waiting: dict[ChannelId, OutChannel] = {}
        for id, channel in link.dirty.items():
            if channel.pending and (
                channel.unacked_batches < UNACKED_BATCHES_MAX or len(channel.pending) >= self.limits.batch_max
            ):
                self._seal(link, channel)
            unsent = link.unsent.pop(id, [])
            credit = channel.ack + self.limits.window
            while unsent and unsent[0].first < credit and not link.full:
                batch = unsent.pop(0)
                kind, body = batch.encoded()
                channel.sent = batch.end
                channel.unacked_batches += batch.end > channel.ack
                yield frame(
                    Data(self.incarnation, link.session, id, batch.first, batch.count, kind, batch.born_s), body
                )
            if unsent:
                link.unsent[id] = unsent
            if channel.pending or (unsent and link.full):
                waiting[id] = channel
        link.dirty = waiting
