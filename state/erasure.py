"""Snapshots as fragments: r raw and c check pieces with PyECLib, any r of which give the bytes back.

PyECLib holds the interpreter lock while it works, so bytes go through it in stripes of at most 1 MB, and both ways are
generators that a run loop can interleave with its tuples. A fragment knows what it belongs to and has a checksum over
that and its contents: a fragment that fails it counts as lost, and fragments of different epochs never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from pyeclib.ec_iface import ECDriver, ECDriverError
from xxhash import xxh3_64

from rstream.errors import ConfigError, StateLost

STRIPE_BYTES: Final = 1 << 20
"""The most that one call of PyECLib gets."""

CODES: Final = ("isa_l_rs_cauchy", "liberasurecode_rs_vand")
"""The codes in order of preference: the first one that this machine's liberasurecode can load is used."""

COPY: Final = "copy"
SPLIT: Final = "split"

Epoch = tuple[int, int]
"""(incarnation of the task, number of the snapshot): ordered, and unique over fail-overs and moves."""


@dataclass(frozen=True)
class Label:
    """What a fragment belongs to: a snapshot of a task, and what that snapshot builds on."""

    task: str
    epoch: Epoch
    previous: Epoch | None = None
    """The snapshot that this delta changes; None for a base."""
    base: Epoch | None = None
    """The base at the start of the chain; None for a base itself."""

    @property
    def base_epoch(self) -> Epoch:
        """The epoch of the base that a restore has to begin with."""
        return self.epoch if self.base is None else self.base


@dataclass(frozen=True)
class Fragment:
    """One of the r + c fragments of a snapshot."""

    label: Label
    index: int
    r: int
    c: int
    length: int
    code: str
    pieces: tuple[bytes, ...]
    """One per stripe; left apart, because joining large ones would hold the interpreter lock."""
    checksum: int

    @property
    def size_bytes(self) -> int:
        """How much memory its contents take."""
        return sum(map(len, self.pieces))

    def is_good(self) -> bool:
        """Whether contents and facts are as they were when it was made."""
        digest = _fresh_digest(self.label, self.index, self.r, self.c, self.code)
        for piece in self.pieces:
            digest.update(piece)
        return _sealed(digest, self.length, len(self.pieces)) == self.checksum

    def to_plain(self) -> tuple[Any, ...]:
        """As a tuple of plain values, for a message; `from_plain` takes it back."""
        label = (self.label.task, self.label.epoch, self.label.previous, self.label.base)
        return (label, self.index, self.r, self.c, self.length, self.code, list(self.pieces), self.checksum)

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> Fragment:
        """The fragment that `to_plain` gave."""
        (task, *epochs), index, r, c, length, code, pieces, checksum = plain
        epoch, previous, base = (None if each is None else (int(each[0]), int(each[1])) for each in epochs)
        assert epoch is not None
        return cls(Label(task, epoch, previous, base), index, r, c, length, code, tuple(pieces), checksum)


