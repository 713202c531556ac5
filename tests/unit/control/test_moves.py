"""Moves as the coordinator orders them: what is told to whom, what ends them, and which slot is whose."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from rstream.core.channel import TaskId
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.deployment import WorkerAddress
from rstream.core.executor import Executor
from rstream.core.instructions import Fence, Park, StartWorker
from rstream.core.records import TopologyRecord
from rstream.core.report import TaskReport, WorkerReport
from rstream.core.slots import SlotBook
from rstream.core.status import ReportBook
from rstream.core.steering import nodes_used
from rstream.core.steps import Step
from rstream.core.versions import Version
from rstream.errors import UsageError
from rstream.schedulers.base import Slot
from tests.unit.control.samples import make_record

COUNT = TaskId("count", 0)


def running() -> tuple[CoordinatorMachine, TopologyRecord]:
    record = make_record()
    record.instances = dict(record.parallelism)
    record.versions = {step: [Version.first(tasks)] for step, tasks in record.parallelism.items()}
    machine = CoordinatorMachine()
    machine.adopt(record)
    return machine, record


def close_round(machine: CoordinatorMachine, record: TopologyRecord) -> list[Any]:
    """All workers answer, and bring back what is lost; what follows."""
    assert record.round is not None
    number = record.round.number
    done: list[Any] = []
    for worker in sorted(record.round.asked):
        done += machine.fenced("wc", worker, number, {})
    for start in [each for each in done if hasattr(each, "restores")]:
        done += machine.restored("wc", start.worker, number)
    return done


def of_kind(instructions: list[Any], kind: type) -> list[Any]:
    return [each for each in instructions if isinstance(each, kind)]


def test_a_task_is_parked_first_and_placed_when_its_host_has_said_so() -> None:
    machine, record = running()
    [park] = of_kind(machine.move("wc", {COUNT: "wc/w1"}), Park)
    assert (park.worker, park.targets, record.state) == ("wc/w0", {COUNT: "wc/w1"}, "REBALANCING")
    assert record.placement[COUNT] == "wc/w0"
    fences = of_kind(machine.parked("wc", "wc/w0", park.order, 0.0), Fence)
    assert [fence.worker for fence in fences] == ["wc/w0", "wc/w1"]
    assert (record.placement[COUNT], record.incarnations[COUNT], record.moves) == ("wc/w1", 1, {})
    assert machine.parked("wc", "wc/w0", park.order, 0.0) == [], "it was said before"
    close_round(machine, record)
    assert record.state == "ACTIVE"


def test_a_round_in_between_takes_the_order_back_and_a_new_one_follows() -> None:
    machine, record = running()
    [park] = of_kind(machine.move("wc", {COUNT: "wc/w1"}), Park)
    machine.adopt(pickle.loads(pickle.dumps(record)))
    record = machine.topologies["wc"]
    assert of_kind(machine.resume("wc"), Fence)
    assert machine.parked("wc", "wc/w0", park.order, 0.0) == []
    [again] = of_kind(close_round(machine, record), Park)
    assert again.order > park.order
    assert again.targets == park.targets


def test_a_move_is_over_when_its_host_or_its_target_dies() -> None:
    for victim in ("wc/w0", "wc/w1"):
        machine, record = running()
        machine.move("wc", {COUNT: "wc/w1"})
        machine.died("wc", victim, b"")
        assert record.moves == {}
        assert victim not in record.placement.values()


def test_what_cannot_move_is_refused_and_nothing_changes() -> None:
    machine, record = running()
    for targets, why in (({TaskId("count", 7): "wc/w1"}, "no task count#7"), ({COUNT: "wc/w9"}, "no worker 'wc/w9'")):
        with pytest.raises(UsageError, match=why):
            machine.move("wc", targets)
    record.recovers = False
    with pytest.raises(UsageError, match="at_most_once"):
        machine.move("wc", {COUNT: "wc/w1"})
    assert record.moves == {}


def test_a_worker_left_without_tasks_retires_where_two_others_stay_and_is_a_spare_else() -> None:
    for more in (False, True):
        machine, record = running()
        if more:
            worker, _ = machine.add_worker("wc", "n2", 3)
            record.workers[worker].phase = "ready"
        mine = [task for task, host in record.placement.items() if host == "wc/w0"]
        [park] = of_kind(machine.move("wc", dict.fromkeys(mine, "wc/w1")), Park)
        machine.parked("wc", "wc/w0", park.order, 0.0)
        assert record.workers["wc/w0"].spare
        assert record.workers["wc/w0"].retiring == more
        close_round(machine, record)
        for name in [name for name in record.workers if name != "wc/w0"]:
            machine.relieved("wc", name, record.version)
        assert ("wc/w0" in record.workers) == (not more)


def test_a_plan_books_its_slots_starts_workers_there_and_moves_to_them() -> None:
    machine, record = running()
    book = SlotBook()
    book.sync([record])
    executor = Executor(machine, book)
    entry: dict[str, Any] = {"state": "planned", "steps": []}
    executor.begin("wc", entry, [Step("move", "move count#0", "count", places=[("count", 0, "n2", 1)])], 0.0)
    assert [step["kind"] for step in entry["steps"]] == ["workers", "move"]
    assert book.numbering(["other"], {"n2": 3}).shown["n2"] == (2,), "w1 has 0, and 1 is booked"
    [start] = of_kind(executor.turn("wc", 0.0)[0], StartWorker)
    assert (start.node, record.workers[start.worker].slot) == ("n2", 1)
    machine.started("wc", start.worker, WorkerAddress(start.worker, "n2", start.incarnation), 1)
    machine.deployed("wc", start.worker)
    close_round(machine, record)
    [park] = of_kind(executor.turn("wc", 1.0)[0], Park)
    machine.parked("wc", park.worker, park.order, 1.75)
    close_round(machine, record)
    executor.turn("wc", 2.0)
    assert entry["state"] == "done"
    assert record.placement[COUNT] == start.worker
    assert [(step["took_s"], step["paused_ms"]) for step in entry["steps"]] == [(1.0, 0.0), (1.0, 250.0)]
    anew = SlotBook()
    anew.sync([record])
    assert anew.worker(Slot("n2", 1)) == start.worker, "a coordinator that comes back knows the slots"


def test_a_new_task_starts_in_a_new_worker_on_the_slot_that_the_plan_gives_it() -> None:
    machine, record = running()
    book = SlotBook()
    book.sync([record])
    executor = Executor(machine, book)
    entry: dict[str, Any] = {"state": "planned", "steps": []}
    steps = [
        Step("load", "load double#2", "double", [2], places=[("double", 2, "n2", 1)]),
        Step("activate", "activate double#2", "double", [0, 1, 2]),
    ]
    executor.begin("wc", entry, steps, 0.0)
    assert [step["kind"] for step in entry["steps"]] == ["workers", "load", "activate"]
    assert book.numbering(["other"], {"n2": 3}).shown["n2"] == (2,), "w1 has 0, and 1 is booked"
    anew = SlotBook()
    Executor(machine, anew).resume("wc", json.loads(json.dumps(entry)), 0.0)
    assert anew.numbering(["other"], {"n2": 3}).shown["n2"] == (0, 2), "a coordinator that comes back books it again"
    [start] = of_kind(executor.turn("wc", 0.0)[0], StartWorker)
    machine.started("wc", start.worker, WorkerAddress(start.worker, "n2", start.incarnation), 1)
    machine.deployed("wc", start.worker)
    close_round(machine, record)
    executor.turn("wc", 1.0)
    close_round(machine, record)
    assert record.placement[TaskId("double", 2)] == start.worker
    assert book.worker(Slot("n2", 1)) == start.worker


def test_a_node_that_a_smaller_topology_does_not_need_is_not_in_use_any_more() -> None:
    machine, record = running()
    worker, _ = machine.add_worker("wc", "n3", 0)
    record.workers[worker].phase = "ready"
    record.workers[worker].host_tasks()
    record.placement[TaskId("double", 1)] = worker
    book = SlotBook()
    book.sync([record])
    executor = Executor(machine, book)
    steps = [
        Step("deactivate", "deactivate double#1", "double", [0]),
        Step("move", "move double#1", "double", places=[("double", 1, "n1", 0)]),
    ]
    entry: dict[str, Any] = {"state": "planned", "steps": []}
    executor.begin("wc", entry, steps, 0.0)
    executor.turn("wc", 0.0)
    close_round(machine, record)  # double's tasks get channels to each other
    close_round(machine, record)  # its sender gets the new version
    machine.progressed("wc", {(task, "double"): 1 for task in record.tasks("n")})
    assert nodes_used([record]) == 3
    [park] = of_kind(executor.turn("wc", 1.0)[0], Park)
    machine.parked("wc", park.worker, park.order, 1.0)
    close_round(machine, record)
    executor.turn("wc", 2.0)
    assert entry["state"] == "done"
    assert nodes_used([record]) == 2
    for name in ("wc/w0", "wc/w1"):
        machine.relieved("wc", name, record.version)
    assert worker not in record.workers


def test_a_restart_starts_the_topology_where_the_plan_wants_it_if_these_nodes_are_still_there() -> None:
    places = {task: Slot("n2", 2) for task in (*make_record().placement,)}
    places[COUNT] = Slot("n3", 1)
    for nodes, wanted in ((["n1", "n2", "n3"], {("n2", 2), ("n3", 1)}), (["n1", "n2"], {("n1", None), ("n2", None)})):
        machine, record = running()
        machine.restart("wc", "memory", {}, places=places)
        assert record.savepoint is not None
        machine.closed("wc", record.savepoint.attempt)
        record = pickle.loads(pickle.dumps(record))  # the coordinator may end in between
        machine.adopt(record)
        machine.start_over("wc", nodes)
        assert {(each.address.node, each.slot) for each in record.workers.values()} == wanted
        if len(nodes) == 3:
            assert {task: record.workers[host].address.node for task, host in record.placement.items()} == {
                task: slot.node for task, slot in places.items()
            }
        assert record.start_places == {}


def report(at_s: float, *tasks: TaskReport) -> WorkerReport:
    return WorkerReport(at_s, list(tasks), [], [0] * 400, None, 1, True)


def test_what_a_moved_task_had_counted_is_not_forgotten() -> None:
    book = ReportBook()
    book.add("w0", report(1.0, TaskReport("count", 0, 50, 40, 30, 0, 0, 0.5)))
    book.add("w1", report(1.0))
    book.add("w0", report(2.0))
    moved = TaskReport("count", 0, 5, 4, 3, 0, 0, 0.1)
    book.add("w1", report(2.0, moved))
    assert (book.whole(moved).processed, book.whole(moved).emitted) == (44, 33)
    book.add("w1", report(3.0, moved))
    assert book.whole(moved).processed == 44


def test_what_was_counted_before_a_restart_counts_once_after_it() -> None:
    book = ReportBook()
    book.add("w0", report(1.0, TaskReport("count", 0, 50, 40, 30, 0, 0, 0.5)))
    book.add("w1", report(2.0, TaskReport("count", 0, 5, 4, 3, 0, 0, 0.1)))
    book.forget("w0")
    book.restarted()
    book.add("w2", report(9.0, TaskReport("count", 0, 2, 2, 2, 0, 0, 0.1)))
    tasks = [book.whole(task) for each in book.newest.values() for task in each.tasks]
    assert sum(task.processed for task in tasks) == 46
