"""A worker ends in the middle of a recovery, after others have said what they know: why a replaced round asks anew.

A worker is asked what it knows of a lost task, and the question is slow to reach it. It goes on, and with it what
the dead one had told it alone: others that have answered already come to depend on orders that they did not know then.
It ends without an answer, so everybody is asked again (PROTOCOL.md, R3 and P13).
"""

from __future__ import annotations

import random
from typing import Any

from rstream.core.records import OVER
from rstream.lab.fault_cluster import Pipe, SimWorker
from rstream.lab.faults import Schedule

LATE = "end of an asked worker after others answered"
TRIES_MAX = 60
"""So often a moment is looked for at which something is on its way to the one that goes on."""


class RoundBreaker(Schedule):
    """One seeded run in which that is tried."""

    def __init__(self, seed: int, *arguments: Any, **options: Any) -> None:
        self.late = random.Random(f"late/{seed}")
        self._deaf = ""
        """The worker whom the next question about lost tasks does not reach."""
        self._telling: tuple[str, str] | None = None
        """From whom to whom something arrives although its sender has ended."""
        super().__init__(seed, *arguments, **options)

    def plan_late_end(self) -> None:
        """Try it from some moment on."""
        self.after(0.02 + self.late.uniform(0.0, 20 * self.delay_s), lambda: self._late_end(TRIES_MAX))

    def _late_end(self, tries: int) -> None:
        if self.record.state in OVER or not tries:
            return
        pairs = self._pairs() if self.is_well() else []
        first, second = self.late.choice(pairs) if pairs else (None, None)
        if first is None or second is None or not self._survivable(self._members(self._domain(first))):
            self.after(max(self.delay_s / 4, 0.002), lambda: self._late_end(tries - 1))
            return
        self.note_harm()
        self._note(first)
        self._deaf, self._telling = second.name, (first.name, second.name)
        self._crash(first)
        self._happened("crash")

    def _pairs(self) -> list[tuple[SimWorker, SimWorker]]:
        """A worker that has something on its way to another one of its domain, which sends to others outside of it."""
        found = []
        for pipe in self.pipes.values():
            first, second = self.workers[pipe.dialler], self.workers[pipe.acceptor]
            if not pipe.open or pipe.due_s[True] <= self.now_s or not (self._is_member(first) and first.machine.tasks):  # type: ignore[union-attr]
                continue
            if self._is_member(second) and self._domain(first) == self._domain(second):
                assert second.machine is not None, "members have machines"
                receivers = [peer for peer, link in second.machine.out_links.items() if link.channels]
                if any(self._domain(self.workers[peer]) != self._domain(second) for peer in receivers):
                    found.append((first, second))
        return found

    def _arrives_anyway(self, pipe: Pipe) -> bool:
        arrives = super()._arrives_anyway(pipe)
        return arrives or (pipe.dialler, pipe.acceptor) == self._telling

    def _fence(self, worker: SimWorker, number: int, table: Any, lost: list[Any]) -> None:
        if worker.name == self._deaf and lost:
            self._deaf = ""
            self.after(self.late.uniform(0.0, 6 * self.delay_s), lambda: self._end_unanswered(worker))
        else:
            super()._fence(worker, number, table, lost)

    def _end_unanswered(self, worker: SimWorker) -> None:
        """The question never came; those who answered have heard from this worker meanwhile."""
        self._telling = None
        round = self.record.round
        if self.record.state in OVER or not self._is_member(worker):
            return
        self._crash(worker)
        asked = round is not None and worker.name in round.asked
        self._happened(LATE if asked and round is not None and round.answers else "crash")
