"""What must hold between workers is looked at, and each of the invariants can fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rstream.core.keyed_task import KeyedBoltTask
from rstream.core.sink_task import SinkTask
from rstream.core.task import Task
from rstream.core.versions import Ranges
from rstream.core.worker import WorkerMachine
from rstream.core.worker_links import LinkedTasks
from rstream.lab.fault_cluster import SimulatedCluster
from rstream.lab.faults import Schedule
from tests.simulation.test_backups import machines, run_until_healed


@pytest.fixture(scope="module")
def running() -> Iterator[Schedule]:
    """One in the middle of its work, on which each test does some harm and takes it back."""
    schedule = Schedule(301, faults=0)
    assert run_until_healed(schedule, from_s=0.08)
    schedule.validate()
    yield schedule
    schedule.validate()


def tasks(schedule: Schedule) -> Iterator[tuple[WorkerMachine, Task]]:
    for machine in machines(schedule):
        for task in machine.tasks:
            yield machine, task


def breaks(schedule: Schedule, number: str) -> None:
    with pytest.raises(AssertionError, match=number):
        schedule.validate()


def test_output_that_is_forgotten_before_it_is_covered(running: Schedule) -> None:
    channel = next(
        channel
        for _, task in tasks(running)
        for channel in task.out_channels
        if channel.log and task.id.operator in ("s0", "number")
    )
    base, channel.base = channel.base, channel.next + 1000
    breaks(running, "I1")
    channel.base = base


def test_a_receiver_that_has_more_than_was_made(running: Schedule) -> None:
    bolt = next(machine.bolts[0] for machine in machines(running) if machine.bolts)
    channel = next(iter(bolt.in_channels.values()))
    received, channel.recv = channel.recv, channel.recv + 1000
    breaks(running, "I2")
    channel.recv = received


def test_records_that_are_held_and_are_not_the_tasks_own(running: Schedule) -> None:
    logs = {task.id: task.log for _, task in tasks(running)}
    held, own = next(
        (held, logs[id])
        for machine in machines(running)
        for id, held in machine.backups.held.items()
        if id in logs and max(held.base, logs[id].base) < min(held.end, logs[id].end)
    )
    at = max(held.base, own.base) - held.base
    record, held.records[at] = held.records[at], (-1, 0, 0, 0, 0.0)
    breaks(running, "I3")
    held.records[at] = record


def test_records_that_were_sent_and_are_not_there(running: Schedule) -> None:
    link, task = next(
        (link, task)
        for machine in machines(running)
        for link in machine.out_links.values()
        for task in machine.tasks
        if link.session is not None and task.id in link.cursor and running.pipes[machine.worker, link.peer].open
    )
    running.pipes[task_worker(running, task), link.peer].due_s[True] = 0.0
    sent, link.cursor[task.id] = link.cursor[task.id], 1 << 40
    breaks(running, "I5")
    link.cursor[task.id] = sent


def task_worker(schedule: Schedule, task: Task) -> str:
    return next(machine.worker for machine, each in tasks(schedule) if each is task)


def test_keys_with_two_owners(running: Schedule) -> None:
    owner, other = [task for _, task in tasks(running) if isinstance(task, KeyedBoltTask)][:2]
    before = list(other.ownership.installed)
    other.ownership.installed = Ranges([*owner.ownership.installed])
    breaks(running, "I6")
    other.ownership.installed = Ranges(before)


def test_snapshots_that_are_safe_and_cannot_be_rebuilt(running: Schedule) -> None:
    machine = next(machine for machine in machines(running) if any(machine.backups.stable.values()))
    task = next(task for task in machine.tasks if machine.backups.stable.get(task.id, 0))
    stable, machine.backups.stable[task.id] = machine.backups.stable[task.id], 1 << 40
    breaks(running, "I7")
    machine.backups.stable[task.id] = stable


def test_a_task_that_runs_twice(running: Schedule) -> None:
    first = next(machine for machine in machines(running) if machine.bolts)
    second = next(machine for machine in machines(running) if machine is not first)
    bolt = first.bolts[0]
    second.bolts.append(bolt)
    second.backups.layouts[bolt.id] = first.backups.layouts[bolt.id]
    breaks(running, "I8")
    second.bolts.remove(bolt)
    del second.backups.layouts[bolt.id]


def test_a_sink_that_says_it_covers_what_it_has_not_committed() -> None:
    for seed in range(300, 330):
        schedule = Schedule(seed, faults=0)
        run_until_healed(schedule, from_s=0.3)
        found = [task for _, task in tasks(schedule) if isinstance(task, SinkTask) and not task.ended and task.since_s]
        for sink in found:
            channel = next((each for each in sink.in_channels.values() if each.cov < each.cons), None)
            if channel is not None:
                channel.cov = channel.cons
                breaks(schedule, "I9")
                return
    raise AssertionError("no sink has consumed more than it has committed")


def test_data_that_leaves_before_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkedTasks, "_order_frame", lambda self, link: None)
    monkeypatch.setattr(SimulatedCluster, "validate_every", 1)
    with pytest.raises(AssertionError, match="I10"):
        Schedule(301, faults=0).run()
