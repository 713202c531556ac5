"""One named state of one task: its cells by key, the index by slot, and what has changed since the last snapshot.

`Table` holds what value, map and list state have in common; the three kinds are in `rstream.state.kinds`. The rule
behind everything here: a key that is in `_dirty` has been registered since the last cut (indexed, and kept for an
open cut), so a write that finds its key there is a plain dict write. Only the first write of a key after a cut pays
more. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from copy import deepcopy
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

if TYPE_CHECKING:
    from rstream.state.cut import TableCut

SLOTS: Final = 65_536
"""Size of the key space; keys hash into slots, and ranges of slots move between tasks."""

UNTRACKED_KEYS_MAX: Final = 65_536
"""While there is no base to take deltas from, `_dirty` only saves work: it is emptied when it gets this long."""

HOT_CELLS_MAX: Final = 16_384
"""Up to so many cells a table counts as changed altogether where most of them change anyway: packing all of them takes
a few milliseconds, and looking a key up for each write costs more."""

HOT_CELLS_MIN: Final = 256
"""A smaller table soon has all its keys registered, and a write then looks none up."""

HOT_CUTS: Final = 8
"""After so many cuts it is found out again what really changes."""

Entry = tuple[Any, ...]
"""A piece of state as plain values: `(op, name, key, ...)`; `docs/state.md` lists the ops."""

ABSENT: Final = object()

IMMUTABLE: Final = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, Decimal, UUID,
        datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
    }
)  # fmt: skip
"""Types whose values can be handed out freely. A type missing here costs time, never correctness."""


def is_frozen(value: Any) -> bool:
    """Whether nobody can change `value` in place; says no when in doubt.

    >>> is_frozen((1, "a")), is_frozen((1, ["a"]))
    (True, False)
    """
    kind = type(value)
    return kind in IMMUTABLE or ((kind is tuple or kind is frozenset) and IMMUTABLE.issuperset(map(type, value)))


def detached(value: Any) -> Any:
    """`value` itself when nobody can change it, else a copy that shares nothing with it that could be changed.

    >>> held = {"a": 1}
    >>> detached(held) is held, detached(held) == held
    (False, True)
    """
    if is_frozen(value):
        return value
    kind = type(value)
    # Flat containers are common and can be large; a deep copy takes seven times as long.
    if (kind is list or kind is set) and IMMUTABLE.issuperset(map(type, value)):
        return value.copy()
    if kind is dict and IMMUTABLE.issuperset(map(type, value)) and IMMUTABLE.issuperset(map(type, value.values())):
        return value.copy()
    return deepcopy(value)


class Scope:
    """What all tables of one task share: the key and the time of the tuple being processed."""

    __slots__ = ("based", "current", "now_s", "slot_of")

    def __init__(self, slot_of: Callable[[Any], int]) -> None:
        self.slot_of = slot_of
        self.current: Any = None
        self.now_s = 0.0
        self.based = False


class Table(ABC):
    """The cells of one named state, by key."""

    kind: ClassVar[str]
    __slots__ = (
        "_cells", "_clean", "_cut", "_dirty", "_expiry", "_gone", "_handed_out", "_index", "_scope", "name", "ttl_s",
    )  # fmt: skip

    def __init__(self, scope: Scope, name: str) -> None:
        self._scope = scope
        self.name = name
        self.ttl_s: float | None = None
        self._cells: dict[Any, Any] = {}
        self._dirty: dict[Any, Any] = {}
        # How many cells are not in `_dirty`. At 0 a key that has a cell has been written since the cut, so that a write
        # need not look into a second large dict, which costs more than the write itself.
        self._clean = 0
        # Once batches get the dict itself: how many of its cells are registered. Those behind were added by a batch.
        self._handed_out: int | None = None
        self._gone: set[Any] = set()
        self._index: dict[int, dict[Any, None]] = {}
        # Oldest write first: with one ttl per table the keys that expire next stand in front.
        self._expiry: OrderedDict[Any, float] = OrderedDict()
        self._cut: TableCut | None = None

    # What a kind has to say about its cells.

    @abstractmethod
    def fresh_mark(self, key: Any) -> Any:
        """What `_dirty` remembers of a key at its first write since the cut."""

    @abstractmethod
    def copied(self, cell: Any) -> Any:
        """A copy of a cell for an open cut, which later writes to the cell do not reach."""

    @abstractmethod
    def weight(self, cell: Any, mark: Any) -> int:
        """How many items `pieces` would have to pack."""

    @abstractmethod
    def pieces(self, key: Any, cell: Any, expires_s: float | None, mark: Any) -> Iterator[Entry]:
        """A cell as entries: what `mark` says has changed, or all of it when `mark` is ABSENT."""

    @abstractmethod
    def apply(self, entry: Entry, track: bool) -> None:
        """Take an entry in; with `track` as a change that the next delta must have."""

    # Writing.

    def touch(self, key: Any) -> None:
        """Register the first write of a key since the last cut; call it before the write."""
        self.catch_up()
        if self._cut is not None:
            self._cut.keep(key)
        if not self._scope.based and len(self._dirty) >= UNTRACKED_KEYS_MAX:
            self._dirty = {}
            self._clean = len(self._cells)
        if key not in self._cells:
            self.register(key)
        elif key not in self._dirty:
            self._clean -= 1
        self._dirty[key] = self.fresh_mark(key)

    def register(self, key: Any) -> None:
        """Put a key that has no cell yet into the index by slot."""
        if key not in self._cells:
            self._index.setdefault(self._scope.slot_of(key), {})[key] = None

    def catch_up(self) -> None:
        """Register the keys that a batch has added to the dict itself: they are its last ones."""
        cells, known = self._cells, self._handed_out
        if known is not None and len(cells) > known:
            self._handed_out = len(cells)
            for key in islice(reversed(cells), len(cells) - known):
                if key not in self._dirty:
                    self._index.setdefault(self._scope.slot_of(key), {})[key] = None
                    self._dirty[key] = self.fresh_mark(key)
            if not self._scope.based and len(self._dirty) > UNTRACKED_KEYS_MAX:
                self._dirty = {}
                self._clean = len(cells)

    def settle(self, key: Any) -> None:
        """A cell is taken in that counts as unchanged."""
        self.catch_up()
        self.register(key)
        if key not in self._cells:
            self._clean += key not in self._dirty
            if self._handed_out is not None:
                self._handed_out += 1

    def drop(self, key: Any) -> None:
        """Delete the cell of a key."""
        self.catch_up()
        if key not in self._cells:
            # A batch may have announced a write to it and then not written.
            if key in self._dirty or key in self._expiry:
                self.forget(key)
            return
        if self._cut is not None:
            self._cut.keep(key)
        self.forget(key)
        if self._scope.based:
            self._gone.add(key)

    def forget(self, key: Any) -> None:
        """Remove every trace of a key, without noting that it is gone."""
        self.catch_up()
        self._clean -= key in self._cells and key not in self._dirty
        self._cells.pop(key, None)
        if self._handed_out is not None:
            self._handed_out = len(self._cells)
        self._dirty.pop(key, None)
        self._expiry.pop(key, None)
        slot = self._scope.slot_of(key)
        keys = self._index.get(slot)
        if keys is not None and key in keys:
            del keys[key]
            if not keys:
                del self._index[slot]

    # Time to live.

    def evict(self, key: Any) -> None:
        """Delete the cell of a key if its time is over."""
        due_s = self._expiry.get(key)
        if due_s is not None and due_s <= self._scope.now_s:
            self.drop(key)

    def refresh(self, key: Any) -> None:
        """Start the time to live of a key anew; only for a table that has one."""
        assert self.ttl_s is not None
        self._expiry[key] = self._scope.now_s + self.ttl_s
        self._expiry.move_to_end(key)

    def expire_at(self, key: Any, expires_s: float | None) -> None:
        """Set when a cell taken in from elsewhere expires."""
        if expires_s is not None:
            self._expiry[key] = expires_s

    def sweep(self, limit: int) -> int:
        """Delete at most `limit` expired cells; the number deleted."""
        deleted = 0
        while deleted < limit and self._expiry:
            key = next(iter(self._expiry))
            if self._expiry[key] > self._scope.now_s:
                break
            self.drop(key)
            deleted += 1
        return deleted

    # Cuts.

    def before_cut(self) -> None:
        """A cut is about to take over what has changed."""

    def after_cut(self) -> None:
        """All of a cut has been handed out."""

    # Reading across keys.

    def live_keys(self, lo: int = 0, hi: int = SLOTS) -> Iterator[Any]:
        """The live keys of a range of slots, in an order that does not depend on history."""
        now_s, cells, expiry = self._scope.now_s, self._cells, self._expiry
        for slot in self.slots(lo, hi):
            keys = self._index[slot]
            for key in sorted(keys, key=repr) if len(keys) > 1 else list(keys):
                due_s = expiry.get(key)
                if key in cells and (due_s is None or due_s > now_s):
                    yield key

    def slots(self, lo: int, hi: int) -> list[int]:
        """The slots in use from `lo` up to `hi`, ascending; costs the smaller of the range and the table."""
        self.catch_up()
        if hi - lo < len(self._index):
            return [slot for slot in range(lo, hi) if slot in self._index]
        return sorted(slot for slot in self._index if lo <= slot < hi)

    def export(self, lo: int, hi: int) -> Iterator[Entry]:
        """All cells of a range of slots as entries."""
        for key in self.live_keys(lo, hi):
            yield from self.pieces(key, self._cells[key], self._expiry.get(key), ABSENT)

    def cell_count(self) -> int:
        """How many keys have a cell, expired ones that nobody has asked for included."""
        return len(self._cells)

    def change_count(self) -> int:
        """How many keys have changed or gone since the last cut."""
        self.catch_up()
        return len(self._dirty) + len(self._gone)

    def validate(self) -> None:
        """Check that cells and index name the same keys; for tests."""
        self.catch_up()
        assert all(self._index.values()), f"state {self.name!r}: an empty slot is still in the index"
        indexed = {key for keys in self._index.values() for key in keys}
        assert set(self._cells) <= indexed, f"state {self.name!r}: cells missing from the index"
        assert all(key in self._index[self._scope.slot_of(key)] for key in indexed), f"state {self.name!r}: wrong slot"
        clean = sum(key not in self._dirty for key in self._cells)
        assert self._clean == clean, f"state {self.name!r}: {clean} cells are unchanged, counted {self._clean}"
        assert set(self._expiry) <= indexed, f"state {self.name!r}: expiry of an unknown key"
