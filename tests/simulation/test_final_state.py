"""What the fault simulation holds against the state of keyed tasks at the end, and against what a tally said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rstream.lab.fault_bolts import TALLY, check_state, check_tallies

TOTALS = {0: 2, 1: 1}


def judged(count: list[tuple[int, Any, Any]], by: list[tuple[int, Any, Any]] | None = None) -> str:
    def state_of(operator: str, name: str) -> Iterable[tuple[int, Any, Any]]:
        held = {("count", "count"): count, (TALLY, "total"): [(0, 0, 2), (0, 1, 1)], (TALLY, "by"): by or []}
        return held[operator, name]

    return check_state(state_of, TOTALS, tallied=by is not None)


def test_one_owner_and_the_right_total_for_each_key_is_right() -> None:
    assert judged([(0, 0, 2), (1, 1, 1)]) == ""
    assert judged([(0, 0, 2), (1, 1, 1)], [(0, 0, {0: 1, 1: 1}), (0, 1, {0: 1})]) == ""


def test_two_owners_none_a_wrong_total_and_a_key_too_many_are_wrong() -> None:
    assert "held by 2 tasks" in judged([(0, 0, 2), (1, 0, 2), (1, 1, 1)])
    assert "held by 0 tasks" in judged([(0, 0, 2)])
    assert "stands at 1 at the end, not at 2" in judged([(0, 0, 1), (1, 1, 1)])
    assert "3 keys at the end, not 2" in judged([(0, 0, 2), (1, 1, 1), (1, 7, 1)])
    assert "tally#0: key 0 stands at 1" in judged([(0, 0, 2), (1, 1, 1)], [(0, 0, {0: 1}), (0, 1, {0: 1})])


def test_a_run_that_went_on_after_its_time_to_live_is_wrong() -> None:
    said = [(0, 1, 1, 1.0, 0, 1), (1, 1, 1, 1.0, 0, 1)]
    assert check_tallies([*said, (0, 2, 2, 1.4, 1, 1)], 0.5, TOTALS) == ""
    assert check_tallies([*said, (0, 2, 1, 1.6, 1, 1)], 0.5, TOTALS) == ""
    assert "run 2" in check_tallies([*said, (0, 2, 2, 1.6, 1, 1)], 0.5, TOTALS)
    assert "run 2 and 2 of 1" in check_tallies([*said, (0, 2, 2, 1.4, 1, 2)], 0.5, TOTALS)
    assert "are not 1 to 2" in check_tallies(said, 0.5, TOTALS)
