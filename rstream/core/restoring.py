"""A restore under way: which fragments are asked of whom, what has arrived, and how far it is decoded and loaded.

Any r fragments of each snapshot of the chain will do; what this worker holds itself comes first, then raw ones, which
need no arithmetic. Stripes are decoded while later ones are still on their way. A fragment that turns out bad counts as
lost: another one takes its place, and loading starts over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from rstream.core.channel import TaskId
from rstream.core.order import Record
from rstream.core.packing import Loader
from rstream.errors import StateLost
from rstream.state.erasure import Epoch, Fragment, FragmentReader, Label, decode_stripe

DECODE, LOAD = "decode", "load"
PIECES_ASKED = 8
"""So many pieces of a fragment may be on their way at once."""


class Place(NamedTuple):
    """Where a fragment is."""

    epoch: Epoch
    fragment: int
    r: int
    worker: str


class Wanted(NamedTuple):
    """Some pieces of a fragment, to be asked of a worker."""

    epoch: Epoch
    fragment: int
    first: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Restore:
    """How to bring a lost task back: from which snapshots (none: from the beginning), and what to replay."""

    task: TaskId
    chain: tuple[Epoch, ...]
    """The base, and the deltas on it."""
    records: list[Record]
    places: tuple[Place, ...]
    checkpoint: int | None = None
    """Where all tasks go back together: to which checkpoint; 0 is the beginning."""
    incarnation: int = 0

    @property
    def epoch(self) -> Epoch | None:
        """The newest snapshot of the chain."""
        return self.chain[-1] if self.chain else None

    @property
    def holders(self) -> tuple[str, ...]:
        """Everybody who holds some of it."""
        return tuple(sorted({place.worker for place in self.places}))


class Piece(NamedTuple):
    """What comes with each piece of a fragment: enough to put it together and check it."""

    fragment: int
    number: int
    total: int
    previous: Epoch | None
    base: Epoch | None
    r: int
    c: int
    length: int
    code: str
    checksum: int


@dataclass(slots=True)
class Arriving:
    """One fragment on its way."""

    worker: str
    asked: int = 0
    reader: FragmentReader | None = None
    total: int = 0
    whole: Fragment | None = None

    @property
    def pieces(self) -> Sequence[bytes]:
        """What has arrived."""
        if self.whole is not None:
            return self.whole.pieces
        return self.reader.pieces if self.reader is not None else ()


@dataclass(slots=True)
class OneSnapshot:
    """The fragments of one snapshot: those chosen, and those that could take their place."""

    r: int
    options: dict[int, str]
    chosen: dict[int, Arriving] = field(default_factory=dict)

    def choose(self, here: str) -> None:
        """Fill up to r, with what is here first and raw fragments next."""
        order = sorted(self.options, key=lambda index: (self.options[index] != here, index))
        for index in order:
            if len(self.chosen) == self.r:
                return
            if index not in self.chosen:
                self.chosen[index] = Arriving(self.options[index])


class Pulling:
    """A restore whose fragments are on their way."""

    def __init__(self, restore: Restore, here: str) -> None:
        self.restore, self._here = restore, here
        self._snapshots: dict[Epoch, OneSnapshot] = {}
        for place in restore.places:
            found = self._snapshots.setdefault(place.epoch, OneSnapshot(place.r, {}))
            if place.fragment not in found.options or place.worker == here:
                found.options[place.fragment] = place.worker
        for epoch in restore.chain:
            self._snapshots[epoch].choose(here)
        self._start_over()

    def _start_over(self) -> None:
        self.loader = Loader()
        self._link = self._stripe = 0
        self._spoiled: Exception | None = None

    @property
    def is_ready(self) -> bool:
        """Everything is loaded, or nothing was to be."""
        return self._link == len(self.restore.chain)

    @property
    def has_snapshot(self) -> bool:
        """There is a state to go back to; else the task starts from the beginning."""
        return bool(self.restore.chain)

    def held_here(self) -> list[tuple[Epoch, int]]:
        """The chosen fragments that this worker holds itself."""
        return [
            (epoch, index)
            for epoch, each in self._snapshots.items()
            for index, arriving in each.chosen.items()
            if arriving.worker == self._here and arriving.whole is None
        ]

    def wanted(self, worker: str) -> list[Wanted]:
        """What to ask of a worker when a session with it begins, and after a fragment was replaced."""
        found = []
        for epoch, each in self._snapshots.items():
            for index, arriving in each.chosen.items():
                if arriving.worker == worker != self._here and arriving.whole is None:
                    first = len(arriving.pieces)
                    arriving.asked = first + PIECES_ASKED
                    found.append(Wanted(epoch, index, first, PIECES_ASKED))
        return found

    def give(self, fragment: Fragment) -> None:
        """A fragment that this worker holds itself."""
        arriving = self._snapshots[fragment.label.epoch].chosen[fragment.index]
        arriving.whole, arriving.total = fragment, len(fragment.pieces)

    def take(self, epoch: Epoch, piece: Piece, body: bytes) -> list[tuple[str, Wanted]]:
        """A piece arrived; gives what to ask for next, and of whom."""
        snapshot = self._snapshots.get(epoch)
        arriving = snapshot.chosen.get(piece.fragment) if snapshot is not None else None
        if snapshot is None or arriving is None or arriving.whole is not None or piece.number != len(arriving.pieces):
            return []
        if piece.total == 0:
            return self._replace(epoch, piece.fragment)
        if arriving.reader is None:
            label = Label(str(self.restore.task), epoch, piece.previous, piece.base)
            arriving.reader = FragmentReader(label, piece.fragment, piece.r, piece.c, piece.code)
        arriving.reader.add(body)
        arriving.total = piece.total
        if len(arriving.reader.pieces) == piece.total:
            arriving.whole = arriving.reader.finish(piece.length, piece.checksum)
            return [] if arriving.whole is not None else self._replace(epoch, piece.fragment)
        if arriving.asked >= piece.total:
            return []
        arriving.asked += 1
        return [(arriving.worker, Wanted(epoch, piece.fragment, arriving.asked - 1, 1))]

    def _replace(self, epoch: Epoch, index: int) -> list[tuple[str, Wanted]]:
        """A fragment is bad or gone: take another one, and load from the start."""
        snapshot = self._snapshots[epoch]
        del snapshot.chosen[index], snapshot.options[index]
        snapshot.choose(self._here)
        if len(snapshot.chosen) < snapshot.r:
            raise StateLost(
                f"state of {self.restore.task}, snapshot {epoch}: {len(snapshot.options)} good fragments are left, "
                f"{snapshot.r} are needed; use a savepoint"
            )
        self._start_over()
        return [
            (worker, wanted)
            for worker in set(snapshot.options.values())
            for wanted in self.wanted(worker)
            if wanted.epoch == epoch
        ]

    @property
    def is_fetched(self) -> bool:
        """Everything that is to be loaded is here."""
        return all(each.whole is not None for snapshot in self._chain() for each in snapshot.chosen.values())

    def work(self) -> str | None:
        """Decode a stripe or load a chunk, if there is one, and say which; None while nothing can be done."""
        if self.is_ready or self._spoiled is not None:
            self._check_spoiled()
            return None
        try:
            if self.loader.work():
                return LOAD
            return DECODE if self._decode() else None
        except (StateLost, msgspec.DecodeError, ValueError, KeyError) as error:
            # A bad piece; its fragment's checksum will say which, once all of it is here.
            self._spoiled = error
            return None

    def _decode(self) -> bool:
        snapshot = self._snapshots[self.restore.chain[self._link]]
        arriving = snapshot.chosen
        total = max(each.total for each in arriving.values())
        if total and self._stripe == total:
            return self._end_snapshot(snapshot)
        if any(len(each.pieces) <= self._stripe for each in arriving.values()):
            return False
        first = next(iter(arriving.values()))
        facts = first.whole or first.reader
        assert facts is not None, "pieces come with what they belong to"
        pieces = [(index, each.pieces[self._stripe]) for index, each in sorted(arriving.items())]
        stripe = decode_stripe(pieces, facts.r, facts.c, facts.code)
        self._stripe += 1
        self.loader.feed(stripe)
        return True

    def _end_snapshot(self, snapshot: OneSnapshot) -> bool:
        if any(each.whole is None for each in snapshot.chosen.values()):
            return False
        self.loader.end_snapshot()
        self._link += 1
        self._stripe = 0
        return True

    def _check_spoiled(self) -> None:
        if self._spoiled is not None and self.is_fetched:
            raise StateLost(f"state of {self.restore.task} cannot be read: {self._spoiled}; use a savepoint")

    def _chain(self) -> Iterable[OneSnapshot]:
        return (self._snapshots[epoch] for epoch in self.restore.chain)
