"""Names the call that holds a worker's loop while it still does.

The loop measures a call once it is over; one that never returns is seen only from another thread, on the loop's stack.
"""

from __future__ import annotations

import sys
import traceback

from rstream.core.task import Complaint
from rstream.runtime.logs import task_on


class StuckCalls:
    """Looks now and then at a loop; tells of each turn of it at most once."""

    def __init__(self, slow_call_ms: float) -> None:
        self._slow_call_ms = slow_call_ms
        self._told_s = -1.0

    def look(self, loop: int | None, turned_s: float, now_s: float) -> Complaint | None:
        """What to complain of, if the thread `loop`, whose last turn began at `turned_s`, is in a task's code."""
        held_ms = (now_s - turned_s) * 1000
        if held_ms <= self._slow_call_ms or turned_s == self._told_s or loop is None:
            return None
        frame = sys._current_frames().get(loop)
        task = task_on(frame)
        if frame is None or task is None:
            return None
        self._told_s = turned_s
        text = (
            f"slow call: it began {held_ms:.0f} ms ago at most and has not returned, and every task of this worker "
            "waits; mark the step blocking=True to run it on a thread of its own"
        )
        return Complaint(task, text, traceback="".join(traceback.format_stack(frame)))
