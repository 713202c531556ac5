"""The conformance kit for links: what the protocol relies on from whatever carries frames between two workers.

A link has two ends. An end has `send(frames)`, which never blocks, `close()` and `closed`; arriving frames come out as
(header, body). `check_link(make)` makes connected pairs and raises an AssertionError that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from rstream.clock import SystemClock, sleep
from rstream.core.messages import Frame

Arrived = list[tuple[bytes, bytes]]


class End(Protocol):
    """One end of a link."""

    closed: bool

    def send(self, frames: Iterable[Frame]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LinkPair:
    """Two connected ends. `turn` does what the loop would (flush, receive) and gives what arrived left and right.

    `end` lets go of what made the pair, a listener for example.
    """

    left: End
    right: End
    turn: Callable[[], tuple[Arrived, Arrived]]
    end: Callable[[], None] = lambda: None


Make = Callable[[], LinkPair]

LARGE_BYTES = 8 << 20


def check_link(make: Make, *, timeout_s: float = 20.0) -> None:
    """Run every check against the pairs that `make()` gives."""
    for check in (_frames_arrive_whole_and_in_order, _large_frames_pass_both_ways, _the_end_is_seen):
        pair = make()
        try:
            check(_Trial(pair, timeout_s))
        finally:
            pair.left.close()
            pair.right.close()
            pair.end()


class _Trial:
    """A pair with everything that has arrived on it so far."""

    def __init__(self, pair: LinkPair, timeout_s: float) -> None:
        self.pair, self.timeout_s = pair, timeout_s
        self.left: Arrived = []
        self.right: Arrived = []

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the link work until the condition holds."""
        clock = SystemClock()
        end_s = clock.monotonic() + self.timeout_s
        while True:
            left, right = self.pair.turn()
            self.left += left
            self.right += right
            if condition():
                return
            if clock.monotonic() > end_s:
                raise AssertionError(f"link: waited {self.timeout_s:g} s for {what}")
            if not left and not right:
                sleep(0.001)


def _frames_arrive_whole_and_in_order(trial: _Trial) -> None:
    sent = [(b"header %d" % number, b"x" * (number * 37 % 5000)) for number in range(500)]
    sent += [(b"only a header", b""), (b"", b"only a body"), (b"\x00\xff\n", b"\x00\xff\n")]
    for start in range(0, len(sent), 10):  # in bundles, as the loop sends them, and one call without any
        trial.pair.left.send([Frame(header, body) for header, body in sent[start : start + 10]])
        trial.pair.right.send(Frame(header, body) for header, body in sent[start : start + 10])
    trial.pair.left.send([])
    trial.until(lambda: len(trial.right) >= len(sent) and len(trial.left) >= len(sent), "all frames to arrive")
    _same_frames(trial.right, sent, "left to right")
    _same_frames(trial.left, sent, "right to left")


def _large_frames_pass_both_ways(trial: _Trial) -> None:
    """Both sides send before either reads: a link whose `send` waits for the other side would stand still here."""
    body = bytes(range(256)) * (LARGE_BYTES // 256)
    for _ in range(2):
        trial.pair.left.send([Frame(b"to the right", body)])
        trial.pair.right.send([Frame(b"to the left", body)])
    trial.until(lambda: len(trial.left) >= 2 and len(trial.right) >= 2, "frames of 8 MB both ways")
    _same_frames(trial.right, [(b"to the right", body)] * 2, "left to right")
    _same_frames(trial.left, [(b"to the left", body)] * 2, "right to left")


def _the_end_is_seen(trial: _Trial) -> None:
    trial.pair.left.send([Frame(b"hello")])
    trial.until(lambda: bool(trial.right), "a frame")
    if trial.pair.left.closed or trial.pair.right.closed:
        raise AssertionError("link: says that it is closed while it is open")
    trial.pair.left.close()
    trial.pair.left.close()  # a second time changes nothing
    if not trial.pair.left.closed:
        raise AssertionError("link: an end that was closed says that it is open")
    trial.pair.left.send([Frame(b"too late")])  # the loop may not know yet; this must neither raise nor arrive
    trial.until(lambda: trial.pair.right.closed, "the other end to see that the link is closed")
    trial.pair.turn()
    if (b"too late", b"") in trial.right:
        raise AssertionError("link: a frame arrived that was sent after the end")


def _same_frames(came: Arrived, sent: Arrived, way: str) -> None:
    if len(came) != len(sent):
        raise AssertionError(f"link: {len(sent)} frames were sent {way}, {len(came)} arrived")
    for number, (arrived, wanted) in enumerate(zip(came, sent, strict=True)):
        if (bytes(arrived[0]), bytes(arrived[1])) != wanted:
            raise AssertionError(f"link: frame {number} {way} arrived changed: wanted {wanted!r:.200}")
