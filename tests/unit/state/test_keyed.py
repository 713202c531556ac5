"""What an operator's author sees of keyed state, one sentence at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rstream.errors import ProtocolError, TopologyError
from rstream.state.keyed import KeyedState, ValueState
from rstream.state.table import SLOTS, UNTRACKED_KEYS_MAX, detached, is_frozen
from tests.unit.state.model import slot_of


@pytest.fixture
def state() -> KeyedState:
    return KeyedState(slot_of)


def packed(state: KeyedState, full: bool) -> list[tuple[Any, ...]]:
    cut, entries = state.begin_snapshot(full), []
    while (some := cut.next_slice(10)) is not None:
        entries += some
    return entries


def test_keys_that_are_equal_share_one_value(state: KeyedState) -> None:
    seen = state.value("seen", default=0)
    for state.current in (1, 1.0, True):
        seen.set(seen.get() + 1)
    assert list(state.items("seen")) == [(1, 3)]


def test_a_mutable_default_is_one_per_key_and_kept(state: KeyedState) -> None:
    names: ValueState[list[str]] = state.value("names", default=[])
    for state.current, name in (("x", "ann"), ("y", "bob"), ("x", "cem")):
        names.get().append(name)
    assert dict(state.items("names")) == {"x": ["ann", "cem"], "y": ["bob"]}


def test_reading_a_plain_default_stores_nothing(state: KeyedState) -> None:
    state.current = "x"
    assert state.value("n", default=0).get() == 0
    assert list(state.keys("n")) == []


def test_an_expired_value_is_never_returned_and_the_sweep_deletes_it(state: KeyedState) -> None:
    last = state.value("last", ttl_s=10.0)
    for state.current in ("x", "y"):
        last.set(1)
    state.now_s = 9.0
    last.set(2)
    state.now_s = 10.0
    assert last.get() == 2
    assert list(state.keys("last")) == ["y"]
    assert state.cell_count() == 2
    assert state.sweep(5) == 1
    assert state.cell_count() == 1


def test_a_batch_that_announces_a_write_and_leaves_it_out_does_no_harm(state: KeyedState) -> None:
    state.value("n", ttl_s=1.0)
    state.writable("n", ["x"])
    assert packed(state, full=True) == []
    assert list(state.keys("n")) == []
    state.now_s = 2.0
    state.sweep(10)
    state.validate()
    assert state.drop_range(0, SLOTS) == 0


def test_an_item_that_leaves_and_comes_back_comes_last_after_recovery_too(state: KeyedState) -> None:
    items = state.map("items")
    state.current = "x"
    for item in "abc":
        items.set(item, 1)
    chain = packed(state, full=True)
    items.set("a", 2)
    items.delete("a")
    items.set("d", 2)
    items.set("a", 3)
    chain += packed(state, full=False)
    restored = KeyedState(slot_of)
    restored.restore(chain)
    restored.current = "x"
    assert restored.map("items").items() == items.items() == [("b", 1), ("c", 1), ("d", 2), ("a", 3)]


def test_a_delta_of_a_large_list_holds_only_what_was_appended(state: KeyedState) -> None:
    log = state.list("log")
    state.current = "x"
    log.extend(range(1000))
    packed(state, full=True)
    log.append("new")
    assert packed(state, full=False) == [("l", "log", "x", 1000, None, "new")]


def test_a_delta_of_a_large_map_holds_only_what_changed(state: KeyedState) -> None:
    stock = state.map("stock")
    state.current = "x"
    for item in range(1000):
        stock.set(item, item)
    packed(state, full=True)
    stock.set(7, "seven")
    stock.delete(8)
    assert packed(state, full=False) == [("x", "stock", "x", 8), ("m", "stock", "x", None, 7, "seven")]


def test_reading_plain_values_changes_nothing(state: KeyedState) -> None:
    state.current = "x"
    state.value("v").set((1, "a"))
    state.map("m").set("i", "b")
    state.list("l").append((2, 3))
    packed(state, full=True)
    state.value("v").get(), state.map("m").get("i"), state.map("m").items(), list(state.list("l"))
    assert packed(state, full=False) == []


def test_a_list_that_replaces_another_at_import_is_whole_in_the_next_delta(state: KeyedState) -> None:
    state.current = "x"
    state.list("log").extend([1, 2])
    chain = packed(state, full=True)
    state.import_range([("l", "log", "x", 0, None, 3)])
    chain += packed(state, full=False)
    restored = KeyedState(slot_of)
    restored.restore(chain)
    assert list(restored.items("log")) == [("x", [3])]


def test_exporting_a_range_looks_only_at_what_moves() -> None:
    asked: list[int] = []

    def counting(key: int) -> int:
        asked.append(key)
        return key

    state = KeyedState(counting)
    for key in range(2_000):
        state.writable("n", [key])[key] = key
    assert state.change_count() == 2_000  # what the last batch added is registered when it is next asked for
    asked.clear()
    moved = list(state.export_range(10, 13))
    assert [entry[2] for entry in moved] == [10, 11, 12]
    assert asked == []


@pytest.mark.parametrize("keys", [3, 20_000])
def test_parts_of_a_range_hold_about_as_many_cells_as_asked_for_and_miss_none(keys: int) -> None:
    state = KeyedState(lambda key: int(key) % SLOTS)
    seen = state.value("seen")
    for state.current in range(0, 3 * keys, 3):
        seen.set(1)
    parts, low = [], 0
    while low < SLOTS:
        high = state.range_end(low, SLOTS, 100)
        parts.append(sum(1 for _ in state.export_range(low, high)))
        low = high
    assert sum(parts) == keys
    assert parts[:-1] == [100] * (keys // 100)


def test_a_second_cut_while_one_is_open_is_refused(state: KeyedState) -> None:
    state.begin_snapshot(full=True)
    with pytest.raises(ProtocolError, match="still being packed"):
        state.begin_snapshot(full=False)


def test_after_an_abandoned_cut_the_next_one_is_a_base(state: KeyedState) -> None:
    state.current = "x"
    state.value("n").set(1)
    packed(state, full=True)
    state.begin_snapshot(full=False).abandon()
    assert state.begin_snapshot(full=False).full


def test_one_name_cannot_be_two_kinds(state: KeyedState) -> None:
    state.value("n")
    with pytest.raises(TopologyError, match="state 'n': asked for as a map, but it is a value"):
        state.map("n")
    with pytest.raises(TopologyError, match="the snapshot holds a list, the operator uses a value"):
        state.restore([("l", "n", "x", 0, None, 1)])


def test_without_snapshots_the_change_log_does_not_grow_with_the_keys() -> None:
    state = KeyedState(lambda key: int(key) % SLOTS)
    cells = state.writable("n", range(UNTRACKED_KEYS_MAX + 10))
    cells.update((key, 1) for key in range(UNTRACKED_KEYS_MAX + 10))
    assert state.change_count() <= UNTRACKED_KEYS_MAX
    for state.current in range(10):
        state.value("n").clear()
    assert state.change_count() <= UNTRACKED_KEYS_MAX
    assert len(packed(state, full=True)) == UNTRACKED_KEYS_MAX


def test_opening_and_slicing_a_cut_never_lists_all_keys(state: KeyedState) -> None:
    keys = [f"key{number}" for number in range(20_000)]
    state.writable("n", keys).update(dict.fromkeys(keys, 1))
    cut = state.begin_snapshot(full=True)
    sizes = []
    while (entries := cut.next_slice(100)) is not None:
        sizes.append(len(entries))
    assert sum(sizes) == len(keys)
    assert max(sizes) < 150


def test_slices_stay_small_whatever_has_changed(state: KeyedState) -> None:
    for state.current in range(300):
        state.value("v").set(1)
        state.map("m").set("i", 1)
        state.list("l").append(1)
    state.current = "large"
    state.list("l").extend(range(2_000))
    for item in range(2_000):
        state.map("m").set(item, item)
    base = _slice_lengths(state, full=True)
    for state.current in range(300):
        state.value("v").clear()
        state.map("m").clear()
        state.list("l").clear()
    deletes = _slice_lengths(state, full=False)
    assert len(deletes) >= 900 / 50
    assert max(deletes) <= 50
    assert max(base) <= 50 + 2 * 256
    assert len(base) >= 10


def _slice_lengths(state: KeyedState, full: bool) -> list[int]:
    cut, lengths = state.begin_snapshot(full), []
    while (entries := cut.next_slice(50)) is not None:
        lengths.append(sum(len(entry) - 3 for entry in entries) if full else len(entries))
    return lengths


def test_the_sweep_goes_by_the_last_write_not_the_first(state: KeyedState) -> None:
    last = state.value("last", ttl_s=10.0)
    for state.current, state.now_s in (("x", 0.0), ("y", 1.0), ("x", 5.0)):
        last.set(1)
    state.now_s = 11.0
    assert state.sweep(10) == 1
    assert list(state.keys("last")) == ["x"]


@pytest.mark.parametrize(
    "value", [[1, 2], [[1], 2], {"a": 1}, {"a": [1]}, {(1, 2): "a"}, {1, 2}, (1, [2]), {"a": {"b": 1}}, [], {}]
)
def test_a_copy_for_a_cut_shares_nothing_that_can_change(value: Any) -> None:
    copy = detached(value)
    assert copy == value
    assert type(copy) is type(value)
    assert copy is not value
    for inner, original in zip(_inside(copy), _inside(value), strict=True):
        assert is_frozen(inner) or inner is not original


def _inside(value: Any) -> list[Any]:
    return list(value.values() if isinstance(value, dict) else value)


def test_keys_that_a_batch_adds_are_in_the_next_snapshot_whatever_happens_in_between(state: KeyedState) -> None:
    count = state.value("count", default=0)
    cells = state.writable("count", ["a", "b", "c", "d"])
    cells["a"] = 1
    state.current = "b"
    count.set(2)  # the same step may also write, and delete, the usual way
    cells["c"] = 3
    state.current = "a"
    count.clear()
    cells["d"] = 4
    state.validate()
    cut = state.begin_snapshot(full=True)
    assert sorted(entry[2:4] for entry in cut.next_slice(100) or []) == [("b", 2), ("c", 3), ("d", 4)]
    assert cut.next_slice(100) is None
    state.writable("count", ["e", "b"])["e"] = 5
    assert sorted(entry[2] for entry in state.begin_snapshot(full=False).next_slice(100) or []) == ["b", "e"]


def test_where_most_cells_change_all_count_as_changed_and_every_cut_is_still_exact(state: KeyedState) -> None:
    counts = state.value("n", default=0)
    truth: dict[int, int] = {}

    def add(keys: Iterable[int]) -> None:
        for state.current in keys:
            counts.set(counts.get() + 1)
            truth[state.current] = truth.get(state.current, 0) + 1

    copy = KeyedState(slot_of=lambda key: key)
    add(range(1000))
    copy.restore(packed(state, full=True))
    for cut in range(12):
        add([*range(3), 2000 + cut])
        state.current = 500 + cut
        counts.clear()
        del truth[500 + cut]
        open_cut = state.begin_snapshot(full=False)
        seen = dict(truth)
        while (entries := open_cut.next_slice(100)) is not None:
            add(range(900, 990))  # what is written while a cut is open is not part of it
            copy.restore(entries)
        assert dict(copy.items("n")) == seen
        state.validate()
    add(range(5))
    last = packed(state, full=False)
    assert dict(state.items("n")) == truth
    assert len(last) < 200, "with few changes for long, few are packed again"
