"""The three kinds of keyed state that operators use: one value, a map, or a list for each key.

All of them speak of the *current* key, which the engine sets before each tuple. A mutable value that is handed out
(a list got by `get()`) counts as changed from then on, because nobody can see what its holder does to it; so hold no
such value over from one tuple to the next, ask again. A time to live counts from the last write of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from rstream.state.cut import CHUNK_ITEMS
from rstream.state.table import (
    ABSENT,
    HOT_CELLS_MAX,
    HOT_CELLS_MIN,
    HOT_CUTS,
    IMMUTABLE,
    UNTRACKED_KEYS_MAX,
    Entry,
    Scope,
    Table,
    detached,
    is_frozen,
)

T = TypeVar("T")


class ValueState(Table, Generic[T]):
    """One value for each key.

    >>> from rstream.state.keyed import KeyedState
    >>> state = KeyedState(slot_of=len)
    >>> seen = state.value("seen", default=0)
    >>> state.current = "apple"
    >>> seen.set(seen.get() + 1)
    >>> seen.get()
    1
    """

    kind = "v"
    __slots__ = ("_hot_cuts", "default")

    def __init__(self, scope: Scope, name: str) -> None:
        super().__init__(scope, name)
        self.default: Any = None
        # For so many cuts to come all cells count as changed.
        self._hot_cuts = 0

    def get(self) -> T:
        """The value of the current key, or the default; a default that can be changed in place is stored."""
        key = self._scope.current
        if self.ttl_s is not None:
            self.evict(key)
        try:
            value = self._cells[key]
        except KeyError:
            return self._defaulted(key)  # type: ignore[no-any-return]
        if type(value) not in IMMUTABLE and key not in self._dirty and not is_frozen(value):
            self.touch(key)
        return value  # type: ignore[no-any-return]

    def set(self, value: T) -> None:
        """Replace the value of the current key."""
        key, cells = self._scope.current, self._cells
        if (self._clean or key not in cells) and key not in self._dirty:
            self.touch(key)
        cells[key] = value
        if self.ttl_s is not None:
            self.refresh(key)

    def clear(self) -> None:
        """Delete the value of the current key."""
        self.drop(self._scope.current)

    def _defaulted(self, key: Any) -> Any:
        value = self.default() if callable(self.default) else self.default
        if is_frozen(value):
            return value
        value = value if callable(self.default) else deepcopy(value)
        self.set(value)
        return value

    def writable(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The raw cells, after registering a coming write to each of `keys` (see `KeyedState.writable`)."""
        self.catch_up()
        if self.ttl_s is None:
            if not self._clean and self._cut is None and (self._scope.based or len(self._dirty) < UNTRACKED_KEYS_MAX):
                # Every cell is registered, so that only keys without one have to be, and those show up by themselves.
                self._handed_out = len(self._cells)
                return self._cells
            for key in keys:
                if key not in self._dirty:
                    self.touch(key)
            return self._cells
        for key in keys:
            self.evict(key)
            if key not in self._dirty:
                self.touch(key)
            self.refresh(key)
        return self._cells

    def before_cut(self) -> None:
        if self._hot_cuts:
            self._hot_cuts -= 1
        elif len(self._dirty) * 2 > len(self._cells) >= HOT_CELLS_MIN:
            self._hot_cuts = HOT_CUTS

    def after_cut(self) -> None:
        if self._hot_cuts and self.ttl_s is None and len(self._cells) <= HOT_CELLS_MAX:
            self.catch_up()
            self._dirty |= dict.fromkeys(self._cells)
            self._clean = 0

    def fresh_mark(self, key: Any) -> Any:
        return None

    def copied(self, cell: Any) -> Any:
        return detached(cell)

    def weight(self, cell: Any, mark: Any) -> int:
        return 1

    def pieces(self, key: Any, cell: Any, expires_s: float | None, mark: Any) -> Iterator[Entry]:
        yield ("v", self.name, key, cell, expires_s)

    def apply(self, entry: Entry, track: bool) -> None:
        _, _, key, value, expires_s = entry
        self.touch(key) if track else self.settle(key)
        self._cells[key] = value
        self.expire_at(key, expires_s)


