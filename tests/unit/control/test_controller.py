"""The controller's thread, without Ray: what goes wrong with one topology is no matter of the others."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from rstream.clock import ManualClock
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.deployment import WorkerAddress
from rstream.core.instructions import Instruction, Park, StartWorker
from rstream.core.records import TopologyRecord
from rstream.core.status import ReportBook
from rstream.core.steps import Step
from rstream.core.versions import Version
from rstream.core.view import NodeFacts
from rstream.runtime.controller import Controller
from tests.unit.control.samples import NODES, fill, make_record
from tests.unit.control.test_moves import close_round


class Memory:
    """A journal that ends with the test."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, name: str, content: bytes) -> None:
        self.kept[name] = content

    def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def delete(self, name: str) -> None:
        self.kept.pop(name, None)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self.kept if name.startswith(prefix))


class Cluster:
    """Topologies that have run for half a minute, and their controller."""

    def __init__(self, *records: TopologyRecord, per_s: float = 1000.0, store: Memory | None = None) -> None:
        self.machine, self.clock, self.store = CoordinatorMachine(), ManualClock(), store or Memory()
        self.records = {record.name: record for record in records}
        self.books: dict[str, ReportBook] = {}
        self.asked: list[int] = []
        self.done: list[Instruction] = []
        self.nodes = list(NODES)
        for at, record in enumerate(records):
            record.instances = record.instances or dict(record.parallelism)
            record.versions = record.versions or {
                step: [Version.first(tasks)] for step, tasks in record.parallelism.items()
            }
            for worker in record.workers.values():
                worker.address = type(worker.address)(
                    worker.address.worker, worker.address.node, worker.address.incarnation + 10 * at
                )
            self.machine.adopt(record)
            self.books[record.name] = ReportBook()
            fill(self.books[record.name].meter, record, 0.0, 30.0, per_s, 0.0015)
        self.controller = Controller(
            self.machine,
            self.books,
            threading.RLock(),
            self.store,
            self.clock,
            self.done.extend,
            lambda: self.nodes,
            lambda count, _: self.asked.append(count),
        )
        self.controller.turn()

    def look(self, after_s: float = 20.0) -> None:
        """Time passes, and the controller takes its turn."""
        self.clock.advance(after_s)
        self.controller.turn()

    def decisions(self, name: str) -> list[dict[str, Any]]:
        return self.controller.decisions(name)


def test_a_policy_that_raises_is_said_so_and_the_other_topologies_are_looked_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(make_record("bad", "me", interval_s=5.0), make_record("good", "even", interval_s=5.0))
    (group,) = [each for each in cluster.controller.control.groups.values() if each.topologies == ["bad"]]

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a mistake\nin a policy")

    monkeypatch.setattr(group.policy, "plan", broken)
    cluster.look()
    (entry,) = cluster.decisions("bad")
    assert (entry["state"], entry["reasons"][0]["summary"]) == (
        "failed",
        "error: ZeroDivisionError: a mistake",
    )
    assert len(cluster.decisions("good")) == 1
    cluster.look(0.2)
    assert cluster.decisions("bad")[0]["times"] == 1, "it is asked again after its interval, not at once"
    cluster.look(5.0)
    (entry,) = cluster.decisions("bad")
    assert entry["times"] == 2


def test_a_topology_that_cannot_be_looked_at_does_not_hold_up_the_others() -> None:
    cluster = Cluster(make_record("bad", "me", interval_s=5.0), make_record("good", "even", interval_s=5.0))
    cluster.books["bad"].meter = None  # type: ignore[assignment]
    cluster.look()
    assert cluster.decisions("bad")[0]["state"] == "failed"
    assert len(cluster.decisions("good")) == 1


def test_a_veto_that_is_not_there_stops_one_topology_alone_and_is_said_once() -> None:
    bad = make_record("bad", "es", interval_s=5.0, veto="nowhere:nothing")
    cluster = Cluster(bad, make_record("good", "even", interval_s=5.0))
    cluster.look()
    (entry,) = cluster.decisions("bad")
    assert "nowhere:nothing" in entry["reasons"][0]["summary"]
    assert entry["times"] == 1
    assert len(cluster.decisions("good")) == 1


