"""Tasks of transactional sinks: they gather what is to be written, and commit it together with how far they have read.

Such a task has no snapshot and no order log: the vector of (offset, digest) that it committed last is its state. What
it consumed after that is sent again by its senders, which forget nothing before it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rstream import values as codec
from rstream.api import TransactionalSink
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import ChannelId, InChannel

Vector = dict[ChannelId, tuple[int, int, bool]]
"""For each input what was consumed, the digest there, and whether the input has ended."""

BACKLOG_COMMITS = 4
"""A sink takes no more once so many commits' worth of records wait: memory stays bounded while a store is slow."""


@dataclass(slots=True)
class Commit:
    """What was consumed up to one moment and is to be committed as one transaction."""

    records: list[Any]
    vector: Vector
    covers_bytes: int
    births: list[tuple[float, int]]
    """When the source tuples were read, and how many, for the latency."""


class SinkTask(BoltTask):
    """A task whose effects are outside, in transactions."""

    commits = True

    def __init__(
        self, sink: TransactionalSink, in_channels: Mapping[Any, InChannel], token: int, **common: Any
    ) -> None:
        super().__init__(sink, in_channels, False, **common)
        self.sink, self.token = sink, token
        self.out.go_fast()
        self.records: list[Any] = []
        self.births: list[tuple[float, int]] = []
        self.since_s: float | None = None
        """When the oldest thing that no commit covers yet was consumed."""
        self.frozen: Commit | None = None
        self.resumed = False
        self.progress: Vector = {}
        """What the store held when this task was started."""
        self.two_phase = False
        """It commits with checkpoints: what a barrier set apart, once all tasks' states are in the store."""

    def open(self, now_s: float) -> None:
        """Claim this task's place in the store, and go on from what is committed there."""
        super().open(now_s)
        progress = self._call(self.sink.claim, self.token)
        if progress is not None:
            self.resumed = True
            self.progress = _vector(progress)
            if not self.two_phase:
                self._go_on_from(self.progress)

    def _go_on_from(self, vector: Vector) -> None:
        for id, (consumed, digest, ended) in vector.items():
            channel = self.in_channels.get(id)
            if channel is not None:
                channel.recv = channel.cons = channel.cov = consumed
                channel.digest = channel.digest_consumed = digest
                channel.ended = ended
        self._end_if_committed()

    @property
    def ready(self) -> bool:
        """As for any bolt, unless too much waits for its commit; a barrier that commits it may be behind more of it."""
        bounded = self.two_phase or len(self.records) < BACKLOG_COMMITS * self.sink.commit_records
        return bounded and super().ready

    # Steps.

    def _emit_step(self, born_s: float) -> None:
        self.records += self.out.buffer
        self.out.clear()

    def _finish_step(self) -> None:
        assert self._step is not None, "a step is under way"
        channel, count, born_s, _ = self._step
        self._step = None
        self._emit_step(born_s)
        if channel is not None:
            channel.cons += count
            self.counters.processed += count
            self.births.append((born_s, count))
            if self.heard is not None:
                self.heard(channel.id)
        self._note_consumed()

    def _note_consumed(self) -> None:
        if self.since_s is None:
            self.since_s = self.clock()

    def _all_inputs_ended(self, now_s: float) -> None:
        self._call(self.bolt.on_end, self.out)
        self._emit_step(now_s)

    def _control(self, channel: InChannel, body: bytes, now_s: float) -> None:
        super()._control(channel, body, now_s)
        self._note_consumed()

    def _control_of_peers(self, channel: InChannel, tag: str, fields: list[Any]) -> None:
        """A sink has no keys to hand over: what was sent to it is written here, whoever gets a key's next tuple."""

    # Commits.

    def due_s(self) -> float | None:
        """When the next commit should be made ready; None while one is, or nothing was consumed."""
        if self.since_s is None or self.frozen is not None or self.held or self.two_phase:
            return None
        full = len(self.records) >= self.sink.commit_records
        retained = self.uncovered_bytes > self.limits.retained_bytes // 2
        if full or retained or self.still or all(channel.ended for channel in self.in_channels.values()):
            return 0.0
        return self.since_s + self.sink.commit_interval_s

    def freeze(self) -> Commit:
        """Set apart what was consumed so far; it is committed once that is allowed."""
        assert self.frozen is None, f"{self.id}: one commit at a time"
        assert not self.held, f"{self.id}: a commit is set apart between two steps"
        vector = {
            id: (channel.cons, channel.digest_at_consumed(), channel.ended) for id, channel in self.in_channels.items()
        }
        self.frozen = Commit(self.records, vector, self.coverable_bytes(), self.births)
        self.records, self.births, self.since_s = [], [], None
        return self.frozen

    def commit(self) -> None:
        """Write what was set apart, in one transaction. A refusal ends this process: nothing here counts any more."""
        frozen = self.frozen
        assert frozen is not None, "a commit is set apart first"
        self._call(self.sink.commit, frozen.records, _progress(frozen.vector), self.token)
        self.frozen = None
        self.uncovered_bytes -= frozen.covers_bytes
        for id, (consumed, _, _) in frozen.vector.items():
            self.in_channels[id].cov = consumed
        if self.latency is not None:
            for born_s, count in frozen.births:
                self.latency(born_s, count)
        self._end_if_committed()

    def _end_if_committed(self) -> None:
        channels = self.in_channels.values()
        if not self.ended and all(each.ended and each.cov == each.cons for each in channels):
            self._call(self.bolt.close)
            self._end_outputs()

    @property
    def at_rest(self) -> bool:
        """Whatever was consumed is committed too; how far it has read is nothing that a savepoint holds."""
        return super().at_rest and not self.records and self.frozen is None

    def oldest_born_s(self) -> float | None:
        """When the oldest tuple that waits for its commit was read."""
        births = [*(self.frozen.births if self.frozen is not None else ()), *self.births]
        return min((born_s for born_s, _ in births), default=None)

    def _own_snapshot(self) -> Any:
        """At a barrier: what is to be committed once the checkpoint is, with what an earlier one that was given up, or
        whose commit was not heard of, has set apart."""
        if not self.two_phase:
            return super()._own_snapshot()
        if self.frozen is not None:
            self.records = self.frozen.records + self.records
            self.births = self.frozen.births + self.births
            self.frozen = None
        frozen = self.freeze()
        return [*super()._own_snapshot(), frozen.records]

    def _restore_own(self, own: Any) -> None:
        if self.two_phase:
            self._restore_checkpoint(own)
        # The store knows better than any snapshot; only a store that has never heard of this run does not.
        elif not self.resumed:
            super()._restore_own(own)

    def _restore_checkpoint(self, own: Any) -> None:
        """Go back to a checkpoint. It was committed, so what was set apart at it is committed too, unless it was."""
        super()._restore_own(own)
        self.records = own[-1]
        frozen = self.freeze()
        if frozen.vector == self.progress:
            self.frozen = None
            self._end_if_committed()
        else:
            self.commit()


def _progress(vector: Vector) -> bytes:
    return codec.encode_one([[*id, consumed, digest, ended] for id, (consumed, digest, ended) in vector.items()])


def _vector(progress: bytes) -> Vector:
    return {
        ChannelId(edge, source, target): (consumed, digest, ended)
        for edge, source, target, consumed, digest, ended in codec.decode_one(progress)
    }
