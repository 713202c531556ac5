"""Live changes in the fault simulation: exact at every moment, and a broken hand-over is found out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rstream.core.keyed_task import KeyedBoltTask
from rstream.core.ownership import Ownership
from rstream.lab.faults import run_schedules
from tests.simulation.mutation import found_within


def test_changes_of_a_fixed_set_are_exact() -> None:
    outcomes = list(run_schedules(5000, 16))
    assert [(each.seed, each.verdict) for each in outcomes if not each.exact] == []
    happened: Counter[str] = sum((each.events for each in outcomes), Counter())
    assert {"rescale", "rescale of two", "back to back", "active set", "crash"} <= set(happened)


def no_hold_back(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(self: KeyedBoltTask, channel: Any, values: list[Any], born_s: float) -> list[Any]:
        return values

    patch.setattr(KeyedBoltTask, "_admit", all_of_them)


def hand_over_at_the_first_mark(patch: pytest.MonkeyPatch) -> None:
    def first(self: KeyedBoltTask) -> float:
        return max((self._marked(each.id) for each in self.data_channels() if not each.ended), default=float("inf"))

    patch.setattr(KeyedBoltTask, "_reached", first)


def end_by_the_last_version_only(patch: pytest.MonkeyPatch) -> None:
    def last(self: Ownership) -> bool:
        mine = [span for span in self.maps[self.newest] if span.owner == self.me]
        return not self.waits and all(self._has(span) for span in mine)

    patch.setattr(Ownership, "is_complete", last)


def snapshot_without_held_tuples(patch: pytest.MonkeyPatch) -> None:
    content = Ownership.content

    def forgetful(self: Ownership) -> list[Any]:
        whole = content(self)
        return [*whole[:4], [], [], *whole[6:]]

    patch.setattr(Ownership, "content", forgetful)


@pytest.mark.parametrize(
    ("mutate", "schedules"),
    [
        (no_hold_back, 20),
        (hand_over_at_the_first_mark, 20),
        pytest.param(end_by_the_last_version_only, 200, marks=pytest.mark.long),
        pytest.param(snapshot_without_held_tuples, 200, marks=pytest.mark.long),
    ],
)
def test_a_broken_hand_over_is_found_out(
    mutate: Callable[[pytest.MonkeyPatch], None], schedules: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert found_within(schedules) != ""
