"""Backups under load and damage: what is retained is bounded, a bad fragment counts as lost, too much lost is said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rstream.core.backup import Backups
from rstream.core.channel import TaskId
from rstream.core.records import OVER
from rstream.core.worker import WorkerMachine
from rstream.lab.fault_cluster import SimWorker
from rstream.lab.faults import Schedule
from rstream.state.fragments import FragmentStore
from rstream.state.holders import Layout


def machines(schedule: Schedule) -> list[WorkerMachine]:
    return [each.machine for each in schedule.workers.values() if each.alive and each.machine is not None]


def run_until_healed(schedule: Schedule, from_s: float = 0.0) -> bool:
    """False if the run was over before."""
    while schedule.record.state not in OVER and (schedule.now_s < from_s or not schedule.is_well()):
        schedule.step()
    return schedule.record.state not in OVER


def spoil(store: FragmentStore, task: str) -> int:
    """Change a byte in every fragment that one worker holds for a task."""
    spoiled = 0
    for by_index in store._fragments.get(task, {}).values():
        for index, fragment in by_index.items():
            first, *rest = fragment.pieces
            by_index[index] = replace(fragment, pieces=(bytes([first[0] ^ 1]) + first[1:], *rest))
            spoiled += 1
    return spoiled


def schedule_with_check_fragments() -> tuple[Schedule, str]:
    """A run with much to do in which the loss of one holder's fragment of some task is survived; and that task."""
    for seed in range(300, 400):
        schedule = Schedule(seed, faults=0)
        if not run_until_healed(schedule, from_s=0.05) or any(s.ended for m in machines(schedule) for s in m.sources):
            continue
        for machine in machines(schedule):
            for task, layout in machine.backups.layouts.items():
                saved = [m for m in machines(schedule) if m is not machine and m.backups.stable.get(task, 0) > 0]
                if saved and layout.survives.holders >= 1 and task.operator == "count":
                    return schedule, str(task)
    raise AssertionError("no such placement among the seeds")


def owner(schedule: Schedule, task: str) -> WorkerMachine:
    return next(machine for machine in machines(schedule) if task in map(str, machine.by_id))


def test_what_senders_retain_is_bounded_although_the_interval_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule(301, faults=0)
    schedule.interval_s = 1000.0
    schedule.limits = replace(schedule.limits, retained_bytes=1500, window=40)
    cuts: list[int] = []
    cut = Backups.cut

    def counted(self: Backups, task, incarnation, now_s):  # type: ignore[no-untyped-def]
        cuts.append(task.uncovered_bytes)
        return cut(self, task, incarnation, now_s)

    monkeypatch.setattr(Backups, "cut", counted)
    assert schedule.run().verdict == "exact"
    tasks = len(schedule.record.placement)
    assert len(cuts) > tasks  # one of each at the start, the others because bytes were waiting
    assert sum(waiting > 750 for waiting in cuts) > 0


def test_a_loaded_node_backs_its_tasks_up_less_often() -> None:
    schedule = Schedule(302, faults=0)
    run_until_healed(schedule, from_s=0.1)
    machine = next(m for m in machines(schedule) if m.tasks)
    task, backups = machine.tasks[0], machine.backups
    backups.in_flight.pop(task.id, None)
    task.uncovered_bytes, task.position = 0, backups.stable.get(task.id, 0) + 1
    backups.load_max = 0.8
    backups.node_load = 0.5
    calm = backups.next_cut_s(task, 5.0)
    backups.node_load = 0.9
    loaded = backups.next_cut_s(task, 5.0)
    assert calm is not None
    assert loaded == pytest.approx(calm + 25.0)


def test_a_bad_fragment_counts_as_lost_and_the_others_serve() -> None:
    schedule, task = schedule_with_check_fragments()
    holder = next(machine for machine in machines(schedule) if task in machine.backups.store.tasks())
    assert spoil(holder.backups.store, task) > 0
    schedule._crash(schedule.workers[owner(schedule, task).worker])
    assert schedule.run().verdict == "exact"


