"""A task's snapshot as a stream of bytes: packed in small pieces of work between steps, and loaded likewise.

The stream is a row of chunks: the head (offsets, routing, the operator's own snapshot), then what the out-channels
retain, then keyed state. A delta has the same form and holds only what is new: state that changed, and output that the
snapshots before it in the chain do not hold. What is not packed yet is copied before it is written to
(`rstream.state.cut`), and retained batches never change, so all of it is as it was at the cut.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from rstream import values as codec
from rstream.core.channel import Batch
from rstream.core.context import fresh_state
from rstream.errors import StateLost
from rstream.state.cut import SnapshotCut
from rstream.state.erasure import Fragment
from rstream.state.keyed import KeyedState

HEAD, OUTPUT, STATE = range(3)
OUTPUT_BYTES = 1 << 16
"""About so much retained output is packed at once."""
UNIT_S = 0.0003
"""A piece of work should take about this long, so that a slice is a few of them."""
ITEMS_MAX = 1024

W = TypeVar("W", bound="Writer")

_CHUNK = struct.Struct("<BI")
_ENTRIES = struct.Struct("<BI")


class Writer(Protocol):
    """Where a packer puts the stream: fragments for holders, or a buffer for a file."""

    @property
    def has_stripe(self) -> bool:
        """Enough has been written for a piece of work."""

    def write(self, chunk: bytes) -> None:
        """Add bytes."""

    def pump(self) -> bool:
        """Do a piece of work, if there is one."""

    def finish(self) -> list[Fragment]:
        """Everything was written."""


class Packer(Generic[W]):
    """A snapshot being packed."""

    def __init__(
        self,
        content: Mapping[str, Any],
        cut: SnapshotCut,
        writer: W,
        clock: Callable[[], float],
        items: int,
    ) -> None:
        self.writer = writer
        self.fragments: list[Fragment] | None = None
        """All of them, once everything is packed."""
        self._cut, self._clock, self._items = cut, clock, items
        self._output: deque[tuple[int, Batch]] = deque(
            (number, batch) for number, out in enumerate(content["outs"]) for batch in out[3]
        )
        outs = [[id, base, digest, pending, ended] for id, base, digest, _, pending, ended in content["outs"]]
        self._write(HEAD, codec.encode_one({**content, "outs": outs}))

    def work(self) -> bool:
        """Do a little; False when there is nothing left."""
        if self.fragments is not None:
            return False
        if self.writer.has_stripe:
            self.writer.pump()
        elif self._output:
            self._pack_output()
        elif not self._pack_state():
            self.fragments = self.writer.finish()
        return True

    def abandon(self) -> None:
        """Let the state forget this cut."""
        self._cut.abandon()

    def _pack_output(self) -> None:
        packed: list[Any] = []
        size = 0
        while self._output and size < OUTPUT_BYTES:
            number, batch = self._output.popleft()
            kind, body = batch.encoded()
            packed.append([number, batch.first, batch.count, kind, body, batch.born_s])
            size += len(body)
        self._write(OUTPUT, codec.encode_one(packed))

    def _pack_state(self) -> bool:
        start_s = self._clock()
        entries = self._cut.next_slice(self._items)
        if entries is None:
            return False
        if entries:
            # Nearly all state is flat, and asking that of a whole slice at once costs a tenth of asking each entry.
            flat = codec.ATOMS.issuperset(map(type, chain.from_iterable(entries)))
            kind, body = codec.encode(entries, codec.FLAT if flat else None)
            self._write(STATE, _ENTRIES.pack(kind, len(entries)) + body)
        took_s = self._clock() - start_s
        if took_s > 2 * UNIT_S:
            self._items = max(1, self._items // 2)
        elif 0.0 < took_s < UNIT_S / 2:
            self._items = min(ITEMS_MAX, self._items * 2)
        return True

    def _write(self, kind: int, payload: bytes) -> None:
        self.writer.write(_CHUNK.pack(kind, len(payload)))
        self.writer.write(payload)


class Loader:
    """A chain of snapshots being read: the base first, then each delta. `keeps` says which keys are wanted."""

    def __init__(self, state: KeyedState | None = None, keeps: Callable[[Any], bool] | None = None) -> None:
        self.state: KeyedState = fresh_state() if state is None else state
        self._keeps = keeps
        self._buffer = bytearray()
        self._head: dict[str, Any] | None = None
        self._output: dict[int, list[Any]] = {}

    def feed(self, stripe: bytes) -> None:
        """More bytes of the snapshot that is being read."""
        self._buffer += stripe

    def work(self) -> bool:
        """Take one whole chunk in; False if none has arrived."""
        if len(self._buffer) < _CHUNK.size:
            return False
        kind, length = _CHUNK.unpack_from(self._buffer)
        if len(self._buffer) < _CHUNK.size + length:
            return False
        payload = bytes(self._buffer[_CHUNK.size : _CHUNK.size + length])
        del self._buffer[: _CHUNK.size + length]
        self._take(kind, payload)
        return True

    def end_snapshot(self) -> None:
        """All of one snapshot was fed and worked through."""
        if self._buffer or self._head is None:
            raise StateLost("a snapshot ends in the middle of something; use a savepoint")

    @property
    def head(self) -> dict[str, Any]:
        """What stands first in the stream."""
        assert self._head is not None, "a snapshot has a head"
        return self._head

    def content(self) -> dict[str, Any]:
        """What `Task.restore` takes; the keyed state beside it is in `state`."""
        outs = []
        for number, (id, base, digest, pending, ended) in enumerate(self.head["outs"]):
            retained = [part for part in self._output.get(number, ()) if part[0] + part[1] > base]
            outs.append([id, base, digest, retained, pending, ended])
        return {**self.head, "outs": outs}

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == HEAD:
            self._head = codec.decode_one(payload)
        elif kind == OUTPUT:
            for number, *part in codec.decode_one(payload):
                self._output.setdefault(number, []).append(part)
        elif kind == STATE:
            how, count = _ENTRIES.unpack_from(payload)
            entries = codec.decode(how, count, memoryview(payload)[_ENTRIES.size :])
            keeps = self._keeps
            self.state.restore(entries if keeps is None else [each for each in entries if keeps(each[2])])
        else:
            raise StateLost(f"a snapshot holds a chunk of kind {kind}, which nobody writes; use a savepoint")


def load_all(stripes: Iterable[bytes]) -> Loader:
    """Read one whole snapshot at once; for tests and tools."""
    loader = Loader()
    for stripe in stripes:
        loader.feed(stripe)
        while loader.work():
            pass
    loader.end_snapshot()
    return loader
