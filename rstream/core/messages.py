"""What workers say to each other. A frame is a header, written with msgspec, and a body of bytes.

A link runs from the worker that sends data to the one that receives it. GREET, DATA, ORDER, PIECE, END, SAFE and PULL
go one way, HELLO, ACK, HELD and PULLED come back. Every message carries the incarnation of its sender; all but the
greeting and PULL belong to a session, which the receiver opens with HELLO.
"""

from __future__ import annotations

import msgspec

from rstream.core.channel import ChannelId, TaskId
from rstream.core.order import Record
from rstream.core.restoring import Piece

Epoch = tuple[int, int]


class Greet(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """The dialling side introduces itself; `token` proves that it belongs to this topology."""

    worker: str
    incarnation: int
    token: str


class Hello(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """The receiver opens a session: for each channel what it has received (with its digest, and the offset since which
    that counts), consumed and covered.

    `held` says for each task of the sender up to which position its records are held.
    """

    incarnation: int
    session: int
    channels: list[tuple[ChannelId, int, int, int, int, int]]
    held: list[tuple[TaskId, int]]


class Data(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Elements of one channel from offset `first` on; the frame's body holds them."""

    incarnation: int
    session: int
    channel: ChannelId
    first: int
    count: int
    kind: int
    born_s: float


class Ack(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """For each channel what the receiver has consumed and covered by now."""

    incarnation: int
    session: int
    channels: list[tuple[ChannelId, int, int]]


class Order(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """New records of some tasks: (task, position of the first, records, stable position)."""

    incarnation: int
    session: int
    logs: list[tuple[TaskId, int, list[Record], int]]
    serial: int = 0
    """Above 0: say that the records arrived, for a sink's commit waits for it."""


class FragmentPiece(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """A piece of a fragment of a snapshot, to hold; the body is the piece. They come in order, from number 0 on."""

    incarnation: int
    session: int
    task: TaskId
    epoch: Epoch
    previous: Epoch | None
    base: Epoch | None
    index: int
    r: int
    c: int
    code: str
    number: int


class FragmentEnd(msgspec.Struct, tag=10, array_like=True, frozen=True):
    """All pieces of a fragment were sent; with what a checksum is checked against."""

    incarnation: int
    session: int
    task: TaskId
    epoch: Epoch
    index: int
    position: int
    length: int
    checksum: int


class FragmentHeld(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """So many pieces of a fragment have arrived, none if they are to be sent again; `whole` once it is held."""

    incarnation: int
    session: int
    task: TaskId
    epoch: Epoch
    index: int
    pieces: int
    whole: bool


class Safe(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """A snapshot that builds on `base` is safe: those that it does not build on may go."""

    incarnation: int
    session: int
    task: TaskId
    epoch: Epoch
    base: Epoch


class Pull(msgspec.Struct, tag=8, array_like=True, frozen=True):
    """The new host of a task asks for some pieces of a fragment."""

    incarnation: int
    task: TaskId
    epoch: Epoch
    index: int
    first: int
    count: int


class Pulled(msgspec.Struct, tag=9, array_like=True, frozen=True):
    """One of the pieces that were asked for; the body is the piece."""

    incarnation: int
    task: TaskId
    epoch: Epoch
    piece: Piece


class Probe(msgspec.Struct, tag=30, array_like=True, frozen=True):
    """Asks for an echo, to measure what one hop takes; `sent_s` is the asking side's clock."""

    incarnation: int
    session: int
    sent_s: float


class Echo(msgspec.Struct, tag=31, array_like=True, frozen=True):
    """The answer to a probe."""

    incarnation: int
    session: int
    sent_s: float


class Witnessed(msgspec.Struct, tag=20, array_like=True, frozen=True):
    """The records of the order with this serial are held here, in another failure domain than the sender's."""

    incarnation: int
    session: int
    serial: int


Message = (
    Probe
    | Echo
    | Greet
    | Hello
    | Data
    | Ack
    | Order
    | FragmentPiece
    | FragmentEnd
    | FragmentHeld
    | Safe
    | Pull
    | Pulled
    | Witnessed
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode


class Frame(msgspec.Struct, frozen=True):
    """One message on its way: the encoded header, and the body as it was encoded for the log."""

    header: bytes
    body: bytes = b""


def frame(message: Message, body: bytes = b"") -> Frame:
    """A message as a frame."""
    return Frame(encode(message), body)
