"""A source that programs outside push records to: each sender keeps what it sent until the source has covered it.

A record has a place for ever: a sender's name, one of its partitions, and an offset. Offsets count a partition's
records from 0 on within an epoch; a later epoch begins once all of the one before is covered. The source takes each
offset once, in order, so a sender may send again whatever it is not sure of. Nothing here does I/O: the host feeds
`IngestReader.push`, and asks the reader what to tell the sender.
"""

from __future__ import annotations

import hashlib
import math
import types
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rstream import values as codec
from rstream.api import Reader, Source
from rstream.errors import TopologyError

EPOCH_BITS = 40
"""An offset is an epoch and so many bits for the place in it."""
WINDOW = 8192
ATOMS = (str, int, float, bool, bytes)


def part_of(sender: str, partition: int) -> int:
    """The number by which the order log names a sender's partition: the same everywhere and for ever.

    >>> part_of("orders", 0) == part_of("orders", 0) != part_of("orders", 1)
    True
    """
    digest = hashlib.blake2b(f"{partition}/{sender}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def lane_of(sender: str, partition: int, lanes: int) -> int:
    """Which split of the source takes a partition: neighbours go to different ones, whatever the sender's name.

    >>> sorted(lane_of("orders", partition, 4) for partition in range(4))
    [0, 1, 2, 3]
    """
    return (zlib.crc32(sender.encode()) + partition) % lanes


class Ingest(Source):
    """Records that senders push over gRPC: `rstream data replay`, Spark, or any program with `IngestClient`.

    A record is a str, int, float, bool, bytes, None, or a tuple of these. With `fields` it is a tuple with these
    columns, each of the given type (`int | None` where one may be missing); a record that is not is refused, and its
    sender is told why. `lanes` is how many splits there are for senders' partitions, by default one for each task;
    `window` is how many records of a partition may wait here before its sender has to.

    >>> reader = Ingest({"word": str, "n": int}).reader("0", None)
    >>> reader.push(7, 0, 3, *codec.encode([("a", 1), ("b", "two"), ("c", 3)]))
    True
    >>> reader.read(10), reader.offset
    ([('a', 1), ('c', 3)], {7: 3})
    >>> reader.take_refusals(7)
    [(1, "column 'n' wants int, got 'two'")]
    """

    def __init__(self, fields: Mapping[str, Any] | None = None, lanes: int | None = None, window: int = WINDOW) -> None:
        self.fields = None if fields is None else dict(fields)
        self.lanes, self.window = lanes, window
        if min(window, 1 if lanes is None else lanes) < 1:
            raise TopologyError(f"an ingest source needs a lane and a window of 1 or more, got {lanes} and {window}")
        for name, kind in (self.fields or {}).items():
            if not set(_types_of(kind)) <= {*ATOMS, types.NoneType}:
                raise TopologyError(f"ingest column {name!r}: wanted str, int, float, bool or bytes, got {kind!r}")

    def splits(self, parallelism: int) -> Sequence[str]:
        return [str(lane) for lane in range(self.lanes or parallelism)]

    def reader(self, split: str, offset: Any) -> IngestReader:
        return IngestReader(self.fields, offset or {}, self.window)

    def columns(self) -> list[tuple[str, str]] | None:
        """The columns as names and types in words, for senders to compare with theirs."""
        return None if self.fields is None else [(name, type_name(kind)) for name, kind in self.fields.items()]


def _types_of(kind: Any) -> tuple[Any, ...]:
    return kind.__args__ if isinstance(kind, types.UnionType) else (kind,)


def type_name(kind: Any) -> str:
    """A column's type in words.

    >>> type_name(int), type_name(int | None)
    ('int', 'int | None')
    """
    return kind.__name__ if isinstance(kind, type) else str(kind)


class IngestReader(Reader):
    """One split: the partitions of senders that are dealt to it, each with what waits to be read."""

    idle_s = 0.05

    def __init__(self, fields: Mapping[str, Any] | None, offsets: Mapping[int, int], window: int = WINDOW) -> None:
        self.window = window
        self._fields = None if fields is None else [(name, kind, _accepted(kind)) for name, kind in fields.items()]
        self._parts = {part: _Part(offset) for part, offset in offsets.items()}
        self._turn: deque[int] = deque()
        """The parts that have something to be read, the next one first."""
        self.needed: tuple[int, int] | None = None
        """(part, how many values) that a recovery waits for."""

    # From the host.

    def push(self, part: int, first: int, count: int, kind: int, body: bytes) -> bool:
        """Take records from offset `first` on; what is known is dropped. False for a gap: something must come first."""
        known = self._parts.setdefault(part, _Part(0))
        if first > known.received and not _begins_epoch(first, known.received):
            return False
        if first + count <= known.received:
            return True
        known.chunks.append(_Chunk(first, max(0, known.received - first), count, kind, body))
        known.received = first + count
        self.waiting_bytes += len(body)
        if part not in self._turn:
            self._turn.append(part)
        return True

    def received(self, part: int) -> int:
        """Up to where a partition has arrived."""
        return self._parts[part].received if part in self._parts else 0

    def waiting(self, part: int) -> int:
        """How many records of a partition have arrived and are not read."""
        known = self._parts.get(part)
        return 0 if known is None else known.count + sum(chunk.count - chunk.skip for chunk in known.chunks)

    def taken(self, part: int) -> int:
        """Up to where a partition has been read."""
        return self._parts[part].next if part in self._parts else 0

    def covered_to(self, part: int) -> int:
        """Up to where a partition will never be read again."""
        return self._parts[part].covered if part in self._parts else 0

    def take_refusals(self, part: int) -> list[tuple[int, str]]:
        """(offset, reason) of records that were refused since the last time asked."""
        if part not in self._parts:
            return []
        found, self._parts[part].refused = self._parts[part].refused, []
        return found

    # From the engine.

    def read(self, limit: int) -> list[Any] | None:
        if self.now_s == math.inf:
            self.needed = None
            return self._take(self.part, limit)
        for _ in range(len(self._turn)):
            part = self._turn[0]
            self._turn.rotate(-1)
            found = self._take(part, limit)
            if found:
                self.part = part
                return found
        return []

    def ready(self, part: int, count: int) -> bool:
        self.needed = (part, count)
        return self._decode(part, count) >= count

    def missing(self, part: int) -> int:
        """How many values a recovery still lacks of a partition."""
        if self.needed is None or self.needed[0] != part:
            return 0
        return max(0, self.needed[1] - self._parts[part].count)

    @property
    def offset(self) -> dict[int, int]:
        return {part: known.next for part, known in self._parts.items() if known.next}

    def covered(self, offset: Any) -> None:
        for part, upto in offset.items():
            known = self._parts[part]
            known.covered = max(known.covered, upto)

    def _take(self, part: int, limit: int) -> list[Any]:
        """Up to so many values of a partition, of one piece that came together or the last part of it."""
        self._decode(part, 1)
        known = self._parts[part]
        found: list[Any] = []
        if known.pieces:
            piece = known.pieces[0]
            found = piece.values[piece.read : piece.read + limit]
            piece.read += len(found)
            known.count -= len(found)
            known.next = piece.offsets[piece.read - 1] + 1
            if piece.read == len(piece.values):
                known.pieces.popleft()
        if not known.pieces:
            # What was refused after the last good record gives no value: it is behind us too.
            known.next = max(known.next, known.decoded)
            if not known.chunks and part in self._turn:
                self._turn.remove(part)
        return found

    def _decode(self, part: int, wanted: int) -> int:
        """Decode and check waiting records until there are so many good ones, if they are there; gives how many."""
        known = self._parts.setdefault(part, _Part(0))
        while known.count < wanted and known.chunks:
            chunk = known.chunks.popleft()
            self.waiting_bytes -= len(chunk.body)
            start = chunk.first + chunk.skip
            known.decoded = chunk.first + chunk.count
            try:
                records = _decoded(chunk)
            except (msgspec.DecodeError, ValueError) as error:
                known.refused.append((start, f"{chunk.count} records cannot be decoded: {error}"))
                continue
            offsets: Sequence[int] = range(start, start + len(records))
            if reasons := self._reasons(records):
                known.refused += [(start + at, reason) for at, reason in reasons.items()]
                offsets = [offset for offset in offsets if offset - start not in reasons]
                records = [records[offset - start] for offset in offsets]
            if records:
                known.pieces.append(_Piece(records, offsets))
                known.count += len(records)
        return known.count

    def _reasons(self, records: list[Any]) -> dict[int, str]:
        """Why records do not fit the columns, by their places; most often there is none."""
        fields = self._fields
        if fields is None:
            return {}
        width = len(fields)
        if all(type(record) is tuple and len(record) == width for record in records) and all(
            accepted.issuperset(map(type, column))
            for (_, _, accepted), column in zip(fields, zip(*records, strict=True), strict=False)
        ):
            return {}
        return {at: reason for at, record in enumerate(records) if (reason := self._reason(record))}

    def _reason(self, record: Any) -> str:
        fields = self._fields or []
        if type(record) is not tuple:
            return f"a row of {len(fields)} columns was wanted, got {record!r:.100}"
        if len(record) != len(fields):
            return f"a row of {len(fields)} columns was wanted, got {len(record)}: {record!r:.100}"
        for (name, kind, accepted), value in zip(fields, record, strict=True):
            if type(value) not in accepted:
                return f"column {name!r} wants {type_name(kind)}, got {value!r:.100}"
        return ""


def _accepted(kind: Any) -> frozenset[type]:
    """The types that a column takes: a whole number is a float too."""
    wanted = set(_types_of(kind))
    return frozenset(wanted | ({int} if float in wanted else set()))


def _begins_epoch(first: int, received: int) -> bool:
    return first % (1 << EPOCH_BITS) == 0 and first >> EPOCH_BITS > received >> EPOCH_BITS


@dataclass(slots=True, frozen=True)
class _Chunk:
    """Some records of a partition as they came; the first `skip` of them are known."""

    first: int
    skip: int
    count: int
    kind: int
    body: bytes


def _decoded(chunk: _Chunk) -> list[Any]:
    """The records of a chunk that are new. Classes are not looked up for strangers, so nothing else is decoded."""
    if chunk.kind not in (codec.PLAIN, codec.FLAT):
        raise ValueError(f"rows and single values were wanted, got an encoding of kind {chunk.kind}")
    return codec.decode(chunk.kind, chunk.count, chunk.body)[chunk.skip :]


@dataclass(slots=True)
class _Piece:
    """The good records of a chunk, with their offsets, and how many of them are read."""

    values: list[Any]
    offsets: Sequence[int]
    read: int = 0


class _Part:
    """One partition of a sender."""

    __slots__ = ("chunks", "count", "covered", "decoded", "next", "pieces", "received", "refused")

    def __init__(self, offset: int) -> None:
        self.next = self.received = self.covered = self.decoded = offset
        self.chunks: deque[_Chunk] = deque()
        self.pieces: deque[_Piece] = deque()
        self.count = 0
        """Values that are decoded and not yet read."""
        self.refused: list[tuple[int, str]] = []
