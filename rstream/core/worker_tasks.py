"""The tasks of one worker: building them, giving each its turn, and passing batches between those that are neighbours.

The base of the worker machine; it knows links only as places to leave batches for other workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rstream.api import Bolt, Source, Spout, TransactionalSink
from rstream.core.backup import Backups, domains_of
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import CONTROL, Batch, ChannelId, InChannel, OutChannel, TaskId
from rstream.core.context import KeyOfInput, TaskContext
from rstream.core.deployment import Deployment
from rstream.core.histogram import Histogram
from rstream.core.keyed_task import KeyedBoltTask
from rstream.core.link import InLink, OutLink
from rstream.core.poison import Note, be_careful
from rstream.core.portable import Beginning, Savepoint, begin, beginning_of
from rstream.core.router import make_router
from rstream.core.sink_task import SinkTask
from rstream.core.source_task import SourceTask
from rstream.core.stalls import Stalls
from rstream.core.task import Limits, OutEdge, Task
from rstream.graph import OnError, Operator
from rstream.groupings import Key
from rstream.state.keyed import KeyedState

STEPS_PER_PASS = 2


def _key_of(keys: Mapping[int, Key]) -> Callable[[Any], Any] | None:
    """The key function of an operator's inputs: most often the same for all of them."""
    functions = {number: key.of for number, key in keys.items()}
    first = next(iter(functions.values()), None)
    return first if all(function == first for function in functions.values()) else KeyOfInput(functions)


