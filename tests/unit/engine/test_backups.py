"""Fragments that are held for others, across fences."""

from __future__ import annotations

import pytest

from rstream.core.backup import Backups
from rstream.core.channel import TaskId
from rstream.state.erasure import FragmentReader, Label

TASK = TaskId("count", 0)


@pytest.mark.parametrize(("epoch", "stays"), [((2, 1), True), ((1, 7), False)])
def test_a_fence_refuses_what_a_former_self_sends_and_nothing_of_the_present_one(
    epoch: tuple[int, int], stays: bool
) -> None:
    backups = Backups("w")
    backups.arriving[TASK, 0] = FragmentReader(Label(str(TASK), epoch), 0, 1, 1, "code")
    backups.fence(TASK, 2)
    assert ((TASK, 0) in backups.arriving) is stays
