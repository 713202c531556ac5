"""What senders and the workers of an ingest source say to each other, in frames as between workers.

A sender opens a stream with LOOK, answered with PLACES, or with OPEN at the worker that has its lane. Then it pushes
records, numbered, and is told how far they were taken into the topology and how far they are covered: what is covered
it may forget, everything else it must be able to send again. ELSEWHERE asks it to look again.
"""

from __future__ import annotations

import hashlib

import msgspec

VERSION = 1


class Look(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """Where do records of this source go? An empty step means the only one that there is."""

    token: str
    step: str
    version: int = VERSION


class Open(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """A partition of a sender wants to push to its lane."""

    token: str
    step: str
    lane: int
    part: int
    version: int = VERSION


class Push(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Records from offset `first` on; the frame's body holds them."""

    first: int
    count: int
    kind: int


class Places(msgspec.Struct, tag=10, array_like=True, frozen=True):
    """Who takes which lane of a source, all workers that can be asked again, and the columns that are wanted."""

    topology: str
    run: str
    step: str
    lanes: list[str]
    workers: list[str]
    columns: list[tuple[str, str]] | None


class Opened(msgspec.Struct, tag=11, array_like=True, frozen=True):
    """The stream is open: what of the partition is covered, taken and received, and how much may be on its way."""

    covered: int
    taken: int
    received: int
    window: int


class Progress(msgspec.Struct, tag=12, array_like=True, frozen=True):
    """How far a partition has come; up to `want` records are to be sent whatever the window says."""

    covered: int
    taken: int
    want: int
    refused: list[tuple[int, str]]


class Elsewhere(msgspec.Struct, tag=13, array_like=True, frozen=True):
    """The lane is not here, or not yet: look again."""


class Refusal(msgspec.Struct, tag=14, array_like=True, frozen=True):
    """It makes no sense to go on; `reason` is for people."""

    reason: str


Request = Look | Open | Push
Answer = Places | Opened | Progress | Elsewhere | Refusal

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def token_of(topology_token: str) -> str:
    """The token of a topology's senders: it lets nobody speak as a worker.

    >>> token_of("secret") != token_of("other")
    True
    """
    return hashlib.blake2b(b"ingest/" + topology_token.encode(), digest_size=16).hexdigest()
