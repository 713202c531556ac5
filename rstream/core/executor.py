"""Carries plans out on running topologies: asks the coordinator machine for one step after the other. Pure.

All that it knows of a plan under way is the record of the decision, which is in the journal. A coordinator that comes
back goes on with the step at which it stood. A plan is given up when its topology ends, when a step is refused or takes
too long, or when somebody else changes the topology; what was done stays done. Slots that a plan needs are booked from
its beginning on, so that no other policy gets them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rstream.core.channel import TaskId
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import Instruction
from rstream.core.records import OVER, TopologyRecord
from rstream.core.slots import SlotBook
from rstream.core.steps import Step, worker_step
from rstream.errors import UsageError
from rstream.keys import SLOTS
from rstream.schedulers.base import Slot

STEP_S_MAX = 120.0
"""A step that takes longer is given up: the policy will see where things stand and decide anew."""
UP = ("ready", "running", "finished")


@dataclass
class Execution:
    """A plan under way."""

    entry: dict[str, Any]
    steps: list[Step]
    begun_s: float
    at: int = 0
    wait_until_s: float = 0.0

    def note(self) -> None:
        """Bring the record up to date."""
        self.entry["steps"] = [step.to_data() for step in self.steps]


class Executor:
    """The plans that are being carried out, at most one for each topology."""

    def __init__(self, machine: CoordinatorMachine, book: SlotBook) -> None:
        self._machine, self._book = machine, book
        self.running: dict[str, Execution] = {}
        self.nodes_more = 0
        """How many nodes more the plans have asked for since somebody last looked."""

    def begin(self, name: str, entry: dict[str, Any], steps: list[Step], now_s: float) -> None:
        """Start a plan; the entry is kept up to date until it is done."""
        wanted = sorted(slots_for_tasks(steps))
        free = [slot for slot in wanted if self._book.worker(slot) is None]
        self._book.book(name, free)
        execution = Execution(entry, [worker_step(free), *steps] if free else steps, now_s)
        execution.note()
        entry["state"] = "running"
        self.running[name] = execution

    def resume(self, name: str, entry: dict[str, Any], now_s: float) -> None:
        """Go on with a plan that was under way when the coordinator ended."""
        steps = [Step(**data) for data in entry["steps"]]
        at = next((at for at, step in enumerate(steps) if step.state in ("waiting", "running")), len(steps))
        for step in steps[at:]:
            step.state = "waiting"
        self._book.book(name, slots_for_tasks(steps[at:]))
        begun_s = min((step.started_s for step in steps[:at]), default=now_s)
        self.running[name] = Execution(entry, steps, begun_s, at)

    def give_up(self, name: str, why: str, now_s: float) -> list[Instruction]:
        """Leave a plan where it is, if there is one; gives what to do about what it has begun."""
        execution = self.running.pop(name, None)
        if execution is None:
            return []
        for step in execution.steps[execution.at :]:
            if step.state == "running":
                step.took_s, step.error = now_s - step.started_s, why
            step.state = "given up"
        self._end(execution, f"given up: {why}", now_s)
        return [*self._machine.cancel_moves(name), *self._clear_up(name)]

    def _clear_up(self, name: str) -> list[Instruction]:
        self._book.release(name)
        return self._machine.release_workers(name)

    def turn(self, name: str, now_s: float) -> tuple[list[Instruction], bool]:
        """Take a topology's plan as far as it goes now: what to do, and whether its record has changed."""
        self._book.sync(self._machine.topologies.values())
        execution, changed = self.running[name], False
        instructions: list[Instruction] = []
        while name in self.running:
            record = self._machine.topologies.get(name)
            if record is None or record.state in OVER:
                return self.give_up(name, "the topology is over", now_s), True
            if execution.at == len(execution.steps):
                del self.running[name]
                self._end(execution, "done", now_s)
                return [*instructions, *self._clear_up(name)], True
            step = execution.steps[execution.at]
            asking = step.state == "waiting"
            if asking:
                if now_s < execution.wait_until_s or not record.quiet:
                    return instructions, changed
                step.state, step.started_s, changed = "running", now_s, True
            try:
                if asking:
                    instructions += self._ask(record, step)
                done = self._is_done(record, step)
            except UsageError as error:
                return [*instructions, *self.give_up(name, str(error), now_s)], True
            if not done:
                if now_s - step.started_s > STEP_S_MAX:
                    late = f"not done within {STEP_S_MAX:.0f} s: {step.what}"
                    return [*instructions, *self.give_up(name, late, now_s)], True
                execution.note()
                return instructions, changed
            self._finish(record, step, now_s)
            execution.wait_until_s = now_s + step.pause_s
            execution.at += 1
            execution.note()
            changed = True
        return instructions, changed

    def _ask(self, record: TopologyRecord, step: Step) -> list[Instruction]:
        match step.kind:
            case "nodes":
                self.nodes_more = max(self.nodes_more, step.count)
            case "load":
                places = {task: worker for task, slot in step.slots.items() if (worker := self._book.worker(slot))}
                return self._machine.load(record.name, {step.operator: max(step.active) + 1}, places)
            case "restart":
                step.count = record.starts
                return self._machine.restart(record.name, step.uri, step.sizes, step.drop, step.slots)
            case "workers":
                return self._start_workers(record, step)
            case "move":
                return self._machine.move(record.name, self._targets(record, step))
            case "activate" | "deactivate" | "rescale":
                return self._machine.set_active(record.name, step.operator, step.active)
        return []

    def _start_workers(self, record: TopologyRecord, step: Step) -> list[Instruction]:
        instructions: list[Instruction] = []
        for slot in step.slot_list:
            if self._book.worker(slot) is None:
                worker, start = self._machine.add_worker(record.name, *slot)
                self._book.give(worker, record.name, *slot)
                instructions += start
        return instructions

    def _targets(self, record: TopologyRecord, step: Step) -> dict[TaskId, str]:
        """The workers that have the slots of a step's tasks."""
        targets = {}
        for task, slot in step.slots.items():
            worker = self._book.worker(slot)
            if worker is None or worker not in record.workers:
                raise UsageError(f"no worker of the topology has slot {slot.process} of node {slot.node} any more")
            targets[task] = worker
        return targets

    def _is_done(self, record: TopologyRecord, step: Step) -> bool:
        if record.round is not None:
            return False
        name = step.operator
        match step.kind:
            case "workers":
                workers = [self._book.worker(slot) for slot in step.slot_list]
                if None in workers:
                    raise UsageError("a worker that was started for the plan has ended")
                return all(record.workers[worker].phase in UP for worker in workers if worker is not None)
            case "move":
                return self._has_moved(record, step)
            case "load":
                return record.instances[name] > max(step.active) and name not in record.loads
            case "restart":
                if record.savepoint is None and record.starts == step.count and not record.starts_over:
                    raise UsageError(record.result.error if record.result is not None else "the restart was given up")
                return record.starts > step.count and record.state == "ACTIVE"
            case "activate" | "deactivate" | "rescale":
                return name not in record.targets and record.settled.get(name, 0) >= len(record.versions[name]) - 1
        return True

    def _has_moved(self, record: TopologyRecord, step: Step) -> bool:
        targets = self._targets(record, step)
        if any(task in record.moves for task in targets):
            return False
        if any(record.placement[task] != worker for task, worker in targets.items()):
            raise UsageError("a worker ended during the move, and its tasks were brought back elsewhere")
        return True

    def _finish(self, record: TopologyRecord, step: Step, now_s: float) -> None:
        step.state, step.took_s = "done", now_s - step.started_s
        if step.kind == "restart":
            step.paused, step.paused_ms = "everything", step.took_s * 1e3
        if step.kind == "move":
            paused_s = min(step.took_s, max(0.0, now_s - record.stopped_s))
            step.paused, step.paused_ms = "the tasks that moved", paused_s * 1e3
        if step.kind == "rescale":
            moved = moved_slots(record, step.operator)
            step.paused = f"{moved / SLOTS:.0%} of the keys of {step.operator}, each until its state had come"
            step.paused_ms = step.took_s * 1e3
        sizes = ("activate", "deactivate", "rescale")
        if step.kind in sizes and record.active(step.operator) != tuple(step.active):
            step.error = "its input is over: there is nothing left to share out"

    def _end(self, execution: Execution, state: str, now_s: float) -> None:
        execution.note()
        execution.entry.update(
            state=state,
            took_s=now_s - execution.begun_s,
            paused_ms=max((step.paused_ms for step in execution.steps), default=0.0),
        )


def slots_for_tasks(steps: Iterable[Step]) -> set[Slot]:
    """The slots that get tasks by these steps, new ones or such as move."""
    return {slot for step in steps if step.kind in ("load", "move") for slot in step.slots.values()}


def moved_slots(record: TopologyRecord, operator: str) -> int:
    """How many slots of the key space changed hands with an operator's newest version."""
    newest = len(record.versions[operator]) - 1
    return sum(span.high - span.low for span in record.versions[operator][newest].spans if span.since == newest)


def given_up(entry: Mapping[str, Any]) -> bool:
    """Whether a recorded decision was left where it was."""
    return str(entry["state"]).startswith("given up")


def under_way(entry: Mapping[str, Any]) -> bool:
    """Whether a recorded decision was being carried out."""
    return bool(entry["state"] == "running")
