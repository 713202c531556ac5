"""Poison tuples: those at which a worker's process ends, again and again, wherever its task is brought back.

An exception is an error of a step; the end of a process (a segmentation fault, `os._exit`, the kernel's memory killer)
is a crash, and recovery brings the task back to the very same tuple. So tasks that were lost twice in a short time are
run *carefully*: each tuple is noted, where the end of the process cannot take it, before the step's function gets it.
What the note says after the next crash is evidence. The same tuple a set number of times in a row stops the topology.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rstream.core.bolt_task import BoltTask
from rstream.core.channel import TaskId
from rstream.errors import OperatorError

CAREFUL_S = 10.0
"""So long a task that came back is run carefully; it costs a call and a note for each tuple."""
SHOWN_MAX = 2000
"""So much of a tuple is shown."""
CALM_S = 60.0
"""Crashes of a task that are further apart than this have nothing to do with each other."""


class Evidence(NamedTuple):
    """The tuple that a worker was at when its process ended: of which task, which input and offset, and its value."""

    task: TaskId
    edge: int
    source: int
    offset: int
    shown: str

    @property
    def place(self) -> tuple[TaskId, int, int, int]:
        """What is the same for the same tuple."""
        return self.task, self.edge, self.source, self.offset


Note = Callable[[Evidence | None], None]
"""Remembers what a worker is at, so that it outlives the process; None: nothing."""


def be_careful(task: BoltTask, note: Note) -> None:
    """Note every tuple before it is processed, for a while."""
    run, until_s = task.run, task.clock() + CAREFUL_S

    def carefully(values: list[Any]) -> None:
        if not task.replay and task.clock() >= until_s:
            task.run = run
            run(values)
            return
        step = task._step
        channel = step[0] if step is not None else None
        edge, source = (channel.id.edge, channel.id.source) if channel is not None else (-1, -1)
        first = channel.cons if channel is not None else task.position
        for index, value in enumerate(values):
            note(Evidence(task.id, edge, source, first + index, repr(value)[:SHOWN_MAX]))
            run([value])
        note(None)

    task.run = carefully


def count_evidence(known: Sequence[Evidence], found: Evidence) -> list[Evidence]:
    """All evidence in a row for one tuple, with the newest."""
    return [*known, found] if known and known[-1].place == found.place else [found]


def poisoned(evidence: Sequence[Evidence], node: str) -> OperatorError:
    """What people are told."""
    last = evidence[-1]
    return OperatorError(
        f"the process of its worker ended {len(evidence)} times in a row at this tuple: {last.shown}; "
        "correct the step, or drop the tuple before it",
        step=last.task.operator,
        task=last.task.number,
        node=node,
        traceback="",
        value=last.shown,
    )