class FragmentWriter:
    """Makes the fragments of one snapshot from bytes that come bit by bit.

    >>> writer = FragmentWriter(Label("count/0", (1, 1)), r=2, c=1)
    >>> writer.write(b"state ")
    >>> writer.write(b"of a task")
    >>> writer.pump()  # nothing to do yet: less than a stripe is waiting
    False
    >>> fragments = writer.finish()
    >>> decode(fragments[1:])
    b'state of a task'
    """

    def __init__(self, label: Label, r: int, c: int, stripe_bytes: int = STRIPE_BYTES) -> None:
        self.label, self.r, self.c = label, r, c
        self.code = _code_for(r, c)
        self._stripe_bytes = stripe_bytes
        self._waiting = bytearray()
        self._length = 0
        self._pieces: list[list[bytes]] = [[] for _ in range(r + c)]
        self._digests = [_fresh_digest(label, index, r, c, self.code) for index in range(r + c)]

    def write(self, chunk: bytes) -> None:
        """Add bytes; nothing is encoded yet."""
        self._waiting += chunk
        self._length += len(chunk)

    @property
    def stripes(self) -> int:
        """How many stripes are encoded: so many pieces every fragment has by now."""
        return len(self._pieces[0])

    @property
    def length(self) -> int:
        """How many bytes were written."""
        return self._length

    @property
    def has_stripe(self) -> bool:
        """A whole stripe waits to be encoded."""
        return len(self._waiting) >= self._stripe_bytes

    def piece(self, index: int, number: int) -> bytes:
        """A piece that is made, for sending it before the others are."""
        return self._pieces[index][number]

    def pump(self) -> bool:
        """Encode one stripe if a whole one is waiting; whether another one waits."""
        if self.has_stripe:
            self._encode(bytes(self._waiting[: self._stripe_bytes]))
            del self._waiting[: self._stripe_bytes]
        return self.has_stripe

    def finish(self) -> list[Fragment]:
        """Encode what is left and give the fragments, ordered by index."""
        while self.pump():
            pass
        if self._waiting or not self._pieces[0]:
            self._encode(bytes(self._waiting))
            self._waiting.clear()
        return [
            Fragment(
                self.label, index, self.r, self.c, self._length, self.code, tuple(pieces),
                _sealed(self._digests[index], self._length, len(pieces)),
            )
            for index, pieces in enumerate(self._pieces)
        ]  # fmt: skip

    def _encode(self, stripe: bytes) -> None:
        for pieces, digest, piece in zip(
            self._pieces, self._digests, encode_stripe(stripe, self.r, self.c, self.code), strict=True
        ):
            pieces.append(piece)
            digest.update(piece)


class FragmentReader:
    """A fragment that arrives piece by piece; its checksum is computed on the way, for at the end it would take long.

    >>> made = encode(b"state", 2, 1, Label("count/0", (1, 1)))[0]
    >>> reader = FragmentReader(made.label, made.index, made.r, made.c, made.code)
    >>> reader.add(made.pieces[0])
    >>> reader.finish(made.length, made.checksum) == made
    True
    """

    def __init__(self, label: Label, index: int, r: int, c: int, code: str) -> None:
        self.label, self.index, self.r, self.c, self.code = label, index, r, c, code
        self.pieces: list[bytes] = []
        self._digest = _fresh_digest(label, index, r, c, code)

    def add(self, piece: bytes) -> None:
        """The next piece."""
        self.pieces.append(piece)
        self._digest.update(piece)

    def finish(self, length: int, checksum: int) -> Fragment | None:
        """The whole fragment, or None where its checksum is wrong."""
        if _sealed(self._digest, length, len(self.pieces)) != checksum:
            return None
        return Fragment(self.label, self.index, self.r, self.c, length, self.code, tuple(self.pieces), checksum)


def encode(data: bytes, r: int, c: int, label: Label, stripe_bytes: int = STRIPE_BYTES) -> list[Fragment]:
    """The r + c fragments of `data`, all at once; for long data use `encode_stripes` or a `FragmentWriter`."""
    writer = FragmentWriter(label, r, c, stripe_bytes)
    writer.write(data)
    return writer.finish()


def encode_stripes(
    data: bytes, r: int, c: int, label: Label, stripe_bytes: int = STRIPE_BYTES
) -> Iterator[list[Fragment] | None]:
    """The same one stripe at a time: None while there is more to do, the fragments at the end.

    >>> label = Label("count/0", (1, 1))
    >>> steps = list(encode_stripes(bytes(100), 3, 2, label, stripe_bytes=40))
    >>> [step is None for step in steps], len(steps[-1])
    ([True, True, False], 5)
    """
    writer = FragmentWriter(label, r, c, stripe_bytes)
    for start in range(0, len(data), stripe_bytes):
        writer.write(data[start : start + stripe_bytes])
        if start + stripe_bytes < len(data):
            writer.pump()
            yield None
    yield writer.finish()


