"""Channels: the ordered, numbered elements from one task to another, as each end sees them.

An element is a tuple of the user's or a control element (`rstream.core.control`). Offsets count elements. The sending
end keeps what it sent until the receiving end has covered it; the receiving end drops by offset what it has already.
Where the two ends share a worker, batches pass by reference.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from typing import Any, NamedTuple

from rstream import values as codec
from rstream.core.control import END, control
from rstream.errors import ProtocolError

CONTROL = 3
"""The batch kind of one control element; PLAIN, FLAT and GENERAL are those of `rstream.values`."""

SKIPPED = 4
"""The batch kind of a range of offsets without elements: where delivery is at least once, what a task sent and forgot
with its crash; it is sent again, under other offsets. Kinds from CONTROL on hold no values."""

END_OF_STREAM = control(END)

NO_DIGEST = -1
"""Counted since nowhere: the two ends of a channel in one worker keep no digest."""


class TaskId(NamedTuple):
    """One instance of an operator."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}#{self.number}"


class ChannelId(NamedTuple):
    """A channel: which edge of the graph, from which instance to which."""

    edge: int
    source: int
    target: int


class Batch:
    """Consecutive elements of a channel: as values, as bytes, or both."""

    __slots__ = ("body", "born_s", "count", "digest", "end", "first", "kind", "size_bytes", "values")

    def __init__(
        self, first: int, count: int, kind: int, values: list[Any] | None, body: bytes | None, born_s: float
    ) -> None:
        self.first, self.count, self.kind = first, count, kind
        self.end = first + count
        """The offset after the last element."""
        self.values, self.body = values, body
        self.born_s = born_s
        self.size_bytes = 0
        """What it counts for while its sender retains it, and until its receiver's state covers it."""
        self.digest = 0
        """The channel's digest after this batch; kept on links only."""

    def encoded(self) -> tuple[int, bytes]:
        """(kind, bytes), made now where the batch passed by reference."""
        if self.body is not None:
            return self.kind, self.body
        assert self.values is not None, "a batch has values or bytes"
        return codec.encode(self.values, self.kind)

    def pack(self) -> None:
        """Keep the bytes alone. Millions of retained tuples cost more to keep, and to free, than to encode."""
        self.kind, self.body = self.encoded()
        self.values = None

    def take(self) -> list[Any]:
        """The values, for one receiver; decoded anew where a receiver could change them."""
        if self.values is None:
            assert self.body is not None, "a batch has values or bytes"
            return codec.decode(self.kind, self.count, self.body)
        return self.values


