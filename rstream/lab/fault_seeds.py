"""What a seed of `rstream lab faults` is: a schedule of any kind, with at least two faults that happened.

Most keep to what the guarantee is for, one failing domain at a time. Some are beyond it: any set of workers ends at any
moment. Those have to be exact too or stop loudly; what they may never be is wrong.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rstream.core.messages import Frame
from rstream.core.records import OVER
from rstream.lab.fault_cluster import Pipe, SimWorker
from rstream.lab.fault_rounds import RoundBreaker
from rstream.lab.faults import FAULTS, Outcome, judged

BEYOND = "beyond the guarantee"
FAULTS_MIN = 2
ATTEMPTS_MAX = 4
BEYOND_SHARE = 0.08
BROKEN_MOVE_SHARE = 0.5
SCATTERED = 0.3
LATE_SHARE = 0.3


class Drawn(RoundBreaker):
    """One seed. An attempt after the first is one whose faults come early, for those of the first met nothing."""

    varied = True
    batches, windows = (4, 10, 32), (8, 20, 80)
    stripes_bytes = (400, 3000, 1 << 18, 1 << 18)
    """With smaller pieces and batches most of the time would go into sending them."""

    def __init__(self, seed: int, attempt: int = 0, **options: Any) -> None:
        self.more = random.Random(f"more/{seed}/{attempt}")
        self.beyond = self.more.random() < BEYOND_SHARE
        self._topped_up = False
        self._bundles: dict[tuple[int, bool], tuple[Pipe, list[Frame]]] = {}
        super().__init__(seed, **options)
        if self.beyond:
            self.events[BEYOND] += 1
            for _ in range(self.more.randint(1, 3)):
                self.after(0.02 + self.more.uniform(0.0, 20 * self.delay_s), self._wreck)
        elif self.more.random() < LATE_SHARE:
            self.plan_late_end()
        for _ in range(FAULTS_MIN if attempt else 0):
            self.after(0.02 + self.more.uniform(0.0, 4 * self.delay_s), self._fault)

    def plan_moves(self) -> None:
        super().plan_moves()
        if self.more.random() < BROKEN_MOVE_SHARE:
            self.after(0.02 + self.more.uniform(0.0, 8 * self.delay_s), lambda: self._move(True))

    def run(self) -> Outcome:
        outcome = super().run()
        outcome.beyond, outcome.faults = self.beyond, self.faults
        return outcome

    def _wreck(self) -> None:
        """Any workers end at once, whatever else goes on."""
        hosts = [each for each in self.workers.values() if self._is_member(each)]
        if self.record.state in OVER or not hosts:
            return
        for victim in self.more.sample(hosts, self.more.randint(1, len(hosts))):
            self._crash(victim)
        self._happened("crash of any")

    def is_well(self) -> bool:
        return self.beyond or super().is_well()

    def validate(self) -> None:
        """Beyond the guarantee little of it holds; what counts is that the end is exact or loud."""
        if not self.beyond:
            super().validate()

    def _survivable(self, victims: list[SimWorker]) -> bool:
        return self.beyond or super()._survivable(victims)

    def _send_soon(self, pipe: Pipe, forward: bool, frame: Frame) -> None:
        self._bundles.setdefault((pipe.number, forward), (pipe, []))[1].append(frame)

    def _flush(self) -> None:
        """What leaves on a connection in one turn mostly arrives together, which is quicker, and else bit by bit."""
        for (_, forward), (pipe, frames) in self._bundles.items():
            if len(frames) == 1 or self.more.random() < SCATTERED:
                for frame in frames:
                    self._send(pipe, forward, frame)
            else:
                due_s = pipe.due_s[forward] = max(pipe.due_s[forward], self.now_s + self._delay())
                self.at(due_s, partial(self._arrive_together, pipe, forward, frames))
        self._bundles.clear()

    def _arrive_together(self, pipe: Pipe, forward: bool, frames: list[Frame]) -> None:
        for frame in frames:
            self._arrive(pipe, forward, frame)

    def _turn(self, worker: SimWorker) -> None:
        super()._turn(worker)
        if not self._topped_up and worker.machine is not None and any(each.ended for each in worker.machine.sources):
            self._topped_up = True
            self._top_up()

    def _top_up(self) -> None:
        """Half of the input is read, and too little has happened: more has to."""
        if self.faults < FAULTS_MIN and self.record.state not in OVER:
            self._fault(self.more.choices(list(FAULTS), list(FAULTS.values()))[0])
            self.after(max(self.delay_s, 0.005), self._top_up)


def run_seed(seed: int) -> Outcome:
    """Run one seed; it is drawn again while fewer than two faults happened."""
    with _garbage_kept():
        for attempt in range(ATTEMPTS_MAX):
            outcome = judged(seed, partial(Drawn, seed, attempt))
            if outcome.faults >= FAULTS_MIN or not outcome.passed:
                break
    return outcome


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """A schedule is short and leaves little garbage: looking for it again and again costs more than keeping it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
            gc.collect()
