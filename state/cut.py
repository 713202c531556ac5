"""A snapshot in the making: what one task's state was at the moment of the cut, handed out slice by slice.

Between two slices the task goes on. A write to something not yet handed out first keeps the old cell (`keep`), so
that the slices together are the state at the cut and nothing later. A full cut walks the index by slot, a delta walks
the keys changed since the cut before; neither lists all keys at once, so opening a cut takes no time that grows with
the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from rstream.state.table import ABSENT, SLOTS, Entry, Table

CHUNK_ITEMS: Final = 256
"""A map or list with more items than this is handed out in pieces."""

BATCH_KEYS: Final = 64
"""So many small cells are packed at once, because one at a time costs more."""

FREED_KEYS: Final = 8
"""Freeing so many keys takes about as long as packing one."""

SPARSE_SLOTS: Final = 4_096
"""Up to this many slots in use are sorted at once; above, walking the whole range costs less."""


class TableCut:
    """The part of a cut that belongs to one table."""

    __slots__ = ("_below", "_dirty", "_full", "_gone", "_kept", "_table")

    def __init__(self, table: Table, full: bool) -> None:
        table.catch_up()
        table.before_cut()
        self._table = table
        self._full = full
        self._dirty, self._gone = table._dirty, table._gone
        table._dirty, table._gone = {}, set()
        table._clean = len(table._cells)
        self._kept: dict[Any, tuple[Any, float | None]] = {}
        self._below = 0  # a full cut is through with all slots below
        table._cut = self

    def keep(self, key: Any) -> None:
        """Save the cell of `key` as it is now, unless it has been handed out already."""
        if key in self._kept:
            return
        table = self._table
        if (table._scope.slot_of(key) < self._below) if self._full else (key not in self._dirty):
            return
        cell = table._cells.get(key, ABSENT)
        self._kept[key] = (cell if cell is ABSENT else table.copied(cell), table._expiry.get(key))

    def kept_cell(self, key: Any) -> Any:
        """The saved copy of a cell, or ABSENT: for kinds that hand out what is inside a cell."""
        return self._kept.get(key, (ABSENT, None))[0]

    def close(self) -> None:
        """Let the table forget this cut."""
        self._table._cut = None
        self._table.after_cut()

    def batches(self) -> Iterator[list[Entry]]:
        """The entries in batches; what a batch holds counts as handed out from the moment it is yielded."""
        if self._full:
            yield from self._all_cells()
        else:
            name = self._table.name
            while self._gone:
                yield [("d", name, self._gone.pop())]
            while self._dirty:
                if self._table.kind == "v":
                    some = min(BATCH_KEYS, len(self._dirty))
                    yield self._values([self._dirty.popitem()[0] for _ in range(some)])
                else:
                    key, mark = self._dirty.popitem()
                    copied = key in self._kept
                    yield from self._packed(key, *self._taken(key), mark, copied)
        self.close()

    def _all_cells(self) -> Iterator[list[Entry]]:
        table, index = self._table, self._table._index
        slots: Iterable[int] = sorted(index) if len(index) <= SPARSE_SLOTS else range(SLOTS)
        for slot in slots:
            keys = index.get(slot, ())
            if table.kind == "v":
                ready = self._values(keys)
                self._below = slot + 1
                if ready:
                    yield ready
                continue
            ready = []
            large: list[Any] = []
            for key in keys:
                copied = key in self._kept
                cell, expires_s = self._taken(key)
                if cell is ABSENT:
                    continue
                if table.weight(cell, ABSENT) > CHUNK_ITEMS:
                    self._kept[key] = (cell if copied else table.copied(cell), expires_s)
                    large.append(key)
                else:
                    ready.extend(table.pieces(key, cell, expires_s, ABSENT))
            self._below = slot + 1
            if ready:
                yield ready
            for key in large:
                yield from self._streamed(key, ABSENT)
        self._below = SLOTS
        while self._kept:  # what was deleted since the cut is in no slot any more
            key, (cell, expires_s) = self._kept.popitem()
            yield from self._packed(key, cell, expires_s, ABSENT, copied=True)
        # Freeing millions of keys in one go would hold the run loop.
        while self._dirty or self._gone:
            for _ in range(min(FREED_KEYS, len(self._dirty))):
                self._dirty.popitem()
            for _ in range(min(FREED_KEYS, len(self._gone))):
                self._gone.pop()
            yield []

    def _values(self, keys: Iterable[Any]) -> list[Entry]:
        """The cells of some keys of a value table: there each cell is one entry, which can be had faster."""
        name, kept, cells, expiry = self._table.name, self._kept, self._table._cells, self._table._expiry
        if not kept and not expiry:
            return [("v", name, key, cells[key], None) for key in keys if key in cells]
        entries: list[Entry] = []
        for key in keys:
            cell, expires_s = kept.pop(key) if key in kept else (cells.get(key, ABSENT), expiry.get(key))
            if cell is not ABSENT:
                entries.append(("v", name, key, cell, expires_s))
        return entries

    def _taken(self, key: Any) -> tuple[Any, float | None]:
        """The cell as it was at the cut, from now on handed out."""
        kept = self._kept.pop(key, None)
        return kept or (self._table._cells.get(key, ABSENT), self._table._expiry.get(key))

    def _packed(self, key: Any, cell: Any, expires_s: float | None, mark: Any, copied: bool) -> Iterator[list[Entry]]:
        if cell is ABSENT:
            return
        if self._table.weight(cell, mark) <= CHUNK_ITEMS:
            yield list(self._table.pieces(key, cell, expires_s, mark))
        else:
            self._kept[key] = (cell if copied else self._table.copied(cell), expires_s)
            yield from self._streamed(key, mark)

    def _streamed(self, key: Any, mark: Any) -> Iterator[list[Entry]]:
        """A large cell piece by piece, from a copy that stays in `_kept` so that hand-outs find it."""
        cell, expires_s = self._kept[key]
        for piece in self._table.pieces(key, cell, expires_s, mark):
            yield [piece]
        del self._kept[key]


class SnapshotCut:
    """An open snapshot of a task's keyed state; from `KeyedState.begin_snapshot`.

    The entries of a slice refer to live values: encode them before the task takes its next step.
    """

    def __init__(self, tables: Iterable[Table], full: bool, on_end: Callable[[bool], None]) -> None:
        self.full = full
        self._cuts = [TableCut(table, full) for table in tables]
        self._batches = (batch for cut in self._cuts for batch in cut.batches())
        self._on_end = on_end
        self.open = True

    def next_slice(self, max_items: int) -> list[Entry] | None:
        """About `max_items` entries (a little more where they belong together), or None when all are out."""
        if not self.open:
            return None
        entries: list[Entry] = []
        budget = max_items
        for batch in self._batches:
            entries += batch
            budget -= _item_count(batch)
            if budget <= 0:
                return entries
        self._end(complete=True)
        return entries or None

    def abandon(self) -> None:
        """Give the cut up; the next snapshot is then a full one, whatever is asked for."""
        if self.open:
            for cut in self._cuts:
                cut.close()
            self._end(complete=False)

    def _end(self, complete: bool) -> None:
        self.open = False
        self._on_end(complete)


def _item_count(batch: list[Entry]) -> int:
    """How much a batch counts against the size of a slice; an empty one stands for some tidying up."""
    if not batch or batch[0][0] == "v":  # a batch is of one table
        return len(batch) or 1
    return sum(map(len, batch)) - 2 * len(batch)
