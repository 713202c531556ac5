"""A call that holds the loop is named while it does, with the line that it is at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rstream import Bolt, Topology
from rstream.core.channel import TaskId
from rstream.runtime.embedded import Embedded
from rstream.runtime.stuck import StuckCalls

ENTERED, LEAVE = threading.Event(), threading.Event()


class Waits(Bolt):
    """Returns once the test lets it."""

    def process(self, value: Any, out: Any) -> None:
        ENTERED.set()
        assert LEAVE.wait(60)


@contextmanager
def loop_in(bolt: Bolt) -> Iterator[int]:
    """A thread that runs tasks and is in a call of this bolt."""
    topology = Topology("stuck")
    topology.source("n", [1]).sink("waits", bolt)
    ENTERED.clear()
    LEAVE.clear()
    loop = threading.Thread(target=Embedded(topology.build()).run)
    loop.start()
    assert ENTERED.wait(60)
    assert loop.ident is not None
    try:
        yield loop.ident
    finally:
        LEAVE.set()
        loop.join()


def test_a_call_that_has_not_returned_is_named_once_with_its_line() -> None:
    with loop_in(Waits()) as loop:
        stuck = StuckCalls(slow_call_ms=500)
        assert stuck.look(loop, turned_s=10.0, now_s=10.4) is None, "it is not slow yet"
        complaint = stuck.look(loop, turned_s=10.0, now_s=12.5)
        assert complaint is not None
        assert complaint.task == TaskId("waits", 0)
        assert "2500 ms ago at most and has not returned" in complaint.cause
        assert "blocking=True" in complaint.cause
        assert "LEAVE.wait(60)" in complaint.traceback
        assert stuck.look(loop, turned_s=10.0, now_s=13.0) is None, "said already"
        assert stuck.look(loop, turned_s=20.0, now_s=21.0) is not None, "another call"


def test_a_loop_that_is_in_no_tasks_code_is_nobodys_fault() -> None:
    idle = threading.Event()
    thread = threading.Thread(target=idle.wait)
    thread.start()
    try:
        assert StuckCalls(slow_call_ms=500).look(thread.ident, turned_s=0.0, now_s=60.0) is None
    finally:
        idle.set()
        thread.join()
    assert StuckCalls(slow_call_ms=500).look(None, turned_s=0.0, now_s=60.0) is None
