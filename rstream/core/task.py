"""The task machine: one instance of an operator, stepping through its input without doing any I/O itself.

A step takes what is next on one in-channel (or a due tick, timer or source read), runs the user's code on it, and
routes what came out into the out-channels. A step may end later than it began: `ctx.occupy` holds it for a time,
and a blocking operator runs its code on a thread of the host's; meanwhile the task takes no other step.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rstream import values as codec
from rstream.api import DEAD_LETTERS, DEFAULT_OUTPUT
from rstream.core.channel import Batch, ChannelId, OutChannel, TaskId
from rstream.core.context import Collector, TaskContext, fixed
from rstream.core.control import BARRIER, IDLE, MARK, WATERMARK, control
from rstream.core.deployment import Deployment
from rstream.core.event_time import InputTime, Lane, Stamps
from rstream.core.order import SWITCH, OrderLog, Record
from rstream.core.router import Router
from rstream.errors import OperatorError, RStreamError, SinkFenced
from rstream.graph import OnError, Operator
from rstream.groupings import Key

STEP_TARGET_S = 0.005
"""A step takes so few tuples that it lasts about this long, so that no task keeps the others waiting."""
STEP_OUTPUT_MAX = 2048
"""A step takes so few tuples that it emits about this many at most: they are then still in the processor's cache when
the next task takes them."""
LAST_VERSION = 1 << 60
"""Where a task that has ended stands: it is as good as any version."""
SWEEP_CELLS = 64
STALL_S = 0.1
"""A step that lasted longer than this is slow by itself, whatever else the machine does."""


@dataclass(slots=True)
class Limits:
    """What bounds a task: sizes in tuples and bytes."""

    batch_max: int = 1024
    window: int = 8192
    window_bytes: int = 16 << 20
    retained_bytes: int = 64 << 20
    """At half of this much uncovered input a snapshot is cut early; at all of it in one channel the sender waits."""
    slow_call_ms: float = 1000.0
    slice_s: float = 0.001
    """So long a worker packs or loads snapshots before its tasks have their turn again."""
    slice_items: int = 64
    """About so many pieces of state are packed at once, to begin with."""
    stripe_bytes: int = 1 << 18
    """So many bytes are erasure-coded at once."""
    t_out_s: float | None = None
    """A bolt drops what is older than this when its turn comes."""
    q_size: int | None = None
    """A source drops what it reads while so much of its output is waiting."""


@dataclass(slots=True)
class Counters:
    """What a task has done, for the monitor."""

    received: int = 0
    processed: int = 0
    emitted: int = 0
    failed: int = 0
    dropped: int = 0
    """The part of the failed that was dropped for its age or for want of room."""
    busy_s: float = 0.0
    occupied_s: float = 0.0
    """The part of the busy time that `ctx.occupy` stood for."""


@dataclass(slots=True)
class Complaint:
    """Something that a person should know of: an exception in user code, or a slow call."""

    task: TaskId
    cause: str
    traceback: str = ""
    value: str = ""
    count: int = 1


@dataclass(slots=True)
class OutEdge:
    """One out-edge of a task: which output it takes, its router over its channels, and the version it routes by."""

    number: int
    output: str
    router: Router
    channels: list[OutChannel] = field(default_factory=list)
    version: int = 0


class Task(ABC):
    """The base of bolt and source tasks: output, back-pressure, errors and the end of the stream."""

    commits = False
    """What it commits outside is its state: it has no snapshots."""

    def __init__(
        self,
        id: TaskId,
        operator: Operator,
        ctx: TaskContext,
        out_edges: Sequence[OutEdge],
        peers: Mapping[int, OutChannel],
        deployment: Deployment,
        limits: Limits,
        on_error: OnError,
        clock: Callable[[], float],
    ) -> None:
        self.id, self.operator, self.ctx, self.limits = id, operator, ctx, limits
        self.deployment = deployment
        self.stale = True
        """The tables may name versions or senders that this task does not know yet."""
        self.news = False
        """It has come to another version, or has ended, and nobody has been told."""
        self.out_edges = list(out_edges)
        self.peers = dict(peers)
        """The channels to the other tasks of the operator, by their numbers."""
        self.bounded = [channel for edge in self.out_edges for channel in edge.channels]
        """The channels that hold this task back when they are full: those to peers do not, or two could wait for each
        other."""
        self.out_channels = [*self.bounded, *self.peers.values()]
        self.by_output: dict[str, list[Router]] = {}
        for edge in self.out_edges:
            self.by_output.setdefault(edge.output, []).append(edge.router)
        self.on_error: OnError = on_error
        self.clock = clock
        self.out = Collector()
        self._changeable = False
        self.counters = Counters()
        self.complaints: deque[Complaint] = deque(maxlen=100)
        self.touched = False
        self.opened = self.ended = False
        self.still = False
        """A savepoint is being made: nothing is read and no time passes, what has arrived is processed."""
        self.parked = False
        """It is about to go on in another worker: it takes no step here."""
        self.log = OrderLog()
        self.logged = False
        """Whether the order of steps is written down, as recovery needs it."""
        self.position = 0
        """The place of the next step in the order of steps."""
        self.replay: deque[Record] = deque()
        self._caught_up = False
        self.uncovered_bytes = 0
        """About how much input came since the last safe snapshot: senders still retain it."""
        self.release_at_s: float | None = None
        self.freed_s: float | None = None
        """When the last held step should have ended, if the next one could have begun right then."""
        self.in_thread = False
        self.time = InputTime()
        self.stamps: Stamps | None = None
        """Where this task makes watermarks itself."""
        self.at_barrier: Callable[[Task, int], None] | None = None
        """Cuts this task's state for a checkpoint; where there are checkpoints."""
        self.lane: Lane | None = None
        """Of which input the values of this step are, or came."""

    # Order.

    def _begin(self, record: Record) -> None:
        """A step begins: its record is written first, unless it is being replayed."""
        if self.replay:
            self.replay.popleft()
            self._caught_up = not self.replay
        elif self.logged:
            self.log.append(record)
        self.ctx.begin_step(record[4], self.position)
        if self.ctx.state.expires:
            # As many as this step may write, and some: what expires goes as fast as it comes.
            self.ctx.state.sweep(2 * record[3] + SWEEP_CELLS)
        self.position += 1

    # What the worker asks.

    @property
    def held(self) -> bool:
        """A step has begun and not ended."""
        return self.in_thread or self.release_at_s is not None

    @property
    def blocked(self) -> bool:
        """Some receiver is so far behind that this task must wait for it."""
        limits = self.limits
        for channel in self.bounded:
            if (
                channel.next + len(channel.pending) - channel.ack > limits.window
                or channel.bytes_unacked > limits.window_bytes
                or channel.bytes_retained > limits.retained_bytes
            ):
                return True
        return False

    def next_wake_s(self) -> float | None:
        """When the task will have something to do although nothing arrives."""
        return self.release_at_s

    def release(self, now_s: float) -> bool:
        """End a step that `ctx.occupy` held, once its time is over."""
        if self.release_at_s is None or now_s < self.release_at_s:
            return False
        self.freed_s = self.release_at_s if self._has_more() else None
        self.release_at_s = None
        self._finish_step()
        return True

    def _has_more(self) -> bool:
        """The next step could begin at once."""
        return False

    # Changes of who gets what.

    def take_tables(self, deployment: Deployment) -> None:
        """There may be new versions and new tasks; `switch` follows them up between two steps."""
        self.deployment = deployment
        self.stale = self.news = True

    def add_out_channel(self, channel: OutChannel) -> None:
        """A new task can be reached."""
        self.out_channels.append(channel)
        for edge in self.out_edges:
            if edge.number == channel.id.edge:
                edge.channels.append(channel)
                self.bounded.append(channel)
                return
        self.peers[channel.id.target] = channel

    def switch(self, now_s: float) -> bool:
        """Follow up what the tables say, before any other step; True if there was something."""
        if self.held or self.replay or not self.opened:
            return False
        self.stale = False
        if self.ended:
            return False
        records = self._switches(now_s)
        for record in records:
            self._begin(record)
            self._apply_switch(record)
        return bool(records)

    def _switches(self, now_s: float) -> list[Record]:
        """The versions that out-edges have yet to go to, one after another and none skipped (T3)."""
        return [
            (SWITCH, edge.number, version, 0, now_s)
            for edge in self.out_edges
            for version in range(edge.version + 1, len(self._versions(edge)))
        ]

    def _versions(self, edge: OutEdge) -> Sequence[Any]:
        return self.deployment.versions_of(self.deployment.graph.edges[edge.number].target)

    def _apply_switch(self, record: Record) -> None:
        """Route an out-edge by another version; the receivers of a keyed one find a mark in every channel (K1)."""
        _, number, version, _, now_s = record
        edge = next(edge for edge in self.out_edges if edge.number == number)
        known = self._versions(edge)[edge.version].tasks
        self._route_by(edge, version)
        if isinstance(self.deployment.graph.edges[number].grouping, Key):
            spans = [list(span) for span in self._versions(edge)[version].spans]
            self._send_to_known([edge], control(MARK, version, spans), now_s)
        if self.time.told_idle if self.stamps is None else self.stamps.told_idle:
            # Tasks that are new were not there when the others were told not to wait for this one.
            self._send_to_known([edge], control(IDLE), now_s, since=known)
        self.touched = True

    def reached(self) -> dict[str, int]:
        """For each operator whose versions this task follows, how far it has come."""
        targets = {self.deployment.graph.edges[edge.number].target: edge.version for edge in self.out_edges}
        return dict.fromkeys(targets, LAST_VERSION) if self.ended else targets

    def _route_by(self, edge: OutEdge, version: int) -> None:
        edge.version = version
        self.news = True
        edge.router.apply(self._versions(edge)[version], edge.channels)

    # Snapshots.

    @property
    def knows_receivers(self) -> bool:
        """At least once: the offsets of what it has sent since it was restored are certain; else it cannot be cut."""
        return all(channel.restored_at is None for channel in self.out_channels)

    def coverable_bytes(self) -> int:
        """How much of `uncovered_bytes` a snapshot cut now covers."""
        return self.uncovered_bytes

    @abstractmethod
    def covered_by(self, own: Any) -> None:
        """A snapshot with these contents is safe: what it covers need not be sent or read again."""

    def snapshot(self, output: Mapping[ChannelId, int] | None = None) -> dict[str, Any]:
        """What starting this task anew needs beside its keyed state. Between two steps only.

        `output` says for each out-channel from which offset on its retained batches are wanted; left out, all are.
        The batches are references: they never change, and are encoded when their turn comes.
        """
        assert not self.held, f"{self.id}: a snapshot is cut between steps"
        since = output or {}
        return {
            "position": self.position,
            "ended": self.ended,
            "routers": [[edge.version, edge.router.state()] for edge in self.out_edges],
            "outs": [_out_channel_content(channel, since.get(channel.id, 0)) for channel in self.out_channels],
            "own": self._own_snapshot(),
            "metrics": dict(self.ctx.metrics.values),
            "time": [self.time.state(), None if self.stamps is None else self.stamps.state()],
        }

    def restore(self, content: Mapping[str, Any] | None, records: Sequence[Record]) -> None:
        """Go back to a snapshot, or to the beginning, and replay these records from there. After `open`.

        The keyed state of the snapshot was given to the task when it was made.
        """
        position = 0
        if content is not None:
            position = content["position"]
            self.ended = content["ended"]
            for edge, (version, state) in zip(self.out_edges, content["routers"], strict=True):
                if version != edge.version:
                    self._route_by(edge, version)
                edge.router.restore(state)
            channels = {channel.id: channel for channel in self.out_channels}
            for id, *part in content["outs"]:
                # Channels to tasks that are newer than the snapshot have carried nothing yet.
                _restore_out_channel(channels[ChannelId(*id)], part)
            self._restore_own(content["own"])
            self.ctx.metrics.values = dict(content["metrics"])
            self._restore_time(*content["time"])
        self.position = position
        self.stale = True
        self.log = OrderLog(position, records)
        self.replay = deque(self.log.records)
        for channel in self.out_channels:
            channel.replaying = bool(self.replay)
            channel.restored_at = None if channel.exact else channel.next
        if not self.replay:
            self.end_channels()
        self.touched = True

    # Checkpoints.

    @property
    def past_input(self) -> bool:
        """Nothing can come any more, not even a barrier."""
        return self.ended

    def pass_barrier(self, number: int) -> None:
        """Everything before this moment belongs to the checkpoint, and nothing after it."""
        assert self.at_barrier is not None, "barriers come where there are checkpoints"
        self._send_to_known(self.out_edges, control(BARRIER, number), self.clock())
        self.at_barrier(self, number)

    def checkpoint(self) -> dict[str, Any]:
        """As `snapshot`, right after a barrier: its receivers' states hold all that was sent."""
        outs = [
            [list(each.id), each.next, [each.since, each.next, each.digest], [], [], each.ended]
            for each in self.out_channels
        ]
        return {**self.snapshot({each.id: each.next for each in self.out_channels}), "outs": outs}

    @abstractmethod
    def _own_snapshot(self) -> Any:
        """What bolts and sources have each of their own in a snapshot."""

    @abstractmethod
    def _restore_own(self, own: Any) -> None:
        """Take back what `_own_snapshot` gave."""

    def _restore_time(self, time: Any, stamps: Any) -> None:
        self.time.restore(time)
        self.ctx.watermark_s = self.time.at_s
        if self.stamps is not None:
            self.stamps.restore(stamps, self.clock())

    # Event time.

    def _stamp(self, values: list[Any]) -> None:
        """Note the times of what the step emits; receivers that were told not to wait learn first that they must."""
        stamps = self.stamps
        if stamps is None or self.lane is None:
            return
        stamps.saw(self.lane, values, self.ctx.now_s)
        if stamps.told_idle:
            stamps.told_idle = False
            self._send_control(WATERMARK, stamps.sent)

    def _look(self) -> None:
        """At the end of a recorded step: send the watermark that is due, or that this task has gone idle."""
        stamps = self.stamps
        if stamps is None:
            return
        at_s = stamps.due(self.ctx.now_s)
        if at_s is not None:
            self._send_control(WATERMARK, at_s)
        if stamps.all_idle and not stamps.told_idle:
            stamps.told_idle = True
            self._send_control(IDLE)

    def _send_control(self, tag: str, *fields: Any) -> None:
        self._send_to_known(self.out_edges, control(tag, *fields), self.ctx.now_s)

    def _send_to_known(self, edges: Iterable[OutEdge], body: bytes, now_s: float, since: int = 0) -> None:
        """To all receivers that the present versions know: a replay finds later ones too, and they got nothing.

        `since` leaves the first so many out.
        """
        for edge in edges:
            tasks = self._versions(edge)[edge.version].tasks
            for channel in edge.channels:
                if since <= channel.id.target < tasks:
                    channel.control(body, now_s)
        self.touched = True

    # Output.

    def _emit_step(self, born_s: float) -> None:
        """Route what the step emitted."""
        out = self.out
        if out.buffer:
            if self.stamps is not None:
                self._stamp(out.buffer)
            self._route(DEFAULT_OUTPUT, out.buffer, born_s, codec.FLAT if out.flat == len(out.buffer) else None)
            out.buffer.clear()
            out.flat = 0
        if out.sides:
            for output, side in out.sides.items():
                self._route(output, side, born_s)
            out.sides.clear()
        if out.direct:
            self._route_direct(born_s)
            out.direct.clear()
        self.touched = True
        self._replayed()

    def _replayed(self) -> None:
        """After the last step of a replay, receivers can have no more than was sent."""
        if self._caught_up:
            self._caught_up = False
            for channel in self.out_channels:
                channel.replaying = False

    def _route_direct(self, born_s: float) -> None:
        """Route what names its receiver: each receiver's values at once, in their order."""
        by_receiver: dict[tuple[str, int], list[Any]] = {}
        for output, task, value in self.out.direct:
            by_receiver.setdefault((output, task), []).append(value)
        self.counters.emitted += len(self.out.direct)
        for (output, task), values in by_receiver.items():
            kind = codec.kind_of(values)
            for router in self.by_output.get(output, ()):
                router.push_direct(task, values, kind, born_s)

    def _route(self, output: str, values: list[Any], born_s: float, kind: int | None = None) -> None:
        routers = self.by_output.get(output)
        if not values:
            return
        self.counters.emitted += len(values)
        if routers is None:
            if output != DEFAULT_OUTPUT and output not in self.operator.outputs:
                self._check_output(output)
            return
        if kind is None:
            kind = codec.kind_of(values)
        if output == DEFAULT_OUTPUT:
            if kind != codec.GENERAL:
                if self.out.careful and not self._changeable:
                    self.out.go_fast()
            elif not self._changeable:
                self._changeable = True
                if not self.out.careful:
                    values = [fixed(value) for value in values]
                    self.out.go_careful()
        for router in routers:
            router.push(values, kind, born_s)

    def _check_output(self, output: str) -> None:
        if output != DEAD_LETTERS:
            known = ", ".join(self.operator.outputs) or "none; declare them with outputs=(...)"
            raise ValueError(f"emitted to output {output!r}, which is not declared; declared: {known}")

    @abstractmethod
    def _finish_step(self) -> None:
        """End a step: route its output, and count it."""

    @abstractmethod
    def open(self, now_s: float) -> None:
        """Run the user's `open`."""

    @abstractmethod
    def close(self) -> None:
        """Run the user's `close` for a task that is stopped before its end."""

    def _end_outputs(self) -> None:
        self.ended = self.touched = self.news = True

    def end_channels(self) -> None:
        """Once ended, tell so in every channel that has not heard it: receivers may be newer than the end."""
        if self.ended:
            for channel in self.out_channels:
                if not channel.ended:
                    channel.end(self.clock())

    # User code.

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call user code; an exception becomes an `OperatorError` that names step and task."""
        try:
            return function(*arguments)
        except RStreamError as error:
            if isinstance(error, OperatorError | SinkFenced):
                raise
            raise self._operator_error(error, "") from None
        except (Exception, SystemExit) as error:  # user code may fail its step, never end the process
            raise self._operator_error(error, "") from None

    def _operator_error(self, error: BaseException, value: str) -> OperatorError:
        cause = str(error) if isinstance(error, RStreamError) else f"{type(error).__name__}: {error}"
        return OperatorError(
            cause,
            step=self.id.operator,
            task=self.id.number,
            node="",
            # An error of ours says all there is to say; the traceback of user code leads to the line at fault.
            traceback="" if isinstance(error, RStreamError) else "".join(traceback.format_exception(error)),
            value=value,
        )

    def _complain(self, error: BaseException, value: Any) -> None:
        self.counters.failed += 1
        shown = repr(value)
        failure = self._operator_error(error, shown[:500])
        self.complaints.append(Complaint(self.id, failure.cause, failure.traceback, failure.value))

    def _note_duration(self, took_s: float, tuples: int) -> None:
        self.counters.busy_s += took_s
        if took_s * 1000 > self.limits.slow_call_ms:
            text = (
                f"slow call: {took_s * 1000:.0f} ms for {tuples} tuple{'s' * (tuples != 1)}, and every task of this "
                "worker waited; mark the step blocking=True to run it on a thread of its own"
            )
            self.complaints.append(Complaint(self.id, text))


def _out_channel_content(channel: OutChannel, since: int) -> list[Any]:
    assert not channel.pending or not channel.local, "local channels are sealed after each step"
    batches = [batch for batch in channel.log if batch.first >= since]
    pending: list[Any] = []
    if channel.pending:
        kind, body = codec.encode(channel.pending)
        pending = [len(channel.pending), kind, body, channel.pending_born_s]
    return [list(channel.id), channel.base, channel.mark, batches, pending, channel.ended]


def _restore_out_channel(channel: OutChannel, content: Sequence[Any]) -> None:
    channel.base, mark, batches, pending, ended = content
    channel.take_mark(mark)
    channel.next, channel.sent = channel.base, 0
    channel.rewind(channel.base)
    after = [[channel.next + sum(batch[1] for batch in batches), *pending]] if pending else []
    for first, count, kind, body, born_s in (*batches, *after):
        channel.adopt(Batch(first, count, kind, None, body, born_s))
    channel.began, channel.bytes_total = channel.next, 0
    channel.ended = ended
