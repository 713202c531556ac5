"""Tasks that read splits of a source, or call a spout."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from rstream.api import END, Reader, Source, Spout
from rstream.core.channel import rough_bytes
from rstream.core.event_time import Stamps
from rstream.core.order import LOOK, READ, SKIP, SPLIT_END, SWITCH
from rstream.core.task import STEP_TARGET_S, Task
from rstream.errors import ProtocolError


class SourceTask(Task):
    """A task that reads splits of a source, or calls a spout."""

    def __init__(self, source: Source | Spout, splits: Sequence[str], **common: Any) -> None:
        super().__init__(**common)
        self.source = source
        self.splits = list(splits)
        self.readers: dict[int, Reader] = {}
        self.turn: deque[int] = deque(range(len(self.splits)))
        """The splits that have not ended, the next one to read first."""
        self.paused = False
        self.idle_until_s = 0.0
        self.read_limit = 16
        self._tuple_bytes = 1.0
        self._born_s = 0.0
        self._recorded = self._draining = self._skipping = False

    def open(self, now_s: float) -> None:
        """Open the spout; readers are opened when they are first read."""
        self.ctx.begin_step(now_s, -1)
        if isinstance(self.source, Spout):
            self._call(self.source.open, self.ctx)
            self.turn = deque([0])
        else:
            for split in self.turn:
                self._reader(split, None)
        if self.operator.event_time is not None:
            self.stamps = Stamps(self.operator.event_time, ((split, 0) for split in self.turn), now_s)
        self.opened = True

    def _reader(self, split: int, offset: Any) -> None:
        assert isinstance(self.source, Source), "spouts have no readers"
        self.readers[split] = self._call(self.source.reader, self.splits[split], offset)

    @property
    def blocked(self) -> bool:
        """As for any task, and while `max_pending` tuples are not yet processed by the next steps."""
        pending = self.operator.max_pending
        if pending is not None and sum(channel.outstanding for channel in self.bounded) >= pending:
            return True
        return Task.blocked.fget(self)  # type: ignore[attr-defined, no-any-return]

    @property
    def runnable(self) -> bool:
        """The source could be read, were it not for the time."""
        if not self.opened or self.ended or self.held:
            return False
        if self.replay:
            return self._can_replay()
        return not (self.paused or self.still or (self.blocked and self.limits.q_size is None))

    def _can_replay(self) -> bool:
        """The values of the next step of the replay are there: those of a pushed source come from their sender (T2)."""
        kind, split, part, count, _ = self.replay[0]
        return kind not in (READ, SKIP) or split not in self.readers or self.readers[split].ready(part, count)

    def next_wake_s(self) -> float | None:
        if self.release_at_s is not None:
            return self.release_at_s
        if not self.runnable:
            return None
        return self.idle_until_s if not self.replay else 0.0

    def step(self, now_s: float) -> bool:
        """Read once; True if anything came of it."""
        if self._draining and not self.replay:
            self.drain()
            return True
        start_s = self.clock()
        before = self.position
        self._skipping = False
        if self.replay:
            record = self.replay[0]
            kind, split, part, count, now_s = record
            self._begin(record)
            if kind == SWITCH:
                self._apply_switch(record)
                self._replayed()
                return True  # as `switch` did: it reads nothing, and no watermark is due before the next read
            if kind == LOOK:
                self._rest(split, part, count)
            else:
                self._skipping = kind == SKIP
                self._read_again(kind, split, part, count)
        else:
            self._read_next(now_s)
        self._recorded = self.position > before
        if self._skipping:
            self._skip()
        count = self.out.count()
        if self.out.buffer:
            self._tuple_bytes = float(rough_bytes(self.out.buffer[0]))
        took_s = self.clock() - start_s
        self._note_duration(took_s, count)
        if count >= self.read_limit and took_s < STEP_TARGET_S / 2:
            self.read_limit = min(self.limits.batch_max, self.read_limit * 2)
        elif took_s > 2 * STEP_TARGET_S:
            self.read_limit = max(1, self.read_limit // 2)
        self.counters.processed += count
        self._born_s = now_s
        if self.ctx.occupied_ms > 0.0:
            self.counters.occupied_s += self.ctx.occupied_ms / 1000
            self.release_at_s = start_s + self.ctx.occupied_ms / 1000
            self.ctx.occupied_ms = 0.0
        else:
            self._finish_step()
        if not self.turn:
            self._end()
        return count > 0 or self._skipping or self.ended

    def _limit(self) -> int:
        """How much to read: by time as all steps, by the window in bytes, and by `max_pending`."""
        for channel in self.bounded:
            if channel.log:
                self._tuple_bytes = max(1.0, channel.bytes_retained / (channel.next - channel.base))
        limit = min(self.read_limit, int(self.limits.window_bytes / self._tuple_bytes))
        if self.operator.max_pending is not None:
            limit = min(limit, self.operator.max_pending - sum(channel.outstanding for channel in self.bounded))
        return max(1, limit)

    def _room(self) -> int | None:
        """How much more `q_size` lets wait; none at all where the receivers take no more. None without such a bound."""
        if self.limits.q_size is None:
            return None
        return 0 if self.blocked else self.limits.q_size - sum(channel.outstanding for channel in self.bounded)

    def _skip(self) -> None:
        """Drop what was just read: the newest go where there is no room."""
        count = self.out.count()
        self.out.clear()
        self.counters.failed += count
        self.counters.dropped += count

    def _finish_step(self) -> None:
        self._call(self._emit_step, self._born_s)
        if self._recorded:
            self._look()

    def _read_next(self, now_s: float) -> None:
        """Read the next split that has something, and write down which and how much."""
        limit = self._limit()
        room = self._room()
        self._skipping = room is not None and room <= 0
        if room is not None and room > 0:
            limit = min(limit, room)
        idle_s: float | None = None
        for split in list(self.turn):
            values = self._read(split, limit, now_s)
            if values is None:
                self._begin((SPLIT_END, split, 0, 0, now_s))
                self._end_split(split)
                continue
            self.turn.rotate(-1)
            if values:
                return
            every_s = self.readers[split].idle_s if self.readers else Reader.idle_s
            idle_s = every_s if idle_s is None else min(idle_s, every_s)
        if idle_s is not None:
            self.idle_until_s = now_s + idle_s
            self._look_around(now_s)

    def _look_around(self, now_s: float) -> None:
        """Nothing was read: a split that has long brought nothing is idle from now on, and a watermark may be due."""
        if self.stamps is None:
            return
        for split, part in self.stamps.overdue(now_s):
            self._begin((LOOK, split, part, 1, now_s))
            self._rest(split, part, 1)
            self._look()
        if self.stamps.is_due(now_s):
            self._begin((LOOK, 0, 0, 0, now_s))

    def _rest(self, split: int, part: int, idle: int) -> None:
        assert self.stamps is not None, "recorded where watermarks are made"
        if idle:
            self.stamps.rests((split, part))

    def _read(self, split: int, limit: int, now_s: float) -> int | None:
        """Read one split into the output; gives how much, None at its end."""
        if isinstance(self.source, Spout):
            self._begin((SKIP if self._skipping else READ, split, 0, limit, now_s))
            self.lane = (split, 0)
            return self._call_spout(limit)
        reader = self.readers[split]
        reader.now_s = now_s
        values = self._call(reader.read, limit)
        if values:
            self._begin((SKIP if self._skipping else READ, split, reader.part, len(values), now_s))
            self.lane = (split, 0)
            self.out.extend(values)
        return None if values is None else len(values)

    def _call_spout(self, limit: int) -> int | None:
        assert isinstance(self.source, Spout), "called for spouts"
        emitted = 0
        while emitted < limit:
            if self._call(self.source.next_tuple, self.out) is END:
                return None
            before, emitted = emitted, self.out.count()
            if emitted == before:
                break
        return emitted

    def _read_again(self, kind: int, split: int, part: int, count: int) -> None:
        """Replay: read exactly what was read before."""
        if kind == SPLIT_END:
            self._end_split(split)
            return
        while self.turn[0] != split:
            self.turn.rotate(-1)
        self.turn.rotate(-1)
        self.lane = (split, 0)
        if isinstance(self.source, Spout):
            self._call_spout(count)
            return
        reader = self.readers[split]
        reader.now_s, reader.part = math.inf, part
        while count:
            values = self._call(reader.read, count)
            if not values:
                raise ProtocolError(
                    f"{self.id}: split {self.splits[split]!r} gave fewer tuples than before; it cannot be read again"
                )
            self.out.extend(values)
            count -= len(values)

    def _end_split(self, split: int) -> None:
        self.turn.remove(split)
        if split in self.readers:
            self._call(self.readers.pop(split).close)
        if self.stamps is not None:
            self.stamps.ended((split, 0))
            self._look()  # before anything else is read, as it will be when this is replayed

    def _end(self) -> None:
        if self.release_at_s is not None:
            self.release_at_s = None
            self._finish_step()
        if isinstance(self.source, Spout):
            self._call(self.source.close)
        self._end_outputs()

    def _own_snapshot(self) -> Any:
        if isinstance(self.source, Spout):
            return [list(self.turn), self._call(self.source.offset)]
        return [list(self.turn), {split: reader.offset for split, reader in self.readers.items()}]

    def _restore_own(self, own: Any) -> None:
        turn, offsets = own
        self.turn = deque(turn)
        if isinstance(self.source, Spout):
            self._call(self.source.seek, offsets)
            return
        for reader in self.readers.values():
            self._call(reader.close)
        self.readers.clear()
        for split in self.turn:
            self._reader(split, offsets[split])

    def coverable_bytes(self) -> int:
        """What was pushed and waits to be read is not covered by any snapshot."""
        return max(0, self.uncovered_bytes - sum(reader.waiting_bytes for reader in self.readers.values()))

    def covered_by(self, own: Any) -> None:
        """A snapshot with these contents is safe: readers may let go of what it covers."""
        if isinstance(self.source, Source):
            _, offsets = own
            for split, reader in self.readers.items():
                if split in offsets:
                    self._call(reader.covered, offsets[split])

    def close(self) -> None:
        """Let go of readers or spout when stopped before the end."""
        if self.opened and not self.ended:
            self.ended = True
            if isinstance(self.source, Spout):
                self._call(self.source.close)
            for reader in self.readers.values():
                self._call(reader.close)

    def drain(self) -> None:
        """Read no more and let the end of the stream flow; a replay first goes on to its end."""
        self._draining = True
        if not self.ended and not self.replay and not self.parked:
            for split in list(self.turn):
                self._begin((SPLIT_END, split, 0, 0, self.clock()))
                self._end_split(split)
            self._end()