def decode(fragments: Iterable[Fragment]) -> bytes:
    """The bytes back from fragments of one epoch; StateLost when fewer than r of them are good."""
    return b"".join(decode_stripes(fragments))


def decode_stripes(fragments: Iterable[Fragment]) -> Iterator[bytes]:
    """The same one stripe at a time."""
    chosen = choose_good(fragments)
    first = chosen[0]
    done = 0
    for number in range(len(first.pieces)):
        stripe = decode_stripe([(each.index, each.pieces[number]) for each in chosen], first.r, first.c, first.code)
        done += len(stripe)
        yield stripe
    if done != first.length:
        raise StateLost(
            f"state of {first.label.task}: decoded {done} bytes, {first.length} were stored; use a savepoint"
        )


def choose_good(fragments: Iterable[Fragment]) -> list[Fragment]:
    """r good fragments of one epoch, raw ones first because they need no arithmetic."""
    given = list(fragments)
    sound = [each for each in given if each.is_good()]
    good = {each.index: each for each in sound}
    kinds = {(each.label, each.r, each.c, each.length, each.code, len(each.pieces)) for each in sound}
    if len(kinds) > 1:
        epochs = sorted({each.label.epoch for each in sound})
        raise StateLost(f"fragments of different snapshots were mixed: epochs {epochs}; decode one epoch at a time")
    if not sound:
        raise StateLost(f"no good fragment among the {len(given)} that were found; use a savepoint")
    first = sound[0]
    if len(good) < first.r:
        raise StateLost(
            f"state of {first.label.task}, epoch {first.label.epoch}: {len(good)} good fragments of "
            f"{first.r + first.c} are left, {first.r} are needed; use a savepoint"
        )
    return [good[index] for index in islice(sorted(good), first.r)]


def encode_stripe(stripe: bytes, r: int, c: int, code: str) -> list[bytes]:
    """One stripe as r + c pieces."""
    if code == COPY:
        return [stripe] * (r + c)
    if code == SPLIT:
        size = -(-len(stripe) // r)
        return [stripe[index * size : (index + 1) * size] for index in range(r)]
    pieces: list[bytes] = _driver(r, c, code).encode(stripe)
    return pieces


def decode_stripe(pieces: Sequence[tuple[int, bytes]], r: int, c: int, code: str) -> bytes:
    """One stripe from any r of its pieces, each with its index."""
    if code == COPY:
        return pieces[0][1]
    if code == SPLIT:
        return b"".join(piece for _, piece in sorted(pieces))
    try:
        stripe: bytes = _driver(r, c, code).decode([piece for _, piece in pieces])
    except ECDriverError as error:
        raise StateLost(f"fragments ({r}, {c}) of code {code} do not decode: {error}; use a savepoint") from error
    return stripe


def _code_for(r: int, c: int) -> str:
    if r < 1 or c < 0:
        raise ConfigError(f"erasure coding: wanted r >= 1 raw and c >= 0 check fragments, got r={r}, c={c}")
    if r == 1:
        return COPY
    return SPLIT if c == 0 else available_code()


@lru_cache(maxsize=1)
def available_code() -> str:
    """The first of CODES that works here."""
    for code in CODES:
        try:
            _driver(2, 1, code)
        except ECDriverError:
            continue
        return code
    raise ConfigError(
        f"erasure coding: liberasurecode has none of {', '.join(CODES)}; install liberasurecode with ISA-L"
    )


@lru_cache(maxsize=64)
def _driver(r: int, c: int, code: str) -> Any:
    return ECDriver(k=r, m=c, ec_type=code)


def _fresh_digest(label: Label, index: int, r: int, c: int, code: str) -> xxh3_64:
    return xxh3_64(repr((label.task, label.epoch, label.previous, label.base, index, r, c, code)).encode())


def _sealed(digest: xxh3_64, length: int, pieces: int) -> int:
    sealed = digest.copy()
    sealed.update(repr((length, pieces)).encode())
    return sealed.intdigest()