def run_until_at_rest(schedule: Schedule) -> bool:
    """Stop reading in the middle of the input, and wait until all that was done is safe and nothing on its way."""
    for machine in machines(schedule):
        machine.pause(True)
    until_s = schedule.now_s + 5.0
    while schedule._queue and schedule.record.state not in OVER and schedule.now_s < until_s:
        schedule.step()
        tasks = [task for machine in machines(schedule) for task in machine.tasks]
        covered = all(channel.base == channel.next for task in tasks for channel in task.out_channels)
        if covered and schedule.is_well() and not any(task.log.records or task.ended for task in tasks):
            return True
    return False


def with_some_holders(more: int) -> tuple[Schedule, TaskId, Layout, list[SimWorker]]:
    """A run at rest, a task, and those who are to end: its host, with as many holders as is promised and some more.

    If tasks are lost for good, this one is the first of them, so that the verdict is about it.
    """
    for seed in range(303, 400):
        schedule = Schedule(seed, faults=0)
        if not run_until_healed(schedule, from_s=0.05) or not run_until_at_rest(schedule):
            continue
        for machine in machines(schedule):
            for task, layout in machine.backups.layouts.items():
                gone = [machine.worker, *layout.holders[: layout.survives.holders + more]]
                victims = [schedule.workers[name] for name in gone]
                lost = min(schedule.lost_with(victims), default=None)  # what is found out first
                if layout.survives.holders > 0 and layout.r > 1 and lost == (task if more else None):
                    return schedule, task, layout, victims
    raise AssertionError("no such placement among the seeds")


def test_a_task_that_ends_together_with_as_many_holders_as_is_promised_comes_back() -> None:
    schedule, task, layout, victims = with_some_holders(0)
    assert len(victims) == 1 + layout.survives.holders == 1 + layout.c
    for victim in victims:
        schedule._crash(victim)
    assert schedule.run().verdict == "exact"
    assert schedule.record.incarnations[task] == 1


def test_with_one_holder_more_it_is_said_what_is_lost() -> None:
    schedule, task, layout, victims = with_some_holders(1)
    assert len(victims) == 2 + layout.survives.holders
    for victim in victims:
        schedule._crash(victim)
    verdict = schedule.run().verdict
    assert verdict.startswith(f"stopped loudly: {task}: its snapshot at step"), verdict
    fragments = layout.r + layout.c
    assert f"{layout.r - 1} of {fragments} fragments are left and {layout.r} are needed" in verdict, verdict
    assert re.search(r"of snapshot \(\d+, \d+\)", verdict), verdict


def test_with_all_fragments_spoiled_it_is_said_that_none_is_left() -> None:
    schedule, task = schedule_with_check_fragments()
    for machine in machines(schedule):
        spoil(machine.backups.store, task)
    schedule._crash(schedule.workers[owner(schedule, task).worker])
    verdict = schedule.run().verdict
    assert verdict.startswith(f"stopped loudly: {task}: its snapshot at step"), verdict
    assert "no fragment of any snapshot is left; more was lost than the backups cover" in verdict


def test_holders_that_die_are_replaced_and_the_state_is_protected_again() -> None:
    schedule, task = schedule_with_check_fragments()
    before = owner(schedule, task).backups.layouts
    mine = next(id for id in before if str(id) == task)
    holder = before[mine].holders[0]
    schedule._crash(schedule.workers[holder])
    while holder in schedule.record.workers:
        schedule.step()
    assert run_until_healed(schedule)
    layout = owner(schedule, task).backups.layouts[mine]
    assert holder not in layout.holders
    held = [machine.worker for machine in machines(schedule) if task in machine.backups.store.tasks()]
    assert set(layout.holders) <= set(held)
    assert schedule.run().verdict == "exact"