class TaskHost:
    """The tasks of one worker and their channels to each other."""

    def __init__(
        self,
        worker: str,
        deployment: Deployment,
        copy_logic: Callable[[Operator], Any],
        clock: Callable[[], float],
        limits: Limits,
        on_error: OnError = "fail",
        seed: int = 0,
        incarnation: int = 0,
        backup_interval_s: float | None = None,
        token: str = "",
        savepoint: Savepoint | None = None,
        exact: bool = True,
    ) -> None:
        self.worker, self.limits, self.token = worker, limits, token
        self.clock, self.incarnation = clock, incarnation
        self.backup_interval_s = backup_interval_s
        """How often each task is snapshotted; None: never, and what is processed counts as covered."""
        self.latency = Histogram()
        self.stalls = Stalls()
        self.gaps = Histogram()
        """How long the turns of the host's loop take, waiting left out; the host fills it in."""
        self.out_links: dict[str, OutLink] = {}
        self.in_links: dict[str, InLink] = {}
        self.sources: list[SourceTask] = []
        self.bolts: list[BoltTask] = []
        self.thread_work: list[tuple[BoltTask, Callable[[], None]]] = []
        self.backups = Backups(worker)
        self._receivers: dict[ChannelId, tuple[InChannel, BoltTask]] = {}
        self._unconsumed: dict[ChannelId, tuple[OutChannel, InChannel, BoltTask]] = {}
        """Channels within this worker that retain something, so that no pass looks at the others."""
        self._on_error: OnError = on_error
        self._seed = seed
        self._copy_logic = copy_logic
        self.note: Note | None = None
        """How to remember what a task is at, where the host can do so."""
        self._exact = exact
        """Whether what is lost comes back exactly: else it is only processed again, at least once."""
        self._savepoint = savepoint
        """What the topology began with, if not with nothing."""
        self._beginnings: dict[TaskId, Beginning] = {}
        """Of tasks that are not open yet."""
        self._take_tables(deployment)
        for task in deployment.tasks_of(worker):
            self._add_first(task)
        self.backups.place(deployment, self.by_id)

    def _take_tables(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._domain_of = domains_of(deployment)
        self._has_versions = any(len(versions) > 1 for versions in deployment.versions.values())

    # Building.

    def _add_first(self, id: TaskId) -> Task:
        """A task as it was when the topology began."""
        given = None
        if self._savepoint is not None:
            first = self.deployment.versions_of(id.operator)[0]
            given = beginning_of(self._savepoint, self.deployment.graph, id, first)
        if given is None:
            return self._add_task(id)
        self._beginnings[id] = given
        return self._add_task(id, given.state)

    def _open(self, task: Task, now_s: float) -> None:
        """Open a task, at the beginning or to be restored."""
        task.open(now_s)
        given = self._beginnings.pop(task.id, None)
        if given is not None:
            begin(task, given)
        if self.note is not None and task.id in self.deployment.suspects and isinstance(task, BoltTask):
            be_careful(task, self.note)

    def _add_task(self, id: TaskId, state: KeyedState | None = None) -> Task:
        graph = self.deployment.graph
        operator = graph.by_name[id.operator]
        keys = graph.key_groupings(id.operator)
        parallelism = len(self.deployment.versions_of(id.operator)[0].active)
        common: dict[str, Any] = {
            "id": id,
            "operator": operator,
            "ctx": TaskContext(
                graph.name, id, parallelism, operator.config, _key_of(keys), self._seed, state, self.deployment.run
            ),
            "out_edges": [self._out_edge(number, id) for number in graph.out_edges[id.operator]],
            "peers": {peer: self._out_channel(channel) for peer, channel in self._peers(id)},
            "deployment": self.deployment,
            "limits": self.limits,
            "on_error": operator.on_error or self._on_error,
            "clock": self.clock,
        }
        logic = self._copy_logic(operator)
        if isinstance(logic, Source | Spout):
            source = SourceTask(logic, self.deployment.splits_of(id), **common)
            source.logged = self.backup_interval_s is not None and self._exact
            self.sources.append(source)
            return source
        assert isinstance(logic, Bolt), f"{id}: {logic!r} is neither source nor bolt"
        channels = {channel.id: channel for channel in self._in_channels(id)}
        task: BoltTask
        if isinstance(logic, TransactionalSink):
            task = SinkTask(logic, channels, self.deployment.incarnations.get(id, 0), **common)
        else:
            task = (KeyedBoltTask if keys else BoltTask)(logic, channels, bool(keys), **common)
            task.logged = self.backup_interval_s is not None and self._exact
        if operator.kind == "sink":
            task.latency, task.heard = self._note_latency, self._note_heard
        self.bolts.append(task)
        for channel in channels.values():
            self._receivers[channel.id] = (channel, task)
            if not channel.local:
                sender, _ = self.deployment.ends(channel.id)
                self._in_link(self.deployment.placement[sender]).channels[channel.id] = (channel, task)
        return task

    def _out_edge(self, number: int, id: TaskId) -> OutEdge:
        edge = self.deployment.graph.edges[number]
        channels = [
            self._out_channel(ChannelId(number, id.number, target))
            for target in range(self.deployment.parallelism[edge.target])
        ]
        near = self.deployment.near(id, edge.target)
        born = self.deployment.born_version(id, edge.target)
        first = self.deployment.versions_of(edge.target)[born]
        return OutEdge(number, edge.output, make_router(edge.grouping, channels, near, first), channels, born)

    def _out_channel(self, id: ChannelId) -> OutChannel:
        host = self.deployment.placement[self.deployment.ends(id)[1]]
        channel = OutChannel(id, host == self.worker)
        self._audit(channel)
        # Peers only hand keys over: there is no stream between them that could end.
        channel.ended = id.edge >= len(self.deployment.graph.edges)
        if not channel.local:
            self._out_link(host).channels[id] = channel
        return channel

    def _peers(self, id: TaskId) -> Iterator[tuple[int, ChannelId]]:
        """The other tasks of an operator whose tasks can hand keys to each other, with the channels to them."""
        if id.operator in self.deployment.elastic:
            edge = self.deployment.peer_edge(id.operator)
            for number in range(self.deployment.parallelism[id.operator]):
                if number != id.number:
                    yield number, ChannelId(edge, id.number, number)

    def _in_channels(self, id: TaskId) -> Iterator[InChannel]:
        for channel in self._in_channel_ids(id):
            local = self.deployment.placement[self.deployment.ends(channel)[0]] == self.worker
            yield self._in_channel(channel, local)

    def _in_channel(self, id: ChannelId, local: bool) -> InChannel:
        channel = InChannel(id, local)
        self._audit(channel)
        return channel

    def _audit(self, channel: OutChannel | InChannel) -> None:
        """Channels into sinks that commit have digests on every tier: what they commit cannot be taken back (P9)."""
        receiver = self.deployment.ends(channel.id)[1].operator
        channel.exact = self._exact
        channel.audited = isinstance(self.deployment.graph.by_name[receiver].logic, TransactionalSink)
        if channel.audited:
            channel.since = 0

    def _in_channel_ids(self, id: TaskId) -> Iterator[ChannelId]:
        for number in self.deployment.graph.in_edges[id.operator]:
            sender = self.deployment.graph.edges[number].source
            for source in range(self.deployment.parallelism[sender]):
                yield ChannelId(number, source, id.number)
        for peer, channel in self._peers(id):
            yield ChannelId(channel.edge, peer, id.number)

    def _grow(self, task: Task) -> None:
        """Give a task its channels to and from tasks that the new tables have and the old ones had not."""
        known = {channel.id for channel in task.out_channels}
        targets = [
            ChannelId(number, task.id.number, target)
            for number in self.deployment.graph.out_edges[task.id.operator]
            for target in range(self.deployment.parallelism[self.deployment.graph.edges[number].target])
        ]
        for id in (*targets, *(channel for _, channel in self._peers(task.id))):
            if id not in known:
                channel = self._out_channel(id)
                channel.local, channel.since = False, 0  # until the new task has been started here
                task.add_out_channel(channel)
        if isinstance(task, BoltTask):
            for id in self._in_channel_ids(task.id):
                if id not in task.in_channels:
                    task.in_channels[id] = self._in_channel(id, False)
                    self._receivers[id] = (task.in_channels[id], task)
        task.take_tables(self.deployment)

    def _out_link(self, peer: str) -> OutLink:
        return self.out_links.setdefault(peer, OutLink(peer))

    def _in_link(self, peer: str) -> InLink:
        return self.in_links.setdefault(peer, InLink(peer))

    def _note_latency(self, born_s: float, count: int) -> None:
        self.latency.add(max(0.0, self.clock() - born_s), count)

    def _note_heard(self, channel: ChannelId) -> None:
        self.stalls.heard(channel, self.clock())

    @property
    def tasks(self) -> list[Task]:
        """All tasks, sources first."""
        return [*self.sources, *self.bolts]

    @property
    def by_id(self) -> dict[TaskId, Task]:
        """All tasks by their names."""
        return {task.id: task for task in self.tasks}

    # Running.

    def open(self, now_s: float) -> None:
        """Open every task; bolts first, so that they are ready when sources begin."""
        for task in (*self.bolts, *self.sources):
            self._open(task, now_s)

    def run_pass(self) -> bool:
        """Give every task its turn; True if anything was done."""
        worked = False
        now_s = self.clock()
        for source in self.sources:
            if source.parked:
                continue
            if source.release(now_s):
                worked = True
            if source.stale and source.switch(now_s):
                worked = True
            if source.runnable and (source.replay or now_s >= source.idle_until_s) and source.step(now_s):
                worked = True
            if source.touched:
                self._deliver(source)
        for bolt in self.bolts:
            if bolt.parked:
                continue
            if bolt.release_at_s is not None and bolt.release(now_s):
                worked = True
            if bolt.stale and bolt.switch(now_s):
                worked = True
            if bolt.moving and bolt.can_move():
                work = bolt.move(now_s)
                worked = True
                if work is not None:
                    self.thread_work.append((bolt, work))
            if (
                bolt.next_tick_s is not None or bolt.stamps is not None or bolt.ctx.timers.next_s() is not None
            ) and bolt.fire(now_s):
                worked = True
            for _ in range(STEPS_PER_PASS):
                if not ((bolt.waiting or bolt.replay) and bolt.ready):
                    break
                work = bolt.step(self.clock())
                worked = True
                if work is not None:
                    self.thread_work.append((bolt, work))
                    break
            if bolt.touched:
                self._deliver(bolt)
        return worked

    def thread_done(self, task: BoltTask) -> None:
        """A blocking operator's work has been run on its thread."""
        task.finish_thread()

    def covered(self, channel: InChannel, task: Task) -> int:
        """Up to where an input is covered: by a safe snapshot or commit; without any, by having been processed."""
        return channel.cov if task.commits or self.is_backed_up(task) else channel.cons

    def is_backed_up(self, task: Task) -> bool:
        """What a task has done counts once a safe snapshot covers it; without any, once it is done."""
        return self.backup_interval_s is not None and self.backups.is_protected(task.id)

    def _seal(self, link: OutLink, channel: OutChannel) -> None:
        batch = channel.seal()
        if batch is not None:
            self._unsent(link, channel, batch)

    def _unsent(self, link: OutLink, channel: OutChannel, batch: Batch) -> None:
        if batch.end > channel.sent:
            link.unsent.setdefault(channel.id, []).append(batch)

    def _deliver(self, task: Task) -> None:
        """Hand over what a step left in the out-channels: at once within the worker, else to the link."""
        task.touched = False
        task.end_channels()
        for channel in task.out_channels:
            if channel.local:
                if channel.sealed:
                    for batch in channel.take_sealed():
                        self._deliver_local(channel, batch)
                rest = channel.seal()
                if rest is not None:
                    self._deliver_local(channel, rest)
            elif channel.pending or channel.sealed:
                link = self.out_links.get(self.deployment.placement[self.deployment.ends(channel.id)[1]])
                if link is None:
                    continue  # the receiver is being restored on this very worker; it all goes there once it is back
                for batch in channel.take_sealed():
                    self._unsent(link, channel, batch)
                link.dirty[channel.id] = channel

    def _deliver_local(self, channel: OutChannel, batch: Batch) -> None:
        receiver, task = self._receivers[channel.id]
        channel.sent = channel.next
        if receiver.receive(batch):
            task.counters.received += batch.count if batch.kind < CONTROL else 0
            task.uncovered_bytes += batch.size_bytes
            task.arrived(receiver)
        self._unconsumed[channel.id] = channel, receiver, task

    def _acknowledge_local(self) -> None:
        done = []
        for id, (channel, receiver, task) in self._unconsumed.items():
            covered = self.covered(receiver, task)
            if receiver.cons > channel.ack or covered > channel.base:
                channel.acknowledge(receiver.cons, covered)
                if channel.base == channel.next:
                    done.append(id)
        for id in done:
            del self._unconsumed[id]
