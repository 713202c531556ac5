"""The controller's thread, without Ray: what goes wrong with one topology is no matter of the others."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rstream.clock import ManualClock
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import Instruction
from rstream.core.records import TopologyRecord
from rstream.core.status import ReportBook
from rstream.core.steps import Step
from rstream.core.versions import Version
from rstream.runtime.controller import Controller
from tests.unit.control.samples import NODES, fill, make_record


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
            fill(self.books[record.name].meter, record, 0.0, 60.0, per_s, 0.0015)
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


def _entry(name: str) -> dict[str, Any]:
    return {"at_s": 0.0, "topology": name, "policy": "static", "state": "planned", "reasons": [], "steps": []}