class OutChannel:
    """The sending end, with everything from `base` on retained.

    `ack` is what the receiver has consumed. It exceeds `next` while this task replays what the receiver already has;
    `expect` is then the (offset, digest) that the replay has to arrive at.
    """

    __slots__ = (
        "ack",
        "audited",
        "base",
        "began",
        "bytes_retained",
        "bytes_total",
        "bytes_unacked",
        "covered",
        "digest",
        "ended",
        "exact",
        "expect",
        "id",
        "known",
        "known_digest",
        "local",
        "log",
        "next",
        "pending",
        "pending_born_s",
        "pending_kind",
        "replaying",
        "restored_at",
        "sealed",
        "sent",
        "since",
        "unacked",
        "unacked_batches",
    )

    def __init__(self, id: ChannelId, local: bool) -> None:
        self.id, self.local = id, local
        self.base = self.ack = self.sent = self.next = self.covered = 0
        self.began = 0
        """Where `next` stood when the task came to be in this worker."""
        self.digest = 0
        self.since = NO_DIGEST if local else 0
        """From which offset on the digest counts: from where the receiver was when the two last came apart."""
        self.known = self.known_digest = 0
        """From this offset on, where the digest is `known_digest`, it is known at every offset that is retained."""
        self.audited = False
        """Has a digest although both ends are in one worker: its receiver commits outside."""
        self.exact = True
        """Whether a task that comes back sends what it sent before, element by element; else there are no digests."""
        self.restored_at: int | None = None
        """Up to where a snapshot brought this channel back, until the receiver has said what it has."""
        self.expect: tuple[int, int] | None = None
        self.replaying = False
        self.log: deque[Batch] = deque()
        self.sealed: list[Batch] = []
        """What is numbered and not yet handed to the receiver or its link: control elements and what stood before."""
        self.unacked: deque[Batch] = deque()
        """The end of `log` that the receiver has not consumed, so that no acknowledgement looks at the rest."""
        self.pending: list[Any] = []
        self.pending_kind = -1
        self.pending_born_s = 0.0
        self.bytes_retained = self.bytes_unacked = self.bytes_total = 0
        self.unacked_batches = 0
        self.ended = False

    def note(self, kind: int, born_s: float) -> None:
        """Values of this kind and age are being added to `pending`."""
        if self.pending_kind < 0:
            self.pending_kind, self.pending_born_s = kind, born_s
            return
        if kind != self.pending_kind:
            self.pending_kind = codec.GENERAL
        if born_s < self.pending_born_s:
            self.pending_born_s = born_s

    def seal(self) -> Batch | None:
        """Number the pending values and retain them as one batch."""
        if not self.pending:
            return None
        values, kind = self.pending[:], self.pending_kind
        self.pending.clear()
        self.pending_kind = -1
        batch = Batch(self.next, len(values), kind, None, None, self.pending_born_s)
        if self.local and kind != codec.GENERAL:
            batch.values = values
        else:
            batch.kind, batch.body = codec.encode(values, kind)
        self._number(batch)
        return batch

    def adopt(self, batch: Batch) -> None:
        """Take a batch of a snapshot back into the log."""
        assert batch.first == self.next, "a snapshot's batches follow one another"
        self._number(batch)

    def _number(self, batch: Batch) -> None:
        if self.exact and (not self.local or self.audited):
            assert self.audited or batch.body is not None, "what goes over a link is encoded"
            self._digest(batch)
        self.next += batch.count
        batch.size_bytes = size_of(batch)
        self.bytes_retained += batch.size_bytes
        self.bytes_total += batch.size_bytes
        if self.next > self.ack:
            self.bytes_unacked += batch.size_bytes
            self.unacked.append(batch)
        self.log.append(batch)
        if self.expect is not None and self.next >= self.expect[0]:
            offset, digest = self.expect
            self.expect = None
            self.check(offset, digest)
        if self.covered > self.base:
            self._forget_covered()  # a replay makes anew what the receiver covered long ago, and will not say again

    def _digest(self, batch: Batch) -> None:
        if batch.end > self.known:
            body = batch.encoded()[1] if batch.first >= self.known else part_of(batch, self.known, batch.end)
            self.digest = batch.digest = zlib.crc32(body, self.digest)

    def hold_against(self, received: int, digest: int, since: int) -> None:
        """The receiver has this much, with this digest since an offset: it must be what this task sends, or will have
        sent."""
        if not self.exact:
            self._skip_to(received)
            return
        if not self._has_digest:
            return
        if since != self.since and since >= self.base:
            self._count_from(since, 0, since)
        elif since != self.since or received < self.known:
            # What came before is not retained: from here on the receiver's digest is as good as any.
            self._count_from(received, digest, since)
        if received <= self.next:
            self.check(received, digest)
        else:
            self.expect = (received, digest)

    def _count_from(self, offset: int, digest: int, since: int) -> None:
        """Make the digests of what is retained anew, from a digest at an offset on."""
        self.since, self.known, self.known_digest, self.digest = since, offset, digest, digest
        self.expect = None
        for batch in self.log:
            self._digest(batch)

    @property
    def _has_digest(self) -> bool:
        return not self.local or self.audited

    def come_together(self) -> None:
        """The receiver is in this worker from now on."""
        self.local = True
        if not self.audited:
            self.since, self.expect = NO_DIGEST, None

    def come_apart(self) -> None:
        """The receiver is in another worker from now on; it will say from where on the digest counts."""
        self.local = False
        for batch in self.log:
            if batch.body is None:
                batch.pack()

    def _skip_to(self, received: int) -> None:
        """At least once: what this task sends since it was restored is not what it sent before, so it must not have
        offsets that the receiver takes for known."""
        start, self.restored_at = self.restored_at, None
        if start is None or received <= start:
            return
        new = [batch for batch in self.log if batch.first >= start]
        for batch in new:
            batch.first += received - start
            batch.end += received - start
        skipped = Batch(start, received - start, SKIPPED, None, b"", math.inf)
        self.log = deque([*(batch for batch in self.log if batch.end <= start), skipped, *new])
        self.next += received - start

    def check(self, offset: int, digest: int) -> None:
        """Stop loudly where the receiver has seen something else than this task sends."""
        if self._has_digest and self.digest_at(offset) != digest:
            raise ProtocolError(
                f"channel {self.id}: the first {offset} elements are not those that the receiver has seen; "
                "an operator is not deterministic, or more was lost than the backups cover"
            )

    def digest_at(self, offset: int) -> int:
        """The digest of all elements below an offset that is still retained."""
        digest = self.known_digest
        for batch in self.log:
            if batch.end <= self.known:
                continue
            if batch.end <= offset:
                digest = batch.digest
            elif batch.first < offset:
                return zlib.crc32(part_of(batch, max(self.known, batch.first), offset), digest)
        return digest

    @property
    def mark(self) -> list[int]:
        """What a snapshot holds of the digest, for `take_mark`."""
        return [self.since, self.known, self.known_digest]

    def take_mark(self, mark: list[int]) -> None:
        """Go back to the digest of a snapshot; the retained batches follow."""
        self.since, self.known, self.known_digest = mark
        self.digest = self.known_digest

    def control(self, body: bytes, born_s: float) -> None:
        """Add a control element, after all values emitted so far; both wait in `sealed`."""
        batch = self.seal()
        if batch is not None:
            self.sealed.append(batch)
        batch = Batch(self.next, 1, CONTROL, None, body, born_s)
        self._number(batch)
        self.sealed.append(batch)

    def end(self, born_s: float) -> None:
        """The end of the stream, itself an element."""
        self.control(END_OF_STREAM, born_s)
        self.ended = True

    def take_sealed(self) -> list[Batch]:
        """What is to be handed over; it counts as handed over from now on."""
        sealed, self.sealed = self.sealed, []
        return sealed

    def acknowledge(self, consumed: int, covered: int) -> None:
        """The receiver has consumed, and covered, everything below these offsets."""
        if self.restored_at is not None:
            return  # these are offsets of before the crash
        if covered > consumed or (consumed > self.next + len(self.pending) and not self.replaying):
            raise ProtocolError(f"channel {self.id}: acknowledged {covered}, {consumed} of {self.next} elements")
        unacked = self.unacked
        if consumed > self.ack:
            self.ack = consumed
            while unacked and unacked[0].end <= consumed:
                batch = unacked.popleft()
                if self.unacked_batches:
                    self.unacked_batches -= 1
                self.bytes_unacked -= batch.size_bytes
                if batch.values is not None and batch.end > covered:
                    batch.pack()
        if covered > self.covered:
            self.covered = covered
            self._forget_covered()

    def _forget_covered(self) -> None:
        log = self.log
        while log and log[0].end <= self.covered:
            gone = log.popleft()
            self.bytes_retained -= gone.size_bytes
            self.base = gone.end
            if gone.end > self.known:
                self.known, self.known_digest = gone.end, gone.digest

    def rewind(self, consumed: int) -> None:
        """The receiver has consumed this much, be it less than was known before: it may have been restored."""
        self.ack = consumed
        self.unacked = deque(batch for batch in self.log if batch.end > consumed)
        self.bytes_unacked = sum(batch.size_bytes for batch in self.unacked)
        self.unacked_batches = 0

    @property
    def outstanding(self) -> int:
        """Elements that the receiver has not consumed, those not yet sent included."""
        return max(0, self.next + len(self.pending) - self.ack)

    def oldest_born_s(self) -> float | None:
        """When the oldest unconsumed element's source tuple was read."""
        if self.unacked:
            return self.unacked[0].born_s
        return self.pending_born_s if self.pending else None


