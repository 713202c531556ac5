"""Keyed state against the plain reference: whatever is done to it, in whatever slices it is packed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rstream.state import cut as cut_module
from rstream.state import kinds as kinds_module
from rstream.state.keyed import KeyedState
from rstream.state.table import SLOTS
from tests.unit.state.model import Twin, in_order, picture_of, slot_of


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small cells count as large, so that the streaming of large ones is exercised."""
    monkeypatch.setattr(cut_module, "CHUNK_ITEMS", 3)
    monkeypatch.setattr(kinds_module, "CHUNK_ITEMS", 3)


def test_every_write_is_seen_and_nothing_else() -> None:
    for seed in range(40):
        twin = Twin(seed)
        for _ in range(200):
            twin.step()
            if twin.random.random() < 0.05:
                twin.state.sweep(3)
        assert in_order(picture_of(twin.state)) == in_order(twin.picture()), f"seed {seed}"
        twin.state.validate()


def test_base_and_deltas_give_the_state_at_the_last_cut_while_writes_go_on() -> None:
    for seed in range(150):
        twin = Twin(seed)
        chain: list[Any] = []
        for number in range(4):
            for _ in range(twin.random.randrange(60)):
                twin.step()
            at_cut, cut_s = twin.picture(), twin.state.now_s
            cut = twin.state.begin_snapshot(full=number == 0 or twin.random.random() < 0.2)
            if cut.full:
                chain = []
            while (entries := cut.next_slice(twin.random.randrange(1, 8))) is not None:
                chain += deepcopy(entries)  # as encoding would
                for _ in range(twin.random.randrange(8)):
                    twin.step()
            restored = KeyedState(slot_of)
            if twin.random.random() < 0.5:
                twin.declare(restored)
            restored.restore(chain)
            restored.now_s = cut_s
            assert in_order(picture_of(restored)) == in_order(at_cut), f"seed {seed}, cut {number}"
            restored.validate()
        assert in_order(picture_of(twin.state)) == in_order(twin.picture()), f"seed {seed}"
        twin.state.validate()


def test_a_restored_state_goes_on_with_deltas_of_its_own() -> None:
    for seed in range(40):
        twin = Twin(seed)
        for _ in range(80):
            twin.step()
        chain = _whole(twin.state, full=True)
        recovered = KeyedState(slot_of)
        recovered.restore(deepcopy(chain))
        recovered.now_s = twin.state.now_s
        twin.declare(recovered)
        twin.state = recovered
        for _ in range(40):
            twin.step()
        chain += _whole(twin.state, full=False)
        again = KeyedState(slot_of)
        again.restore(chain)
        again.now_s = twin.state.now_s
        assert in_order(picture_of(again)) == in_order(twin.picture()), f"seed {seed}"


def test_a_range_moves_alone_and_deltas_on_both_sides_have_the_move() -> None:
    for seed in range(60):
        twin = Twin(seed)
        for _ in range(80):
            twin.step()
        middle = twin.random.randrange(SLOTS)
        other = KeyedState(slot_of)
        other.now_s = twin.state.now_s
        bases = [_whole(twin.state, full=True), _whole(other, full=True)]
        cut = twin.state.begin_snapshot(full=False) if seed % 2 else None
        other.import_range(deepcopy(list(twin.state.export_range(middle, SLOTS))))
        twin.state.drop_range(middle, SLOTS)
        if cut is not None:
            while cut.next_slice(5) is not None:
                pass
        whole = in_order(twin.picture())
        low = {at: cell for at, cell in whole.items() if slot_of(at[1]) < middle}
        high = {at: cell for at, cell in whole.items() if slot_of(at[1]) >= middle}
        assert in_order(picture_of(twin.state)) == low, f"seed {seed}"
        assert in_order(picture_of(other)) == high, f"seed {seed}"
        for state, base, want in ((twin.state, bases[0], low), (other, bases[1], high)):
            restored = KeyedState(slot_of)
            restored.restore(base + _whole(state, full=False))
            restored.now_s = twin.state.now_s
            assert in_order(picture_of(restored)) == want, f"seed {seed}"
            state.validate()


def _whole(state: KeyedState, full: bool) -> list[tuple[object, ...]]:
    cut = state.begin_snapshot(full)
    entries: list[tuple[object, ...]] = []
    while (some := cut.next_slice(100)) is not None:
        entries += some
    return deepcopy(entries)