def test_a_plan_that_cannot_be_carried_out_is_given_up_and_the_others_go_on() -> None:
    cluster = Cluster(make_record("bad", "static"), make_record("good", "static"))
    executor = cluster.controller.executor
    entries = {}
    for name, step in (
        ("bad", Step("load", "no task at all", "double")),
        ("good", Step("activate", "", "double", [0])),
    ):
        log = cluster.controller.control.log(cluster.records[name])
        entries[name] = log.add(_entry(name))
        executor.begin(name, entries[name], [step], 0.0)
    cluster.look(0.2)
    assert entries["bad"]["state"].startswith("given up: ValueError")
    assert entries["good"]["state"] == "running"
    assert cluster.records["good"].round is not None


def crowded() -> TopologyRecord:
    """A topology that es would let grow if any node could take a task more."""
    return make_record("wc", "es", interval_s=5.0, parameters={"alpha_cpu": 0.3})


def test_the_autoscaler_is_asked_once_and_a_node_that_comes_is_used_at_the_next_look() -> None:
    cluster = Cluster(crowded())
    cluster.look(30.0)
    cluster.look(1.0)
    assert len(cluster.asked) == 1
    assert cluster.asked[0] > len(NODES)
    cluster.look(5.0)
    cluster.look(5.0)
    last = cluster.decisions("wc")[-1]
    assert (last["state"], len(cluster.asked)) == ("nothing to do", 1)
    assert any("asked for already and have not come" in reason["summary"] for reason in last["reasons"])
    cluster.nodes.append(NodeFacts("n3", 4.0, 1e9, 4))
    cluster.look(5.0)
    last = cluster.decisions("wc")[-1]
    assert last["state"] == "running", "the rate is the same, but now there is a node"
    assert {move["slot"][0] for move in last["moves"] if move["kind"] == "add_task"} == {"n3"}


def test_what_was_asked_of_the_autoscaler_survives_the_coordinator_and_emptied_nodes_are_given_back() -> None:
    first = Cluster(crowded())
    first.look(30.0)
    first.look(1.0)
    first.controller.control.added = ["n2"]
    first.controller._keep_nodes()
    second = Cluster(crowded(), store=first.store)
    assert second.controller.control.requests == first.controller.control.requests
    assert second.controller.control.added == ["n2"]
    second.look(1.0)
    assert second.asked == [], "it was asked for already"
    second.controller.control.requests.came = True
    second.look(1.0)
    assert second.asked == [2], "what came is not used any more"


def test_an_autoscaler_that_does_not_answer_is_asked_again() -> None:
    cluster = Cluster(crowded())
    answers = [ConnectionError("no autoscaler"), None]

    def ask(count: int, _: float) -> None:
        error = answers.pop(0)
        if error is not None:
            raise error
        cluster.asked.append(count)

    cluster.controller._ask = ask
    cluster.look(30.0)
    cluster.look(1.0)
    assert cluster.asked == []
    cluster.look(1.0)
    assert len(cluster.asked) == 1


def test_a_plan_that_is_given_up_is_not_remembered_as_done() -> None:
    cluster = Cluster(make_record("wc", "es", interval_s=5.0))
    cluster.look(30.0)
    assert cluster.decisions("wc")[-1]["state"] == "running"
    cluster.controller.changed_by_hand("wc")
    assert cluster.decisions("wc")[-1]["state"].startswith("given up")
    close_round(cluster.machine, cluster.records["wc"])
    cluster.look(10.0)
    assert cluster.decisions("wc")[-1]["state"] == "running", "the rate has not changed, but nothing was done for it"
    kept = json.loads(cluster.store.kept["control/memory/wc"])
    assert "rate" in kept["memory"]["policy"]["topologies"]["wc"]
    assert kept["before"] == {}


