"""Parts of operator state are dealt evenly, all of them, and few move when the number of tasks changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstream.errors import TopologyError
from rstream.state.parts import OperatorState, Part, deal, redeal


@given(st.integers(0, 30), st.integers(1, 9), st.integers(1, 9))
def test_a_redeal_is_even_loses_nothing_and_moves_no_more_than_it_must(parts: int, before: int, after: int) -> None:
    hands = deal([Part(f"p{number:02}", number) for number in range(parts)], before)
    again = redeal(hands, after)
    sizes = [len(hand) for hand in again]
    assert len(again) == after
    assert max(sizes) - min(sizes) <= 1
    assert sorted(part.id for hand in again for part in hand) == [f"p{number:02}" for number in range(parts)]
    stayed = sum(len({*old} & {*new}) for old, new in zip(_ids(hands), _ids(again), strict=False))
    assert stayed == sum(min(len(old), size) for old, size in zip(hands, sizes, strict=False))


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(TopologyError, match="two parts are called 'a'"):
        deal([Part("a", 1), Part("a", 2)], 2)
    with pytest.raises(TopologyError, match="at least 1 task, got 0"):
        deal([], 0)


def test_a_redeal_does_not_depend_on_the_order_in_which_tasks_list_their_parts() -> None:
    hands = [[Part("b", 0), Part("d", 0)], [Part("a", 0), Part("c", 0)]]
    wanted = [["b"], ["a"], ["c"], ["d"]]
    assert _ids(redeal(hands, 4)) == _ids(redeal([hand[::-1] for hand in hands], 4)) == wanted


def test_operator_state_comes_back_as_it_was() -> None:
    state = OperatorState([Part("b", 1)])
    state.put("a", {"offset": 3})
    state.put("b", 2)
    state.put("c", 0)
    state.remove("c")
    assert OperatorState.load(state.export()).parts() == [Part("a", {"offset": 3}), Part("b", 2)]
    assert state.get("c", "none") == "none"


def _ids(hands: list[list[Part]]) -> list[list[str]]:
    return [[part.id for part in hand] for hand in hands]