class MapState(Table):
    """A dict for each key; only the items that changed go into the next delta.

    >>> from rstream.state.keyed import KeyedState
    >>> state = KeyedState(slot_of=len)
    >>> stock = state.map("stock")
    >>> state.current = "shop"
    >>> stock.set("apples", 3)
    >>> stock.get("apples"), "pears" in stock, len(stock)
    (3, False, 1)
    """

    kind = "m"
    __slots__ = ()

    def get(self, item: Any, default: Any = None) -> Any:
        """The value of an item of the current key, or `default`."""
        key = self._scope.current
        if self.ttl_s is not None:
            self.evict(key)
        try:
            value = self._cells[key][item]
        except KeyError:
            return default
        if type(value) not in IMMUTABLE:
            self._hand_out(key, item, value)
        return value

    def set(self, item: Any, value: Any) -> None:
        """Set an item of the current key."""
        key = self._scope.current
        if self.ttl_s is not None:
            self.evict(key)
        if key not in self._dirty:
            self.touch(key)
        self._dirty[key][0][item] = None
        try:
            self._cells[key][item] = value
        except KeyError:
            self._cells[key] = {item: value}
        if self.ttl_s is not None:
            self.refresh(key)

    def delete(self, item: Any) -> None:
        """Remove an item of the current key, if it is there."""
        self.remove(self._scope.current, item)

    def items(self) -> list[tuple[Any, Any]]:
        """The items of the current key, in the order in which they came."""
        key = self._scope.current
        cell = self.cell(key)
        if not IMMUTABLE.issuperset(map(type, cell.values())):
            for item, value in cell.items():
                self._hand_out(key, item, value)
        return list(cell.items())

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.cell(self._scope.current)))

    def __contains__(self, item: Any) -> bool:
        return item in self.cell(self._scope.current)

    def __len__(self) -> int:
        return len(self.cell(self._scope.current))

    def clear(self) -> None:
        """Remove all items of the current key."""
        self.drop(self._scope.current)

    def cell(self, key: Any) -> dict[Any, Any]:
        """The items of any key, to look at only."""
        if self.ttl_s is not None:
            self.evict(key)
        cell: dict[Any, Any] = self._cells.get(key, _NOTHING)
        return cell

    def put(self, key: Any, item: Any, value: Any) -> None:
        """Set an item of any key."""
        current, self._scope.current = self._scope.current, key
        self.set(item, value)
        self._scope.current = current

    def remove(self, key: Any, item: Any) -> None:
        """Remove an item of any key, if it is there."""
        cell = self.cell(key)
        if item not in cell:
            return
        if len(cell) == 1:
            self.drop(key)
            return
        if key not in self._dirty:
            self.touch(key)
        changed, removed = self._dirty[key]
        # An item that comes again later comes last, in the delta as in the dict.
        changed.pop(item, None)
        if self._scope.based:
            removed[item] = None
        del cell[item]
        if self.ttl_s is not None:
            self.refresh(key)

    def _hand_out(self, key: Any, item: Any, value: Any) -> None:
        if is_frozen(value):
            return
        if key not in self._dirty:
            self.touch(key)
        self._dirty[key][0][item] = None
        if self._cut is not None:
            kept = self._cut.kept_cell(key)
            if kept is not ABSENT and kept.get(item) is value:
                kept[item] = deepcopy(value)

    def fresh_mark(self, key: Any) -> Any:
        return ({}, {})

    def copied(self, cell: Any) -> Any:
        return cell.copy()

    def weight(self, cell: Any, mark: Any) -> int:
        return len(cell) if mark is ABSENT else len(mark[0]) + len(mark[1])

    def pieces(self, key: Any, cell: Any, expires_s: float | None, mark: Any) -> Iterator[Entry]:
        # Items stand in the entry itself, not in a list of pairs: flat tuples are encoded thirteen times as fast.
        if mark is ABSENT:
            items = chain.from_iterable(cell.items())
        else:
            removed = iter(mark[1])
            while some := tuple(islice(removed, CHUNK_ITEMS)):
                yield ("x", self.name, key, *some)
            items = chain.from_iterable((item, cell[item]) for item in mark[0] if item in cell)
        sent = False
        while flat := tuple(islice(items, 2 * CHUNK_ITEMS)):
            yield ("m", self.name, key, expires_s, *flat)
            sent = True
        if not sent and expires_s is not None:
            yield ("m", self.name, key, expires_s)

    def apply(self, entry: Entry, track: bool) -> None:
        key = entry[2]
        if entry[0] == "x":
            cell = self._cells.get(key, _NOTHING)
            for item in entry[3:]:
                cell.pop(item, None)
            return
        if track and key not in self._dirty:
            self.touch(key)
        elif not track:
            self.settle(key)
        items = entry[4::2]
        self._cells.setdefault(key, {}).update(zip(items, entry[5::2], strict=True))
        if track:
            self._dirty[key][0].update(dict.fromkeys(items))
        self.expire_at(key, entry[3])


