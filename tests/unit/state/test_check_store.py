"""The conformance kit accepts the store of ours and sees through stores that break a promise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rstream.state.cut import SnapshotCut, TableCut
from rstream.state.keyed import KeyedState
from rstream.state.kinds import ListState, MapState, ValueState
from rstream.state.table import Table
from rstream.testing import check_store


def test_keyed_state_keeps_every_promise() -> None:
    check_store(KeyedState)


def test_a_store_that_misses_changes_in_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ValueState, "get", lambda self: self._cells.get(self._scope.current) or self._defaulted(0))
    with pytest.raises(AssertionError, match="store:"):
        check_store(KeyedState)


@pytest.mark.parametrize("kind", [MapState, ListState])
def test_a_store_that_misses_changes_inside_maps_or_lists_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[Table]
) -> None:
    monkeypatch.setattr(kind, "_hand_out", lambda *_: None)
    with pytest.raises(AssertionError, match="changes in place"):
        check_store(KeyedState)


def test_a_store_whose_cuts_see_later_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableCut, "keep", lambda *_: None)
    with pytest.raises(AssertionError, match="the state at the cut"):
        check_store(KeyedState)


def test_a_store_that_forgets_deletes_is_found() -> None:
    class Forgetful(KeyedState):
        def begin_snapshot(self, full: bool) -> SnapshotCut:
            for table in self._tables.values():
                table._gone.clear()
            return super().begin_snapshot(full)

    with pytest.raises(AssertionError, match="deletes after recovery"):
        check_store(Forgetful)


def test_a_store_that_lengthens_lives_when_a_range_moves_is_found() -> None:
    class Generous(KeyedState):
        def import_range(self, entries: Iterable[tuple[Any, ...]]) -> None:
            super().import_range(self._without_expiry(entry) for entry in entries)

        @staticmethod
        def _without_expiry(entry: tuple[Any, ...]) -> tuple[Any, ...]:
            at = {"v": 4, "m": 3, "l": 4}[entry[0]]
            return (*entry[:at], None, *entry[at + 1 :])

    with pytest.raises(AssertionError, match="gone when its time is over"):
        check_store(Generous)


def test_a_store_that_moves_too_much_is_found() -> None:
    class Greedy(KeyedState):
        def drop_range(self, lo: int, hi: int) -> int:
            return super().drop_range(lo, hi + 5_000)

    with pytest.raises(AssertionError, match="what moved and what stayed"):
        check_store(Greedy)


def test_a_store_that_does_not_track_batches_is_found() -> None:
    class Raw(KeyedState):
        def writable(self, name: str, keys: Iterable[Any]) -> dict[Any, Any]:
            super().writable(name, keys if not self.based else ())
            return self.cells(name)

    with pytest.raises(AssertionError, match="batch writes"):
        check_store(Raw)