class InChannel:
    """The receiving end: `cov <= cons <= recv`, with the elements between consumed and received queued."""

    __slots__ = (
        "audited",
        "cons",
        "cov",
        "digest",
        "digest_consumed",
        "ended",
        "exact",
        "id",
        "local",
        "queue",
        "recv",
        "reported",
        "since",
        "taken",
    )

    def __init__(self, id: ChannelId, local: bool) -> None:
        self.id, self.local = id, local
        self.recv = self.cons = self.cov = 0
        self.digest = self.digest_consumed = 0
        self.since = NO_DIGEST if local else 0
        """From which offset on the digest counts."""
        self.audited = False
        self.exact = True
        self.reported = (0, 0)
        self.queue: deque[Batch] = deque()
        self.taken = 0
        self.ended = False

    def receive(self, batch: Batch) -> bool:
        """Queue what is new of a batch; False if all of it was known."""
        if batch.first > self.recv:
            raise ProtocolError(f"channel {self.id}: element {batch.first} came, {self.recv} was to come next")
        known, digest = self.recv - batch.first, batch.digest
        if known >= batch.count:
            return False
        if known and batch.kind == SKIPPED:
            batch = Batch(self.recv, batch.count - known, SKIPPED, None, b"", batch.born_s)
        elif known:
            batch = Batch(self.recv, batch.count - known, batch.kind, batch.take()[known:], None, batch.born_s)
        elif batch.kind == codec.GENERAL:
            # The sender's log may share this batch: what the receiver decodes, and may change, stays on this side.
            batch = Batch(batch.first, batch.count, batch.kind, None, batch.body, batch.born_s)
        if not self.exact:
            self.digest = 0
        elif not self.local or (self.audited and known):
            self.digest = batch.digest = zlib.crc32(batch.encoded()[1], self.digest)
        elif self.audited:
            # The sender, whose digest was held against ours when it was restored, has just made it of the same bytes.
            self.digest = batch.digest = digest
        self.recv = batch.end
        self.queue.append(batch)
        return True

    def consume(self, limit: int) -> tuple[list[Any], float] | None:
        """Up to `limit` queued values and the age of the oldest; None where something else is next."""
        queue = self.queue
        batch = queue[0]
        if batch.kind >= CONTROL:
            return None
        if len(queue) == 1 and not self.taken and batch.count <= limit:
            # What comes alone, as it does while tasks are quick, should not wait for more calls than it needs.
            self._pop()
            return (batch.take() if batch.values is None else batch.values[:]), batch.born_s
        values, born_s = self._take(limit), batch.born_s
        while queue and len(values) < limit and queue[0].kind < CONTROL:
            born_s = min(born_s, queue[0].born_s)
            values += self._take(limit - len(values))
        return values, born_s

    def _take(self, limit: int) -> list[Any]:
        """Up to `limit` values of the first batch, in a list that is the caller's own."""
        batch, start = self.queue[0], self.taken
        values = batch.take()
        if batch.count - start > limit:
            batch.values = values  # decoded once
            self.taken = start + limit
            return values[start : start + limit]
        self._pop()
        self.taken = 0
        # The sender's log may have this very list, and a bolt may change the one that it is handed.
        return values[start:] if start or batch.values is not None else values

    def consume_exactly(self, count: int) -> tuple[list[Any], float] | None:
        """The next `count` values, which are all there; None where a control element is next."""
        values: list[Any] = []
        born_s = float("inf")
        while len(values) < count:
            taken = self.consume(count - len(values))
            if taken is None:
                assert not values, "a step consumes values or a control element"
                return None
            values += taken[0]
            born_s = min(born_s, taken[1])
        return values, born_s

    @property
    def queued(self) -> int:
        """Elements received and not yet taken by a step."""
        return sum(batch.count for batch in self.queue) - self.taken

    def _pop(self) -> Batch:
        batch = self.queue.popleft()
        self.digest_consumed = batch.digest if batch.end > self.since else 0
        return batch

    def digest_at_consumed(self) -> int:
        """The digest of all elements that steps have taken."""
        if not self.taken or (self.local and not self.audited):
            return self.digest_consumed
        batch = self.queue[0]
        if batch.end <= self.since:
            return 0
        return zlib.crc32(part_of(batch, batch.first, batch.first + self.taken), self.digest_consumed)

    def go_on_from(self, consumed: int, digest: int, since: int) -> None:
        """Go back to what a snapshot had consumed; the digest counts anew where the snapshot had none there."""
        self.recv = self.cons = self.cov = consumed
        known = 0 <= since <= consumed
        self.since = since if known else consumed
        self.digest = self.digest_consumed = digest if known else 0

    def come_together(self) -> None:
        """The sender is in this worker from now on."""
        self.local = True
        if not self.audited:
            self.since = NO_DIGEST

    def come_apart(self) -> None:
        """The sender is in another worker from now on: the digest counts from here."""
        self.local = False
        if not self.audited:
            self.since, self.digest = self.recv, 0
            if self.cons == self.recv:
                self.digest_consumed = 0

    def skip(self) -> bool:
        """Step over offsets that have no elements, if these are next."""
        if self.queue[0].kind != SKIPPED:
            return False
        self.cons += self._pop().count
        return True

    def consume_control(self) -> bytes:
        """The control element that is next."""
        batch = self._pop()
        assert batch.kind == CONTROL, "a control element is next"
        assert batch.body is not None, "a control element has a body"
        return batch.body

    def validate(self) -> None:
        """I1: what is queued is what was received and not consumed."""
        queued = sum(batch.count for batch in self.queue) - self.taken
        assert self.recv - self.cons >= queued >= 0, (self.id, self.recv, self.cons, queued)


def part_of(batch: Batch, first: int, end: int) -> bytes:
    """Some of the elements of a batch, by their offsets, as the bytes that a digest is made of."""
    # The values may have been handed to a bolt, which may have changed them; the bytes, where there are any, stay.
    values = batch.take() if batch.body is None else codec.decode(batch.kind, batch.count, batch.body)
    return codec.encode(values[first - batch.first : end - batch.first])[1]


def size_of(batch: Batch) -> int:
    """About how many bytes a batch takes."""
    if batch.body is not None:
        return len(batch.body)
    assert batch.values is not None, "a batch has values or bytes"
    return batch.count * rough_bytes(batch.values[0])


def rough_bytes(value: Any) -> int:
    """The first value stands for its batch: exact sizes would cost more than what they guard."""
    kind = type(value)
    if kind is str or kind is bytes:
        return 8 + len(value)
    size = 8
    if kind is tuple:
        for item in value:
            size += 8 + len(item) if type(item) is str or type(item) is bytes else 8
    return size