class ListState(Table):
    """A list for each key; what was appended goes into the next delta, not the whole list.

    >>> from rstream.state.keyed import KeyedState
    >>> state = KeyedState(slot_of=len)
    >>> waiting = state.list("waiting")
    >>> state.current = "shop"
    >>> waiting.append("ann"); waiting.extend(["bob", "cem"])
    >>> list(waiting), len(waiting)
    (['ann', 'bob', 'cem'], 3)
    """

    kind = "l"
    __slots__ = ()

    def append(self, value: Any) -> None:
        """Add a value to the list of the current key."""
        key = self._scope.current
        if self.ttl_s is not None:
            self.evict(key)
        if key not in self._dirty:
            self.touch(key)
        try:
            self._cells[key].append(value)
        except KeyError:
            self._cells[key] = [value]
        if self.ttl_s is not None:
            self.refresh(key)

    def extend(self, values: Iterable[Any]) -> None:
        """Add values to the list of the current key, in order."""
        key = self._scope.current
        if self.ttl_s is not None:
            self.evict(key)
        if key not in self._dirty:
            self.touch(key)
        cell = self._cells.get(key)
        if cell is None:
            self._cells[key] = cell = []
        cell.extend(values)
        if self.ttl_s is not None:
            self.refresh(key)

    def __iter__(self) -> Iterator[Any]:
        key = self._scope.current
        cell = self._cell(key)
        if not IMMUTABLE.issuperset(map(type, cell)):
            self._hand_out(key, cell)
        return iter(cell.copy())

    def __len__(self) -> int:
        return len(self._cell(self._scope.current))

    def clear(self) -> None:
        """Empty the list of the current key."""
        self.drop(self._scope.current)

    def _cell(self, key: Any) -> list[Any]:
        if self.ttl_s is not None:
            self.evict(key)
        return self._cells.get(key) or []

    def _hand_out(self, key: Any, cell: list[Any]) -> None:
        loose = [at for at, value in enumerate(cell) if not is_frozen(value)]
        if not loose:
            return
        if key not in self._dirty:
            self.touch(key)
        self._dirty[key] = min(self._dirty[key], loose[0])
        if self._cut is not None:
            kept = self._cut.kept_cell(key)
            for at in loose if kept is not ABSENT else ():
                if at < len(kept) and kept[at] is cell[at]:
                    kept[at] = deepcopy(cell[at])

    def fresh_mark(self, key: Any) -> Any:
        return len(self._cells.get(key, ()))

    def copied(self, cell: Any) -> Any:
        return cell.copy()

    def weight(self, cell: Any, mark: Any) -> int:
        return len(cell) if mark is ABSENT else len(cell) - int(mark)

    def pieces(self, key: Any, cell: Any, expires_s: float | None, mark: Any) -> Iterator[Entry]:
        start = 0 if mark is ABSENT else int(mark)
        while True:
            chunk = cell[start : start + CHUNK_ITEMS]
            yield ("l", self.name, key, start, expires_s, *chunk)
            start += len(chunk)
            if start >= len(cell):
                return

    def apply(self, entry: Entry, track: bool) -> None:
        _, _, key, start, expires_s, *values = entry
        if track and key not in self._dirty:
            self.touch(key)
        elif not track:
            self.settle(key)
        cell = self._cells.setdefault(key, [])
        del cell[start:]
        cell.extend(values)
        if track:
            self._dirty[key] = min(self._dirty[key], start)
        self.expire_at(key, expires_s)


_NOTHING: dict[Any, Any] = {}
"""Stands for the map of a key that has none; only ever read."""

KINDS: dict[str, Callable[[Scope, str], Table]] = {"v": ValueState, "m": MapState, "l": ListState}
KIND_NAMES = {"v": "value", "m": "map", "l": "list"}
