"""Changes of the running topology in the fault simulation: more and fewer tasks, and tasks that move, at any moment.

Drawn from seeds of their own, so that the faults of a seed stay what they were.
"""

from __future__ import annotations

import random
from typing import Any

from rstream.core.channel import TaskId
from rstream.core.records import OVER
from rstream.errors import UsageError
from rstream.lab.fault_cluster import SimulatedCluster

TASKS_MAX = 6
CHANGES = {"rescale": 5, "rescale of two": 2, "back to back": 2, "active set": 2}
"""What may be asked for, by weight."""
MOVES = {"move": 4, "move of several": 3, "move to a new worker": 2, "move of a whole worker": 2, "exchange": 1}
SLOT = 0
"""Nobody counts slots here."""


class ChangingCluster(SimulatedCluster):
    """A cluster whose topology is changed while it runs."""

    def __init__(self, seed: int, *arguments: Any) -> None:
        super().__init__(seed, *arguments)
        self.choices = random.Random(f"changes/{seed}")
        self.walks = random.Random(f"moves/{seed}")

    def plan_changes(self) -> None:
        """Ask for changes at random moments, in two of three schedules."""
        if self.choices.random() < 1 / 3:
            return
        at_s = 0.02
        for _ in range(self.choices.randint(1, 6)):
            at_s += self.choices.expovariate(1.0 / (self.delay_s * self.choices.choice([1.0, 4.0, 15.0])))
            self.after(at_s, self._change)

    def _change(self) -> None:
        kind = self.choices.choices(list(CHANGES), list(CHANGES.values()))[0]
        steps = [operator.name for operator in self.workload.graph.operators if operator.kind == "bolt"]
        many = min(len(steps), 2 if kind == "rescale of two" else 1)
        chosen = ["count", *self.choices.sample(steps, many)][-many:] if self.choices.random() < 0.5 else ["count"]
        wanted: dict[str, Any] = {step: self.choices.randint(1, TASKS_MAX) for step in chosen}
        self._ask(kind, wanted)
        if kind == "back to back":
            self._ask(kind, {step: self.choices.randint(1, TASKS_MAX) for step in chosen})

    def _ask(self, kind: str, wanted: dict[str, int]) -> None:
        if self.record.state in OVER:
            return
        self._say(f"{kind} {wanted}")
        try:
            if kind == "active set":
                for step, tasks in wanted.items():
                    active = self.choices.sample(range(TASKS_MAX), tasks)
                    self._do(self.coordinator.set_active(self.name, step, active))
            else:
                self._do(self.coordinator.rescale(self.name, wanted))
        except UsageError:
            self.events["refused change"] += 1
        else:
            self.events[kind] += 1

    def plan_moves(self) -> None:
        """Let tasks move at random moments, in half of the schedules."""
        if self.walks.random() < 0.5:
            return
        at_s = 0.02
        for _ in range(self.walks.randint(1, 4)):
            at_s += self.walks.expovariate(1.0 / (self.delay_s * self.walks.choice([1.0, 4.0, 15.0])))
            self.after(at_s, lambda: self._move(self.walks.random() < 0.6))

    def _move(self, broken: bool) -> None:
        """Order a move; one that is to be broken waits until all is well, for one domain fails at a time."""
        record = self.record
        if broken and record.state not in OVER and not self.is_well():
            self.after(max(self.delay_s, 0.005), lambda: self._move(broken))
            return
        hosts = sorted(record.hosts())
        tasks = sorted(record.placement)
        if record.state in OVER or not hosts or not tasks:
            return
        kind = self.walks.choices(list(MOVES), list(MOVES.values()))[0]
        many = 1 if kind == "move" else self.walks.randint(1, min(3, len(tasks)))
        chosen, target = self.walks.sample(tasks, many), self.walks.choice(hosts)
        if kind == "move of a whole worker":
            leaving = self.walks.choice(hosts)
            chosen = [task for task in tasks if record.placement[task] == leaving]
        targets = dict.fromkeys(chosen, target)
        if kind == "exchange":
            other = self.walks.choice(hosts)
            targets = {task: other if record.placement[task] == target else target for task in chosen}
        if kind == "move to a new worker":
            nodes = sorted({worker.address.node for worker in record.workers.values()})
            name, instructions = self.coordinator.add_worker(self.name, self.walks.choice(nodes), SLOT)
            targets = dict.fromkeys(chosen, name)
            self._do(instructions)
        self._ask_moves(kind, targets)
        if broken:
            self.break_move(targets)

    def _ask_moves(self, kind: str, targets: dict[TaskId, str]) -> None:
        self._say(f"{kind} {targets}")
        try:
            self._do(self.coordinator.move(self.name, targets))
        except UsageError:
            self.events["refused move"] += 1
        else:
            self.events[kind] += 1

    def break_move(self, targets: dict[TaskId, str]) -> None:
        """Tasks are about to move; a cluster without faults does nothing about it."""
