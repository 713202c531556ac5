"""Moves in the fault simulation: exact at every moment, whoever ends meanwhile, and a broken move is found out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rstream.core.backup import Backups
from rstream.core.channel import TaskId
from rstream.core.task import Task
from rstream.core.worker_moves import LeavingTasks
from rstream.errors import RStreamError
from rstream.lab.faults import Schedule
from rstream.state.erasure import Fragment


class Moving(Schedule):
    """A schedule in which tasks move again and again, beside everything else that happens."""

    def plan_moves(self) -> None:
        at_s = 0.02
        for _ in range(self.walks.randint(3, 8)):
            at_s += self.walks.expovariate(1.0 / (self.delay_s * self.walks.choice([1.0, 4.0])))
            self.after(at_s, lambda: self._move(self.walks.random() < 0.5))


class Calm(Schedule):
    """A schedule in which nothing happens but what the test does."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, faults=0)

    def plan_changes(self) -> None:
        pass

    def plan_moves(self) -> None:
        pass


def verdicts(seeds: Iterable[int], happened: Counter[str] | None = None) -> list[tuple[int, str]]:
    """The seeds that were not exact, and what was wrong."""
    wrong = []
    for seed in seeds:
        schedule = Moving(seed)
        try:
            outcome = schedule.run()
        except (AssertionError, KeyError, IndexError, RStreamError) as error:
            wrong.append((seed, f"broke: {error!r}"))
            continue
        if happened is not None:
            happened.update(outcome.events)
        if not outcome.exact:
            wrong.append((seed, outcome.verdict))
    return wrong


def test_moves_of_a_fixed_set_are_exact() -> None:
    happened: Counter[str] = Counter()
    assert verdicts(range(20_000, 20_016), happened) == []
    assert happened["moved"] > 10
    assert {"end of the old host during a move", "end of the target during a move"} <= set(happened)


@pytest.mark.long
def test_moves_of_many_schedules_are_exact() -> None:
    assert verdicts(range(30_000, 30_400)) == []


def test_a_moved_task_is_gone_from_its_old_host_and_an_emptied_worker_ends() -> None:
    ended = 0
    for seed in range(20_100, 20_108):
        schedule = Calm(seed)
        while not schedule.is_well():
            schedule.step()
        hosts = sorted(schedule.record.hosts())
        leaving = random.Random(seed).choice(hosts)
        target = next((host for host in hosts if host != leaving), None)
        tasks = [task for task, host in schedule.record.placement.items() if host == leaving]
        if target is None or not tasks:
            continue
        schedule._do(schedule.coordinator.move(schedule.name, dict.fromkeys(tasks, target)))
        outcome = schedule.run()
        assert outcome.exact, (seed, outcome.verdict)
        if outcome.events["moved"] == 0:
            continue  # the stream was over first
        ended += leaving not in schedule.record.workers
        machine = schedule.workers[leaving].machine
        assert machine is not None
        assert all(task not in machine.by_id for task in tasks)
    assert ended > 0


def go_on_while_parked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Task, "parked", property(lambda self: False, lambda self, value: None), raising=False)

    def at_once(self: LeavingTasks, task: Task) -> bool:
        return task.commits or task.id in self.backups.secured

    patch.setattr(LeavingTasks, "_stop", at_once)


def no_copy_stays(patch: pytest.MonkeyPatch) -> None:
    """The old host keeps nothing of a task that it lets go."""
    hold = Backups.hold

    def not_own(self: Backups, task: TaskId, fragment: Fragment, position: int) -> bool:
        return task in self.layouts or hold(self, task, fragment, position)

    patch.setattr(Backups, "hold", not_own)


Mutate = Callable[[pytest.MonkeyPatch], Any]


@pytest.mark.parametrize("mutate", [pytest.param(go_on_while_parked, marks=pytest.mark.long), no_copy_stays])
def test_a_broken_move_is_found_out(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    assert any(verdicts([seed]) for seed in range(20_000, 20_120))