def test_a_topology_that_changed_while_its_policy_thought_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(make_record("wc", "es", interval_s=5.0))
    (group,) = cluster.controller.control.groups.values()
    plan = group.policy.plan

    def meanwhile(*arguments: Any) -> Any:
        cluster.records["wc"].version += 1
        return plan(*arguments)

    monkeypatch.setattr(group.policy, "plan", meanwhile)
    cluster.look(30.0)
    monkeypatch.undo()
    assert cluster.decisions("wc")[-1]["state"] == "the topology changed meanwhile"
    cluster.look(10.0)
    assert cluster.decisions("wc")[-1]["state"] == "running"


def announced(cluster: Cluster, *ending: str) -> None:
    """The end of these nodes is announced."""
    cluster.nodes = [replace(node, draining=node.id in ending) for node in cluster.nodes]


def test_everything_leaves_a_node_that_is_about_to_end_whatever_the_policy_is() -> None:
    cluster = Cluster(make_record("wc", "static"))
    record = cluster.records["wc"]
    announced(cluster, "n1")
    cluster.look(1.0)
    (entry,) = cluster.decisions("wc")
    assert (entry["policy"], entry["state"]) == ("evacuation", "running")
    assert entry["reasons"][0]["summary"] == "node n1 is about to end: its 4 tasks move away"
    assert [step["what"] for step in entry["steps"]] == [
        "start workers on n2/1",
        *(f"move {task} on n2/1" for task in ("n#0", "double#0", "count#0", "out#0")),
    ]
    [start] = [each for each in cluster.done if isinstance(each, StartWorker)]
    cluster.machine.started("wc", start.worker, WorkerAddress(start.worker, "n2", start.incarnation), 1)
    cluster.machine.deployed("wc", start.worker)
    close_round(cluster.machine, record)
    for _ in range(4):
        cluster.look(0.2)
        [park] = [each for each in cluster.done if isinstance(each, Park)][-1:]
        cluster.machine.parked("wc", park.worker, park.order, 0.0)
        close_round(cluster.machine, record)
    cluster.look(0.2)
    assert cluster.decisions("wc")[-1]["state"] == "done"
    assert {record.workers[worker].address.node for worker in record.placement.values()} == {"n2"}
    assert record.workers["wc/w0"].retiring
    cluster.look(10.0)
    assert len(cluster.decisions("wc")) == 1, "nothing is left there to move"


def test_a_policys_plan_makes_way_when_a_node_is_about_to_end() -> None:
    cluster = Cluster(make_record("wc", "es", interval_s=5.0))
    cluster.look(30.0)
    announced(cluster, "n2")
    cluster.look(1.0)
    assert cluster.decisions("wc")[-1]["state"] == "given up: a node is about to end"
    close_round(cluster.machine, cluster.records["wc"])
    cluster.look(1.0)
    assert [(each["policy"], each["state"]) for each in cluster.decisions("wc")][-1] == ("evacuation", "running")


@pytest.mark.parametrize(
    ("ending", "change", "why"),
    [
        (("n1", "n2"), {}, "no other node takes them"),
        (("n2",), {"recovers": False}, "delivery: at_most_once"),
        (("n2",), {"checkpointed": True}, "state.backend: checkpoint"),
    ],
)
def test_tasks_that_cannot_leave_stay_and_it_is_said_once_why(
    ending: tuple[str, ...], change: dict[str, bool], why: str
) -> None:
    cluster = Cluster(make_record("wc", "static"))
    for name, value in change.items():
        setattr(cluster.records["wc"], name, value)
    announced(cluster, *ending)
    cluster.look(1.0)
    cluster.look(6.0)
    (entry,) = cluster.decisions("wc")
    assert (entry["state"], entry["times"]) == ("nothing to do", 2)
    assert why in entry["reasons"][0]["summary"]


def test_where_no_slot_is_free_tasks_join_the_workers_that_stay() -> None:
    cluster = Cluster(make_record("wc", "static", slots_per_node=1))
    announced(cluster, "n1")
    cluster.look(1.0)
    assert [step["kind"] for step in cluster.decisions("wc")[0]["steps"]] == ["move"] * 4
    assert {place[3] for step in cluster.decisions("wc")[0]["steps"] for place in step["places"]} == {0}


def _entry(name: str) -> dict[str, Any]:
    return {"at_s": 0.0, "topology": name, "policy": "static", "state": "planned", "reasons": [], "steps": []}
