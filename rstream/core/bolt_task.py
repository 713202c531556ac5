"""Tasks with inputs: bolts and sinks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rstream.api import Bolt
from rstream.core.channel import CONTROL, ChannelId, InChannel, size_of
from rstream.core.context import KeyOfInput
from rstream.core.control import BARRIER, END, IDLE, WATERMARK, parse
from rstream.core.event_time import Stamps
from rstream.core.logic import make_run
from rstream.core.order import CONSUME, EXPIRE, GROW, LOOK, TICK, TIMER, Record
from rstream.core.task import STALL_S, STEP_OUTPUT_MAX, STEP_TARGET_S, Task
from rstream.event_time import AFTER_ALL

LATE_S_MAX = 1.0
"""At most so much of the delay of a loop is made good to steps that `ctx.occupy` holds."""


class BoltTask(Task):
    """A task with inputs."""

    moving = False
    """Keys are changing hands; `KeyedBoltTask` sets it."""

    def __init__(self, bolt: Bolt, in_channels: Mapping[Any, InChannel], keyed: bool, **common: Any) -> None:
        super().__init__(**common)
        self.bolt = bolt
        self.in_channels = dict(in_channels)
        self.known: dict[int, int] = dict.fromkeys(self.deployment.graph.in_edges[self.id.operator], 0)
        """For each in-edge how many senders there are, as far as this task has gone by the tables."""
        self.to_drop: dict[ChannelId, int] = {}
        """How many of the elements at the head of a channel are to be dropped."""
        self.waiting: deque[InChannel] = deque()
        self.barrier = 0
        """The checkpoint whose barrier has come on some input."""
        self.barred: set[ChannelId] = set()
        """Those inputs: nothing more is taken from them until the barrier has come on all."""
        self.run = make_run(bolt, self.out, self.ctx, keyed, self.on_error, self._complain)
        self.step_limit = min(64, self.limits.batch_max)
        self.next_tick_s: float | None = None
        self._step: tuple[InChannel | None, int, float, float] | None = None
        self._key_of_input = self.ctx.key_of if isinstance(self.ctx.key_of, KeyOfInput) else None
        self.latency: Callable[[float, int], None] | None = None
        self.heard: Callable[[ChannelId], None] | None = None
        """Told of every channel that something was taken from; only of sinks anybody wants to know."""

    def open(self, now_s: float) -> None:
        """Run the bolt's `open`; the first tick is one interval from now."""
        self.ctx.begin_step(now_s, -1)
        self._call(self.bolt.open, self.ctx)
        self.opened = True
        if self.operator.tick_s is not None:
            self.next_tick_s = now_s + self.operator.tick_s
        if self.operator.event_time is not None:
            self.stamps = Stamps(self.operator.event_time, (), now_s)

    def arrived(self, channel: InChannel) -> None:
        """The channel has something queued that it had not before."""
        if self.ended and not self.replay:
            _let_go(channel)
        elif channel not in self.waiting and channel.id not in self.barred:
            self.waiting.append(channel)

    def _end_outputs(self) -> None:
        super()._end_outputs()
        for channel in self.waiting:
            _let_go(channel)
        self.waiting.clear()

    @property
    def ready(self) -> bool:
        """A step can be taken now. Replaying ignores back-pressure, or two replaying tasks could block each other."""
        if self.held or self.ended:
            return False
        if self.replay:
            return self._replay_ready()
        return bool(self.waiting) and not self.blocked

    def _replay_ready(self) -> bool:
        kind, edge, source, count, _ = self.replay[0]
        if kind not in (CONSUME, EXPIRE):
            return True
        channel: InChannel = self.in_channels[ChannelId(edge, source, self.id.number)]
        return channel.queued >= count

    def next_wake_s(self) -> float | None:
        if self.ended or self.in_thread:
            return None
        if self.release_at_s is not None or self.replay or self.still:
            return self.release_at_s
        looks_s = None if self.stamps is None else self.stamps.next_s()
        wakes = [at for at in (self.next_tick_s, self.ctx.timers.next_s(), looks_s) if at is not None]
        # What is due while a receiver is behind waits for its acknowledgement, not for the time.
        return None if not wakes or self.blocked else min(wakes)

    def queued(self) -> int:
        """Tuples received and not yet processed."""
        return sum(channel.recv - channel.cons for channel in self.in_channels.values())

    def data_channels(self) -> Iterator[InChannel]:
        """The channels that this task waits for: those of senders that it knows, not those of its peers."""
        for id, channel in self.in_channels.items():
            if id.source < self.known.get(id.edge, 0):
                yield channel

    def _switches(self, now_s: float) -> list[Record]:
        """New senders come first: whatever they send depends on versions that were ordered after them."""
        graph, parallelism = self.deployment.graph, self.deployment.parallelism
        grown = [(edge, parallelism[graph.edges[edge].source]) for edge in self.known]
        return [
            *((GROW, edge, count, 0, now_s) for edge, count in grown if count > self.known[edge]),
            *super()._switches(now_s),
        ]

    def _apply_switch(self, record: Record) -> None:
        if record[0] == GROW:
            _, edge, senders, _, now_s = record
            if self.stamps is not None:
                for sender in range(self.known[edge], senders):
                    self.stamps.opens((edge, sender), now_s)
            self.known[edge] = senders
        else:
            super()._apply_switch(record)

    def can_move(self) -> bool:
        """A change of owners has left something to do."""
        return False

    def move(self, now_s: float) -> Callable[[], None] | None:
        """Do a step of that; gives work for a thread as `step` does."""
        raise AssertionError(f"{self.id}: has no keys that could change hands")

    def step(self, now_s: float) -> Callable[[], None] | None:
        """Take one step. For a blocking operator, gives the work to run on a thread; `finish_thread` follows."""
        start_s = now_s  # a replayed step has the clock reading of the first time, but takes its time now
        if self.replay:
            record = self.replay[0]
            kind, edge, source, count, now_s = record
            if kind == LOOK:
                self._look_at(edge, source, count, now_s)
                return None
            if kind in (TICK, TIMER):
                self._fire(kind, now_s)
                return None
            if kind not in (CONSUME, EXPIRE):
                return self._step_again(record)
            channel = self.in_channels[ChannelId(edge, source, self.id.number)]
            taken = channel.consume_exactly(count)
            if channel in self.waiting:
                self.waiting.remove(channel)
        else:
            channel = self.waiting.popleft()
            old = self._expired(channel, now_s) if self.to_drop or self.limits.t_out_s is not None else 0
            taken = channel.consume(old or self.step_limit)
            if taken is None and channel.skip():
                if channel.queue:
                    self.waiting.append(channel)
                return None
            id = channel.id
            kind = EXPIRE if old else CONSUME
            record = (kind, id.edge, id.source, 1 if taken is None else len(taken[0]), now_s)
        if channel.queue and taken is not None:
            self.waiting.append(channel)
        self._begin(record)
        self.lane = record[1:3]
        if taken is None:
            self._control(channel, channel.consume_control(), now_s)
            return None
        values, born_s = taken
        if self._key_of_input is not None:
            self._key_of_input.current = self._key_of_input.by_edge[channel.id.edge]
        if record[0] == EXPIRE:
            self._expire(channel, len(values))
            return None
        self._step = (channel, len(values), born_s, start_s)
        if self.moving:
            values = self._admit(channel, values, born_s)
        if self.operator.blocking:
            self.in_thread = True
            return lambda: self._call(self.run, values)
        self._call(self.run, values)
        self._ran()
        return None

    def _expired(self, channel: InChannel, now_s: float) -> int:
        """How many tuples at the head of a channel are to be dropped: too old, or queued when it was to be emptied."""
        limit_s, batch = self.limits.t_out_s, channel.queue[0]
        count = batch.count - channel.taken
        left = self.to_drop.pop(channel.id, 0) if self.to_drop else 0
        if left > count:
            self.to_drop[channel.id] = left - count
        if batch.kind >= CONTROL or self.operator.kind != "bolt":
            return 0
        return count if left or (limit_s is not None and now_s - batch.born_s > limit_s) else 0

    def empty(self) -> None:
        """Drop all tuples that are queued now, each when its turn comes."""
        self.to_drop = {channel.id: channel.queued for channel in self.in_channels.values() if channel.queue}

    def _expire(self, channel: InChannel, count: int) -> None:
        """Drop tuples that waited too long; they count as consumed, and as failed."""
        channel.cons += count
        self.counters.failed += count
        self.counters.dropped += count
        if self.heard is not None:
            self.heard(channel.id)
        self._replayed()

    def _step_again(self, record: Record) -> Callable[[], None] | None:
        """Replay a step that is neither input nor time."""
        self._begin(record)
        self._apply_switch(record)
        self._replayed()
        return None

    def _admit(self, channel: InChannel, values: list[Any], born_s: float) -> list[Any]:
        """Those of the values that can be processed now."""
        return values

    def finish_thread(self) -> None:
        """The work that `step` gave has been run."""
        self.in_thread = False
        self._ran()

    def _ran(self) -> None:
        assert self._step is not None, "a step is under way"
        _, count, _, start_s = self._step
        took_s = self.clock() - start_s
        if self.ctx.occupied_ms > 0.0:
            self.counters.occupied_s += self.ctx.occupied_ms / 1000
            took_s += self.ctx.occupied_ms / 1000
            self.counters.busy_s += took_s
            # What stands for work elsewhere goes on while this loop waits for its core: being late costs it nothing.
            begun_s = start_s if self.freed_s is None else max(self.freed_s, start_s - LATE_S_MAX)
            self.release_at_s = begun_s + took_s
            self.ctx.occupied_ms = 0.0
        elif self.operator.blocking:
            self.counters.busy_s += took_s
        else:
            self._note_duration(took_s, count)
        if count >= self.step_limit or took_s > 2 * STEP_TARGET_S:
            self._adapt(took_s, count)
        self.freed_s = None
        if self.release_at_s is None:
            self._finish_step()

    def _has_more(self) -> bool:
        return bool(self.waiting) and not self.blocked

    def _adapt(self, took_s: float, count: int) -> None:
        if took_s > 2 * STEP_TARGET_S:
            fitting = int(count * STEP_TARGET_S / took_s)
            # A step that lasted somewhat long may only have been off the CPU: that must not cost ten small steps.
            least = 1 if took_s > STALL_S else self.step_limit // 2
            self.step_limit = max(1, fitting, least)
        elif len(self.out.buffer) > STEP_OUTPUT_MAX:
            self.step_limit = max(1, self.step_limit // 2)
        elif took_s < STEP_TARGET_S / 2 and 2 * len(self.out.buffer) <= STEP_OUTPUT_MAX:
            self.step_limit = min(self.limits.batch_max, self.step_limit * 2)

    def _finish_step(self) -> None:
        assert self._step is not None, "a step is under way"
        channel, count, born_s, _ = self._step
        self._step = None
        out = self.out
        if out.buffer or out.sides or out.direct:
            self._call(self._emit_step, born_s)
        if self.stamps is not None:
            self._look()
        if channel is not None:
            channel.cons += count
            self.counters.processed += count
            if self.heard is not None:
                self.heard(channel.id)
            if self.latency is not None:
                self.latency(born_s, count)

    def _control(self, channel: InChannel, body: bytes, now_s: float) -> None:
        tag, fields = parse(body)
        lane = (channel.id.edge, channel.id.source)
        channel.cons += 1
        if tag == BARRIER:
            self.barrier = fields[0]
            self.barred.add(channel.id)
            self._align()
            return
        if channel.queue:
            self.waiting.append(channel)
        if tag == WATERMARK:
            self.time.took(lane, fields[0])
        elif tag == IDLE:
            self.time.rests(lane)
        elif tag == END:
            channel.ended = True
            if self.stamps is not None:
                self.stamps.ended(lane)
        else:
            self._control_of_peers(channel, tag, fields)
        if not self._end_if_over(now_s):
            self._advance()
            self._look()
            self._replayed()
        if self.barrier:
            self._align()

    @property
    def past_input(self) -> bool:
        return self.ended or all(channel.ended for channel in self.data_channels())

    def _align(self) -> None:
        """Once the barrier has come on every input, pass it on and let all inputs flow again; an end counts as one."""
        if not all(channel.ended or channel.id in self.barred for channel in self.data_channels()):
            return
        number, self.barrier = self.barrier, 0
        barred, self.barred = self.barred, set()
        self.pass_barrier(number)
        for id in sorted(barred):
            if self.in_channels[id].queue:
                self.waiting.append(self.in_channels[id])

    def _control_of_peers(self, channel: InChannel, tag: str, fields: list[Any]) -> None:
        raise AssertionError(f"{self.id}: a {tag} came to a task without keys")

    def _end_if_over(self, now_s: float) -> bool:
        """End after the last input has (T5)."""
        over = not self.ended and all(channel.ended for channel in self.data_channels()) and self._may_end()
        if over:
            self._all_inputs_ended(now_s)
        return over

    def _may_end(self) -> bool:
        """Nothing is left to be done for keys that change hands."""
        return True

    def _all_inputs_ended(self, now_s: float) -> None:
        self._pass_on(AFTER_ALL)
        self._call(self.bolt.on_end, self.out)
        self._call(self._emit_step, now_s)
        self._call(self.bolt.close)
        self._end_outputs()

    def _advance(self) -> None:
        """What the inputs have promised may have moved on: act on it, and pass it on."""
        lanes = [each.id[:2] for each in self.data_channels() if self._counts(each)]
        if not lanes:
            return
        at_s = self.time.advance(lanes)
        idle = self.time.idle.issuperset(lanes)
        if self.time.told_idle and not idle:
            self.time.told_idle = False
            if at_s is None and self.stamps is None:
                self._send_control(WATERMARK, self.time.at_s)
        if at_s is not None:
            self._pass_on(at_s)
        if idle and not self.time.told_idle and self.stamps is None:
            self.time.told_idle = True
            self._send_control(IDLE)

    def _counts(self, channel: InChannel) -> bool:
        """The watermark waits for this channel: it has not ended, or its end does not count yet."""
        return not channel.ended or channel.id[:2] in self.time.ahead

    def _pass_on(self, at_s: float) -> None:
        """Fire the event timers up to a watermark, then let it follow what they emitted."""
        self.ctx.watermark_s = at_s
        while (timer := self.ctx.event_timers.pop_due(at_s)) is not None:
            self.ctx.state.current = timer.key
            self._call(self.bolt.on_event_timer, timer.at_s, timer.name, self.out)
        self._call(self.bolt.on_watermark, at_s, self.out)
        self._call(self._emit_step, self.ctx.now_s)
        if self.stamps is None and at_s != AFTER_ALL:
            self._send_control(WATERMARK, at_s)

    def fire(self, now_s: float) -> bool:
        """Run a due tick or timer; True if there was one."""
        if self.held or self.ended or self.replay or self.still or not self.opened or self.blocked:
            return False
        if self.next_tick_s is not None and now_s >= self.next_tick_s:
            self._fire(TICK, now_s)
            return True
        next_s = self.ctx.timers.next_s()
        if next_s is not None and next_s <= now_s:
            self._fire(TIMER, now_s)
            return True
        looks_s = None if self.stamps is None else self.stamps.next_s()
        if looks_s is not None and looks_s <= now_s:
            return self._look_around(now_s)
        return False

    def _look_around(self, now_s: float) -> bool:
        """An input that has long brought nothing, and has nothing queued either, is idle from now on."""
        assert self.stamps is not None, "asked where watermarks are made"
        for edge, source in self.stamps.overdue(now_s):
            if not self.in_channels[ChannelId(edge, source, self.id.number)].queue:
                self._look_at(edge, source, 1, now_s)
                return True
        if self.stamps.is_due(now_s):
            self._look_at(0, 0, 0, now_s)
            return True
        return False

    def _look_at(self, edge: int, source: int, idle: int, now_s: float) -> None:
        self._begin((LOOK, edge, source, idle, now_s))
        assert self.stamps is not None, "recorded where watermarks are made"
        if idle:
            self.stamps.rests((edge, source))
        self._look()

    def _fire(self, kind: int, now_s: float) -> None:
        self._begin((kind, 0, 0, 0, now_s))
        self.lane = None
        self._step = (None, 0, now_s, self.clock())
        if kind == TICK:
            self.next_tick_s = now_s + (self.operator.tick_s or 0.0)
            self._call(self.bolt.on_tick, self.out)
        else:
            timer = self.ctx.timers.pop_due(now_s)
            assert timer is not None, "a timer record follows a timer that is due"
            self.ctx.state.current = timer.key
            self._call(self.bolt.on_timer, timer.name, self.out)
        self._ran()

    def _own_snapshot(self) -> Any:
        channels = [
            [list(channel.id), channel.cons, [channel.digest_at_consumed(), channel.since], channel.ended]
            for channel in self.in_channels.values()
        ]
        return [channels, self._call(self.bolt.snapshot), [list(each) for each in self.known.items()]]

    def _restore_own(self, own: Any) -> None:
        channels, bolt, known = own[:3]
        self.known = dict(known)
        for id, consumed, digest, ended in channels:
            channel = self.in_channels[ChannelId(*id)]
            channel.go_on_from(consumed, *digest)
            channel.ended = ended
        if bolt is not None:
            self._call(self.bolt.restore, bolt)

    def coverable_bytes(self) -> int:
        """What is still queued is not covered: counting it would let a sender wait for ever at its bound."""
        queued = sum(size_of(batch) for channel in self.in_channels.values() for batch in channel.queue)
        return max(0, self.uncovered_bytes - queued)

    @property
    def at_rest(self) -> bool:
        """Nothing that has arrived, or changes hands, is left to be processed."""
        return not (self.waiting or self.moving)

    def covered_by(self, own: Any) -> None:
        """A snapshot of this task is safe: what it consumed is covered."""
        for id, consumed, _, _ in own[0]:
            channel = self.in_channels[ChannelId(*id)]
            channel.cov = max(channel.cov, consumed)

    def close(self) -> None:
        """Close the bolt of a task that is stopped before its end."""
        if self.opened and not self.ended:
            self.ended = True
            self._call(self.bolt.close)


def _let_go(channel: InChannel) -> None:
    """Count as consumed what came to a task that has ended: its sender is newer, and has only its own end to tell."""
    channel.queue.clear()
    channel.taken = 0
    channel.cons = channel.recv
    channel.digest_consumed = channel.digest
