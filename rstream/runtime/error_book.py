"""What went wrong in each topology, for `rstream errors`: the newest, up to a limit."""

from __future__ import annotations

from collections import deque
from typing import Any

from rstream.clock import Clock
from rstream.core.task import Complaint
from rstream.errors import RStreamError

ERRORS_MAX = 200
"""So many are kept of a topology that says nothing else."""


class ErrorBook:
    """The errors of all topologies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[str, deque[dict[str, Any]]] = {}

    def open(self, topology: str, errors_max: int) -> None:
        """A topology begins: its book is empty."""
        self._lines[topology] = deque(maxlen=errors_max)

    def of(self, topology: str) -> list[dict[str, Any]]:
        """The errors of a topology, newest last."""
        return [*self._lines.get(topology, ())]

    def complain(self, topology: str, worker: str, node: str, complaint: Complaint) -> None:
        """User code raised, or was slow, and the topology goes on."""
        task = complaint.task
        self._add(
            topology, worker, node, task.operator, task.number, complaint.cause, complaint.value, complaint.traceback
        )

    def note(self, topology: str, worker: str, error: RStreamError) -> None:
        """Something else happened that people should know of."""
        said = {name: getattr(error, name, "") for name in ("node", "step", "value", "traceback")}
        task = getattr(error, "task", None)
        self._add(topology, worker, said["node"], said["step"], task, str(error), said["value"], said["traceback"])

    def _add(
        self, topology: str, worker: str, node: str, step: str, task: int | None, error: str, value: str, trace: str
    ) -> None:
        self._lines.setdefault(topology, deque(maxlen=ERRORS_MAX)).append(
            {
                "at": self._clock.now(),
                "step": step,
                "task": task,
                "node": node,
                "worker": worker,
                "error": error,
                "value": value,
                "traceback": trace,
            }
        )
