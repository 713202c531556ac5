"""Where new spares go: to the emptiest node, and to another node when all workers have come to be on one."""

from __future__ import annotations

from rstream.core.coordinator import CoordinatorMachine
from rstream.core.deployment import WorkerAddress
from rstream.core.instructions import Persist, StartWorker
from rstream.core.records import TopologyRecord, WorkerRecord
from tests.unit.control.samples import make_record


def machine_with(spares: int, **nodes: str) -> tuple[CoordinatorMachine, TopologyRecord]:
    record = make_record()
    record.spare_count = spares
    for worker, node in nodes.items():
        known = record.workers[f"wc/{worker}"]
        known.address = type(known.address)(known.address.worker, node, known.address.incarnation)
    machine = CoordinatorMachine()
    machine.adopt(record)
    return machine, record


def started_on(instructions: list[object]) -> list[str]:
    return [each.node for each in instructions if isinstance(each, StartWorker)]


def test_the_spare_for_a_dead_worker_goes_to_the_node_with_the_fewest_workers() -> None:
    machine, _ = machine_with(1)
    assert started_on([*machine.died("wc", "wc/w1", b"", ["n1", "n2"])]) == ["n2"]
    machine, _ = machine_with(1)
    assert started_on([*machine.died("wc", "wc/w1", b"", ["n1", "n3"])]) == ["n3"]


def test_without_a_list_of_nodes_the_spare_goes_where_the_dead_worker_was() -> None:
    machine, _ = machine_with(1)
    assert started_on([*machine.died("wc", "wc/w1", b"")]) == ["n2"]


def test_a_topology_on_one_node_gets_one_spare_on_another_and_only_one() -> None:
    machine, _ = machine_with(1, w0="n1", w1="n1")
    instructions = machine.spread("wc", ["n1", "n2"])
    assert isinstance(instructions[0], Persist)
    assert started_on([*instructions]) == ["n2"]
    assert machine.spread("wc", ["n1", "n2"]) == []


def test_nothing_is_started_where_there_is_no_other_node_or_no_spares_are_wanted() -> None:
    assert machine_with(1, w0="n1", w1="n1")[0].spread("wc", ["n1"]) == []
    assert machine_with(1)[0].spread("wc", ["n1", "n2"]) == []
    assert machine_with(0, w0="n1", w1="n1")[0].spread("wc", ["n1", "n2"]) == []


def test_lost_tasks_do_not_go_to_a_worker_that_may_be_lost_too_unless_there_is_no_other() -> None:
    for doubted, host in (((), "wc/s2"), (("wc/s2",), "wc/w0"), (("wc/s2", "wc/w0"), "wc/w0")):
        machine, record = machine_with(0)
        record.workers["wc/s2"] = WorkerRecord(WorkerAddress("wc/s2", "n2", 3), "ready", spare=True)
        machine.died("wc", "wc/w1", b"", ["n1"], doubted)
        assert set(record.placement.values()) == {"wc/w0", host}, doubted
