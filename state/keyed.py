"""The keyed state of one task: named values, maps and lists for each key.

The engine sets `current` before each tuple and `now_s` before each step; operators ask for `value`, `map` or `list`
and never name the key. One task has one `KeyedState`. It does no I/O: entries are plain values that the caller
encodes, sends and stores. A range of slots moves alone; a snapshot is packed in slices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar, cast, overload

from rstream.errors import ProtocolError, TopologyError
from rstream.state.cut import SnapshotCut
from rstream.state.kinds import KIND_NAMES, KINDS, ListState, MapState, ValueState
from rstream.state.table import SLOTS, Entry, Scope, Table, detached

T = TypeVar("T")
CELL_BYTES = 100
"""What a cell costs in Python beside its key and value."""

SPARSE = 16
"""State is sparse in a range where fewer than one slot in so many has any."""


class KeyedState(Scope):
    """All keyed state of one task.

    >>> state = KeyedState(slot_of=len)
    >>> count = state.value("count", default=0)
    >>> for state.current in ["a", "b", "a"]:
    ...     count.set(count.get() + 1)
    >>> list(state.items("count"))
    [('a', 2), ('b', 1)]
    """

    __slots__ = ("_cut", "_tables", "expires")

    def __init__(self, slot_of: Callable[[Any], int]) -> None:
        super().__init__(slot_of)
        self._tables: dict[str, Table] = {}
        self._cut: SnapshotCut | None = None
        self.expires = False
        """Some state has a time to live, so that sweeping is worth a call."""

    # For operators.

    @overload
    def value(self, name: str, default: None = None, ttl_s: float | None = None) -> ValueState[Any]: ...
    @overload
    def value(self, name: str, default: Callable[[], T], ttl_s: float | None = None) -> ValueState[T]: ...
    @overload
    def value(self, name: str, default: T, ttl_s: float | None = None) -> ValueState[T]: ...
    def value(self, name: str, default: Any = None, ttl_s: float | None = None) -> ValueState[Any]:
        """The value state `name`. A callable `default` makes the default anew for each key.

        Asking again gives the same state; default and time to live are those of the last call.
        """
        table = cast(ValueState[Any], self._table(name, "v", ttl_s))
        table.default = default
        return table

    def map(self, name: str, ttl_s: float | None = None) -> MapState:
        """The map state `name`."""
        return cast(MapState, self._table(name, "m", ttl_s))

    def list(self, name: str, ttl_s: float | None = None) -> ListState:
        """The list state `name`."""
        return cast(ListState, self._table(name, "l", ttl_s))

    def cells(self, name: str) -> dict[Any, Any]:
        """The raw dict (key -> value) of a value state without time to live; only to look at.

        Write through `writable`, or the change is missing from the next snapshot.
        """
        return self._values(name)._cells

    def writable(self, name: str, keys: Iterable[Any]) -> dict[Any, Any]:
        """The raw dict of a value state, ready for writes to `keys`: the fast way for whole batches.

        Valid until the end of the step: ask again for the next batch, because a snapshot may have been cut. Read any
        key; write (or change in place) only those named. To delete, set `current` and use `clear`.

        >>> state = KeyedState(slot_of=len)
        >>> batch = ["a", "b", "a"]
        >>> cells = state.writable("count", batch)
        >>> for key in batch:
        ...     cells[key] = cells.get(key, 0) + 1
        >>> cells
        {'a': 2, 'b': 1}
        """
        return self._values(name).writable(keys)

    # For queries and tests.

    def names(self) -> Iterable[str]:
        """The names of all states, sorted."""
        return sorted(self._tables)

    def keys(self, name: str) -> Iterator[Any]:
        """All live keys of a state, by slot: the same order before and after a recovery."""
        table = self._tables.get(name)
        return iter(()) if table is None else table.live_keys()

    def items(self, name: str) -> Iterator[tuple[Any, Any]]:
        """All live keys of a state with a copy of what each holds."""
        table = self._tables.get(name)
        if table is not None:
            for key in table.live_keys():
                yield key, detached(table._cells[key])

    def cell_count(self) -> int:
        """How many cells there are in all states together."""
        return sum(table.cell_count() for table in self._tables.values())

    def rough_bytes(self) -> int:
        """About how much memory the cells take; the first of each state stands for the others.

        May be asked from another thread than the one that writes: it then answers for a moment in between.
        """
        total = 0
        for table in list(self._tables.values()):
            with suppress(RuntimeError, StopIteration):  # a write came in between
                key, cell = next(iter(table._cells.items()))
                inner = len(cell) * CELL_BYTES if isinstance(cell, dict | list) else 0
                total += len(table._cells) * (CELL_BYTES + sys.getsizeof(key) + sys.getsizeof(cell) + inner)
        return total

    def change_count(self) -> int:
        """How many cells have changed or gone since the last cut: about what the next delta will hold."""
        return sum(table.change_count() for table in self._tables.values())

    # Time to live.

    def sweep(self, limit: int) -> int:
        """Delete at most `limit` cells whose time is over; the number deleted. Nobody can tell when it is done."""
        deleted = 0
        for table in self._tables.values():
            deleted += table.sweep(limit - deleted)
        return deleted

    # Ranges of slots that move between tasks.

    def export_range(self, lo: int, hi: int) -> Iterator[Entry]:
        """Everything of the keys with lo <= slot < hi, expiry included; costs what moves, not what stays."""
        for name in sorted(self._tables):
            yield from self._tables[name].export(lo, hi)

    def import_range(self, entries: Iterable[Entry]) -> None:
        """Take over what another task exported; the next delta has it."""
        for entry in entries:
            self._table_of(entry).apply(entry, track=True)

    def range_end(self, lo: int, hi: int, cells_max: int) -> int:
        """Where a part of a range ends that begins at `lo` and has about so many cells; at least one slot."""
        for table in self._tables.values():
            table.catch_up()
        indexes = [table._index for table in self._tables.values()]
        slots: Iterable[int] = range(lo, hi)
        if sum(map(len, indexes)) * SPARSE < hi - lo:
            # Few slots have anything: to look at those alone takes less than to walk through all the others.
            slots = sorted(slot for slot in set().union(*indexes) if lo <= slot < hi)
        cells = 0
        for slot in slots:
            for index in indexes:
                cells += len(index.get(slot, ()))
            if cells >= cells_max:
                return slot + 1
        return hi

    def drop_range(self, lo: int, hi: int) -> int:
        """Delete everything of the keys with lo <= slot < hi; the number of cells deleted."""
        dropped = 0
        for table in self._tables.values():
            for slot in table.slots(lo, hi):
                for key in [*table._index[slot]]:
                    dropped += key in table._cells
                    table.drop(key)
        return dropped

    # Snapshots.

    def begin_snapshot(self, full: bool) -> SnapshotCut:
        """Cut a snapshot here: a base if `full`, else what changed since the cut before, deletes included.

        Without a base to build on the cut is full whatever is asked for; `cut.full` says which it is.
        """
        if self._cut is not None:
            raise ProtocolError("keyed state: a snapshot is still being packed; finish or abandon it first")
        self._cut = SnapshotCut(self._tables.values(), full or not self.based, self._snapshot_ended)
        self.based = True
        return self._cut

    def _snapshot_ended(self, complete: bool) -> None:
        self._cut = None
        self.based = complete

    def restore(self, entries: Iterable[Entry]) -> None:
        """Apply entries of a base and then of its deltas, oldest first; in as many calls as suits the caller."""
        for entry in entries:
            if entry[0] != "d":
                self._table_of(entry).apply(entry, track=False)
            elif entry[1] in self._tables:
                self._tables[entry[1]].forget(entry[2])
        self.based = True

    def validate(self) -> None:
        """Check the invariants of every table; for tests."""
        for table in self._tables.values():
            table.validate()

    def _table(self, name: str, kind: str, ttl_s: float | None) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = KINDS[kind](self, name)
        elif table.kind != kind:
            raise TopologyError(
                f"state {name!r}: asked for as a {KIND_NAMES[kind]}, but it is a {KIND_NAMES[table.kind]}; "
                "give the two different names"
            )
        table.ttl_s = ttl_s
        self.expires = self.expires or ttl_s is not None
        return table

    def _values(self, name: str) -> ValueState[Any]:
        table = self._tables.get(name)
        return cast(ValueState[Any], self._table(name, "v", None if table is None else table.ttl_s))

    def _table_of(self, entry: Entry) -> Table:
        name, kind = entry[1], "m" if entry[0] == "x" else entry[0]
        table = self._tables.get(name)
        if table is None:
            return self._table(name, kind, None)
        if table.kind != kind:
            raise TopologyError(
                f"state {name!r}: the snapshot holds a {KIND_NAMES[kind]}, the operator uses a "
                f"{KIND_NAMES[table.kind]}; rename the state or start without the snapshot"
            )
        return table


__all__ = ["SLOTS", "KeyedState", "ListState", "MapState", "SnapshotCut", "ValueState"]
