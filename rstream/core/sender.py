"""What a sender knows of one of its partitions: records that are not covered yet, and which may be sent. No I/O.

It is the upstream end of a channel into a topology: it retains until the source has covered, and sends again from there
to whoever takes the lane over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from rstream import values as codec
from rstream.core.ingest_messages import Opened, Progress, Push
from rstream.errors import RunError
from rstream.operators.ingest import EPOCH_BITS

UNTAKEN_BYTES_MAX = 4 << 20
"""So much may be on its way, be it few records or many."""
RETAINED_BYTES_MAX = 64 << 20


class _Batch(NamedTuple):
    first: int
    size: int
    kind: int
    body: bytes

    @property
    def end(self) -> int:
        return self.first + self.size


class Sender:
    """One partition of a sender, in one epoch.

    >>> sender = Sender()
    >>> sender.opened(Opened(covered=2, taken=2, received=2, window=10))
    >>> sender.next  # the first two records are covered: begin with the third
    2
    >>> sender.add(["c", "d"]); [push.first for push, _ in sender.outgoing()]
    [2]
    >>> sender.progress(Progress(4, 4, 0, [])); sender.is_covered
    True
    """

    def __init__(self, epoch: int = 0) -> None:
        self.first = epoch << EPOCH_BITS
        self.next = self.first
        self.covered = self.taken = self.sent = self.first
        self.refused: list[tuple[int, str]] = []
        """(place in the epoch, reason) of records that the source did not take."""
        self.retained_bytes = self.untaken_bytes = 0
        self._log: deque[_Batch] = deque()
        self._sent_batches = 0
        """How many batches of the log have been sent."""
        self._want = self._window = 0
        self._begun = False

    def opened(self, opened: Opened) -> None:
        """A stream is open: go on where the source is."""
        if not self._begun:
            self._begun = True
            self.next = self.covered = max(self.first, opened.covered)
        elif opened.covered < self.covered:
            raise RunError(
                f"the source begins again at record {self.place(opened.covered)}, and what was before record "
                f"{self.place(self.covered)} has been let go: was the topology started anew? Start this anew too"
            )
        self._window, self._want = opened.window, 0
        self.sent = max(self.first, opened.received)
        self._sent_batches = sum(batch.end <= self.sent for batch in self._log)
        self._note(opened.covered, opened.taken)

    def progress(self, progress: Progress) -> None:
        """The source has come further."""
        self._want = progress.want
        known = {place for place, _ in self.refused}
        self.refused += [
            (self.place(offset), reason) for offset, reason in progress.refused if self.place(offset) not in known
        ]
        self._note(progress.covered, progress.taken)

    def _note(self, covered: int, taken: int) -> None:
        self.covered, self.taken = max(self.covered, covered), max(self.first, taken)
        while self._log and self._log[0].end <= self.covered:
            self.retained_bytes -= len(self._log.popleft().body)
            self._sent_batches = max(0, self._sent_batches - 1)
        self.untaken_bytes = sum(len(batch.body) for batch in self._log if self.taken < batch.end <= self.sent)

    def place(self, offset: int) -> int:
        """An offset as a count of this epoch's records."""
        return max(0, offset - self.first)

    def add(self, values: list[Any]) -> None:
        """Take records over; they are kept until they are covered."""
        kind, body = codec.encode(values)
        if kind == codec.GENERAL:
            self._add_apart(values)
            return
        self._log.append(_Batch(self.next, len(values), kind, body))
        self.next += len(values)
        self.retained_bytes += len(body)

    def _add_apart(self, values: list[Any]) -> None:
        """Rows and single values go in batches of their own; everything else has no place at the door of a topology."""
        if len(values) == 1:
            raise RunError(
                "only str, int, float, bool, bytes, None and tuples of these can be sent to a topology, "
                f"integers of at most 64 bits: got {values[0]!r:.200}"
            )
        for _, alike in groupby(values, key=lambda value: type(value) is tuple):
            some = list(alike)
            for each in [some] if len(some) < len(values) else [[value] for value in some]:
                self.add(each)

    @property
    def is_over(self) -> bool:
        """The source is in a later epoch: all of this one was covered long ago."""
        return self.covered >> EPOCH_BITS > self.first >> EPOCH_BITS

    @property
    def has_room(self) -> bool:
        """More may be added."""
        return self.retained_bytes < RETAINED_BYTES_MAX

    @property
    def is_sent(self) -> bool:
        """Everything that was added is on its way."""
        return self.sent >= self.next

    @property
    def is_covered(self) -> bool:
        """Everything that was added is safe in the topology."""
        return self.covered >= self.next

    def outgoing(self) -> Iterator[tuple[Push, bytes]]:
        """What may be sent now."""
        while self._sent_batches < len(self._log):
            batch = self._log[self._sent_batches]
            within = batch.first - self.taken < self._window and self.untaken_bytes < UNTAKEN_BYTES_MAX
            if not within and batch.first >= self._want:
                return
            self._sent_batches += 1
            if batch.end <= self.sent:
                continue  # the source has had it from a sender before us
            self.sent = batch.end
            self.untaken_bytes += len(batch.body)
            yield Push(batch.first, batch.size, batch.kind), batch.body
