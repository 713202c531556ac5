"""The conformance kit for keyed state: what any store must do that a task can keep its state in.

`check_store(make)` builds stores with `make(slot_of)` and raises an AssertionError that says which promise is broken.
It covers what users rely on: values, maps, lists, time to live, changes made in place, ranges that move, and
snapshots packed in slices while writes go on.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any
from zlib import crc32

from rstream.state.keyed import KeyedState, ValueState
from rstream.state.table import SLOTS

Make = Callable[[Callable[[Any], int]], KeyedState]
Check = Callable[[Make], None]

KEYS = [f"key{number}" for number in range(50)]


def slot_of(key: Any) -> int:
    """A slot function good enough to check with."""
    return crc32(repr(key).encode()) % SLOTS


def check_store(make: Make) -> None:
    """Run every check against the stores that `make(slot_of)` gives.

    >>> check_store(KeyedState)
    """
    for check in CHECKS:
        check(make)


def values_are_per_key(make: Make) -> None:
    """What one key holds, no other key sees."""
    state = make(slot_of)
    count = state.value("count", default=0)
    for state.current in KEYS + KEYS[:10]:
        count.set(count.get() + 1)
    want = {key: 2 if key in KEYS[:10] else 1 for key in KEYS}
    _same(dict(state.items("count")), want, "values per key")
    state.current = KEYS[0]
    count.clear()
    _same(count.get(), 0, "a cleared value is the default again")
    _same(KEYS[0] in set(state.keys("count")), False, "a cleared value has no key")


def maps_and_lists_keep_order(make: Make) -> None:
    """Maps and lists give back what was put in, in order."""
    state = make(slot_of)
    stock, log = state.map("stock"), state.list("log")
    state.current = "x"
    for item in ("b", "a", "c"):
        stock.set(item, item * 2)
        log.append(item)
    stock.delete("b")
    stock.set("b", 1)
    _same(stock.items(), [("a", "aa"), ("c", "cc"), ("b", 1)], "items of a map in the order they came")
    _same(("a" in stock, "z" in stock, len(stock), stock.get("z", 5)), (True, False, 3, 5), "asking a map")
    _same((list(log), len(log)), (["b", "a", "c"], 3), "a list in order")
    state.current = "y"
    _same((stock.items(), list(log)), ([], []), "another key has a map and a list of its own")


def expired_entries_are_never_returned(make: Make) -> None:
    """Time to live counts from the last write; recovery does not lengthen it."""
    state = make(slot_of)
    value, items, log = state.value("v", ttl_s=10.0), state.map("m", ttl_s=10.0), state.list("l", ttl_s=10.0)
    for state.current in KEYS:
        value.set(1)
        items.set("i", 1)
        log.append(1)
    entries = deepcopy(list(state.export_range(0, SLOTS)))
    other = make(slot_of)
    other.import_range(entries)
    for each in (state, other):
        value, items, log = each.value("v", ttl_s=10.0), each.map("m", ttl_s=10.0), each.list("l", ttl_s=10.0)
        each.now_s, each.current = 9.9, KEYS[0]
        _same((value.get(), items.get("i"), len(log)), (1, 1, 1), "alive before its time is over")
        each.now_s = 10.0
        _same((value.get(), items.get("i"), len(log)), (None, None, 0), "gone when its time is over")
        _same(list(each.keys("v")), [], "no expired keys are listed")
        each.sweep(1_000)
        _same(each.cell_count(), 0, "the sweep deletes what is expired")


def changes_in_place_are_captured(make: Make) -> None:
    """A mutable value that was handed out and changed is in the next delta."""
    state = make(slot_of)
    value: ValueState[list[int]] = state.value("v", default=list)
    items, log = state.map("m"), state.list("l")
    state.current = "x"
    value.get().append(1)
    items.set("i", [1])
    log.append([1])
    chain = _packed(state, full=True)
    value.get().append(2)
    items.get("i").append(2)
    next(iter(log)).append(2)
    chain += _packed(state, full=False)
    _same(_picture(_restored(make, chain)), _picture(state), "changes in place after recovery")


def open_cuts_see_nothing_later(make: Make) -> None:
    """Whatever is written between two slices, the slices are the state at the cut."""
    for full in (True, False):
        state = make(slot_of)
        chain = [] if full else _packed(state, full=True)
        _write_everywhere(state, 1)
        before = _picture(state)
        cut = state.begin_snapshot(full)
        _same(cut.full, full, "the kind of snapshot that was asked for")
        late = 0
        while (entries := cut.next_slice(7)) is not None:
            chain += deepcopy(entries)
            _write_everywhere(state, late, KEYS[late % len(KEYS) :: 3])
            late += 1
        _same(_picture(_restored(make, chain)), before, "the state at the cut")
        chain += _packed(state, full=False)
        _same(_picture(_restored(make, chain)), _picture(state), "the delta after it")


def deletes_are_in_the_delta(make: Make) -> None:
    """What was deleted stays deleted after recovery."""
    state = make(slot_of)
    _write_everywhere(state, 1)
    chain = _packed(state, full=True)
    for state.current in KEYS[::2]:
        for each in (state.value("v"), state.map("m"), state.list("l")):
            each.clear()
    for state.current in KEYS[1::2]:
        state.map("m").delete("i")
    chain += _packed(state, full=False)
    _same(_picture(_restored(make, chain)), _picture(state), "deletes after recovery")


def ranges_move_alone(make: Make) -> None:
    """A range of slots goes to another task and leaves the rest as it was."""
    state, other = make(slot_of), make(slot_of)
    _write_everywhere(state, 1)
    whole = _picture(state)
    chains = [_packed(each, full=True) for each in (state, other)]
    lo, hi = SLOTS // 4, SLOTS // 2
    other.import_range(deepcopy(list(state.export_range(lo, hi))))
    state.drop_range(lo, hi)
    moved = {at: cell for at, cell in whole.items() if lo <= slot_of(at[1]) < hi}
    stayed = {at: cell for at, cell in whole.items() if at not in moved}
    _same((_picture(other), _picture(state)), (moved, stayed), "what moved and what stayed")
    for each, chain, want in ((state, chains[0], stayed), (other, chains[1], moved)):
        chain += _packed(each, full=False)
        _same(_picture(_restored(make, chain)), want, "the move is in the next delta")


def batches_are_tracked(make: Make) -> None:
    """Writes to the raw cells of a batch are in the next delta, and not in an open cut."""
    state = make(slot_of)
    state.writable("n", KEYS).update(dict.fromkeys(KEYS, 1))
    before, cut = _picture(state), state.begin_snapshot(full=True)
    chain: list[Any] = []
    while (entries := cut.next_slice(9)) is not None:
        chain += deepcopy(entries)
        cells = state.writable("n", KEYS)
        for key in KEYS:
            cells[key] += 1
    _same(_picture(_restored(make, chain)), before, "batch writes stay out of an open cut")
    chain += _packed(state, full=False)
    _same(_picture(_restored(make, chain)), _picture(state), "batch writes are in the next delta")


CHECKS: list[Check] = [
    values_are_per_key,
    maps_and_lists_keep_order,
    expired_entries_are_never_returned,
    changes_in_place_are_captured,
    deletes_are_in_the_delta,
    open_cuts_see_nothing_later,
    ranges_move_alone,
    batches_are_tracked,
]


def _write_everywhere(state: KeyedState, number: int, keys: list[str] = KEYS) -> None:
    value: ValueState[list[int]] = state.value("v", default=list)
    for state.current in keys:
        value.get().append(number)
        state.map("m").set("i", number)
        state.map("m").set(number, [number])
        for item, held in state.map("m").items():
            if item != "i":
                held.append(number)
        state.list("l").extend([number, [number]])
        if number % 5 == 4:
            state.map("m").delete("i")
            state.list("l").clear()


def _packed(state: KeyedState, full: bool) -> list[Any]:
    cut = state.begin_snapshot(full)
    entries: list[Any] = []
    while (some := cut.next_slice(20)) is not None:
        entries += deepcopy(some)
    return entries


def _restored(make: Make, chain: list[Any]) -> KeyedState:
    state = make(slot_of)
    for start in range(0, len(chain), 11):
        state.restore(deepcopy(chain[start : start + 11]))
    return state


def _picture(state: KeyedState) -> dict[tuple[str, Any], Any]:
    names = state.names()
    cells = {(name, key): cell for name in names for key, cell in state.items(name)}
    return {at: list(cell.items()) if isinstance(cell, dict) else cell for at, cell in cells.items()}


def _same(came: Any, wanted: Any, what: str) -> None:
    if came != wanted:
        raise AssertionError(f"store: {what}: wanted {wanted!r:.300}, got {came!r:.300}")
