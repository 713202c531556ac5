"""A simulated cluster on which plans are carried out step by step, while workers and the coordinator crash."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from rstream.core.channel import TaskId
from rstream.core.executor import Executor, under_way
from rstream.core.records import OVER
from rstream.core.slots import SlotBook
from rstream.core.steps import Place, Step
from rstream.lab.faults import Schedule
from rstream.schedulers.base import Slot

TICK_S = 0.01
TASKS_MAX = 5


class Executing(Schedule):
    """A schedule of faults during which plans of a few random steps are under way all the time.

    The record of the plan is kept in a journal of its own, from which a restarted coordinator takes it up.
    """

    def __init__(self, seed: int, faults: int | None = None) -> None:
        self.entries: list[dict[str, Any]] = []
        self.kept = "[]"
        self.draws = random.Random(f"plans/{seed}")
        super().__init__(seed, faults)
        self.book = SlotBook()
        self.executor = Executor(self.coordinator, self.book)
        self.after(TICK_S, self._tick)

    def plan_changes(self) -> None:
        """The plans are what changes here."""

    def plan_moves(self) -> None:
        """The plans are what moves here."""

    def _tick(self) -> None:
        if self.record.state not in OVER:
            self.after(TICK_S, self._tick)
        if self.name not in self.executor.running and self.record.state == "ACTIVE" and self.record.quiet:
            entry: dict[str, Any] = {"state": "planned", "steps": []}
            self.entries.append(entry)
            self.executor.begin(self.name, entry, self._draw(), self.now_s)
            self.kept = json.dumps(self.entries)
        if self.name in self.executor.running:
            instructions, noted = self.executor.turn(self.name, self.now_s)
            if noted:
                self.kept = json.dumps(self.entries)
            self._do(instructions)

    def _draw(self) -> list[Step]:
        steps = []
        for _ in range(self.draws.randint(1, 3)):
            operator = self.draws.choice([each.name for each in self.workload.graph.operators if each.kind == "bolt"])
            active = sorted(self.draws.sample(range(TASKS_MAX), self.draws.randint(1, TASKS_MAX)))
            kind: Any = self.draws.choice(["load", "rescale", "move"])
            there = self.record.tasks(operator)
            moved = sorted(self.draws.sample(there, self.draws.randint(1, len(there)))) if kind == "move" else []
            new = [TaskId(operator, number) for number in active] if kind == "load" else []
            places = self._draw_places([*moved, *new]) if kind != "rescale" else []
            steps.append(Step(kind, f"{kind} {operator}", operator, [] if moved else active, places))
        return steps

    def _draw_places(self, tasks: Sequence[TaskId]) -> list[Place]:
        """For each of some tasks, new ones or such as move, the slot of a worker, or a slot that nobody has."""
        self.book.sync([self.record])
        held = [slot for worker in sorted(self.record.hosts()) if (slot := self.book.slot(worker)) is not None]
        free = Slot(self.draws.choice(held).node, self.draws.randint(50, 52))
        return [(*task, *self.draws.choice([*held, free])) for task in tasks]

    def _crash_coordinator(self) -> None:
        super()._crash_coordinator()
        self.entries = json.loads(self.kept)
        self.book = SlotBook()
        self.executor = Executor(self.coordinator, self.book)
        if self.entries and under_way(self.entries[-1]):
            self.executor.resume(self.name, self.entries[-1], self.now_s)
