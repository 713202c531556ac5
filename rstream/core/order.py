"""The order log of a task: what a step's result depends on beyond state and input, one record a step.

A record says which channel was consumed and how many elements of it (or which split was read, or that a tick or timer
fired), and the clock reading of that step. A position is an index in a task's whole sequence of records and is never
reset. Replaying the records from a snapshot's position on gives the very tuples that were emitted before.
"""

from __future__ import annotations

from collections.abc import Sequence

CONSUME, READ, SPLIT_END, TICK, TIMER, LOOK, SWITCH, GROW, HAND, DRAIN, EXPIRE, SKIP = range(12)

Record = tuple[int, int, int, int, float]
"""(kind, a, b, count, now_s): CONSUME has the edge and the sender's number, READ and SPLIT_END the split's number.
LOOK has a lane of event time, which is idle if the count is 1; with 0 only a watermark may be due. SWITCH has an
out-edge and its version, GROW an in-edge and its number of senders, HAND the slots (low, high) and the version that
they leave for, DRAIN how many held tuples. EXPIRE is a CONSUME, and SKIP a READ, of tuples that were dropped."""


class OrderLog:
    """The records of one task from some position on.

    >>> log = OrderLog()
    >>> log.append((TICK, 0, 0, 0, 1.5)); log.append((TICK, 0, 0, 0, 2.5))
    >>> log.end, log.since(1)
    (2, [(3, 0, 0, 0, 2.5)])
    """

    __slots__ = ("base", "records")

    def __init__(self, base: int = 0, records: Sequence[Record] = ()) -> None:
        self.base = base
        self.records: list[Record] = list(records)

    @property
    def end(self) -> int:
        """The position after the newest record."""
        return self.base + len(self.records)

    def append(self, record: Record) -> None:
        """Add the record of a step, before the step is applied."""
        self.records.append(record)

    def since(self, position: int) -> list[Record]:
        """The records from a position on, as far as they are held."""
        return self.records[max(0, position - self.base) :]

    def trim(self, position: int) -> None:
        """Forget what a safe snapshot covers."""
        if position > self.base:
            del self.records[: position - self.base]
            self.base = position

    def extend(self, start: int, records: Sequence[Record]) -> bool:
        """Take what is new of a range that begins at `start`; False where it does not follow on what is held."""
        if start > self.end:
            if self.records:
                return False
            self.base = start
        self.records.extend(tuple(record) for record in records[max(0, self.end - start) :])  # type: ignore[misc]
        return True
