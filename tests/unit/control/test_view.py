"""What policies see of a running topology is what its workers reported."""

from __future__ import annotations

import pytest

from rstream.config import ControlConfig
from rstream.core.meter import Meter
from rstream.core.slots import SlotBook
from rstream.core.view import Picture, build
from rstream.schedulers.base import Slot, TaskId
from tests.unit.control.samples import NODES, fill, make_record


def _picture(per_s: float = 1000.0, service_s: float = 0.0005, **control: object) -> Picture:
    record, meter, book = make_record(), Meter(), SlotBook()
    fill(meter, record, 0.0, 12.0, per_s, service_s)
    book.sync([record])
    config = ControlConfig(**control)
    return build([record], [record], {"wc": meter}, NODES, book, config, 1.0, 11.0)


def test_every_row_of_the_monitoring_table_is_filled() -> None:
    view = _picture().view
    topology = view.topology("wc")
    assert view.window_s == 10.0
    assert topology.source_count == pytest.approx(10_000)
    assert [operator.name for operator in topology.operators] == ["n", "double", "count", "out"]
    assert topology.service_s("double") == pytest.approx(0.0005)
    assert topology.tasks.queue.tolist() == [5.0] * 5
    assert topology.tasks.processed[topology.rows("double")].tolist() == pytest.approx([5000, 5000])
    edges = {(edge.source, edge.target): edge for edge in topology.edges}
    assert edges["n", "double"].count == pytest.approx(10_000, rel=0.01)
    assert edges["n", "double"].selectivity == pytest.approx(1.0, rel=0.01)
    assert edges["n", "double"].tuple_bytes == pytest.approx(100.0)
    assert edges["double", "count"].grouping == "key"
    assert topology.operator("count").keyed
    assert topology.operator("count").stateful
    assert not topology.operator("double").stateful
    assert topology.traffic.samples.shape == (5, 10)
    assert len(topology.operator("double").execute_samples_ms) == 10
    assert topology.latency_ms > 0
    assert view.tiers.node_s == pytest.approx(0.0005)


def test_node_load_is_cpu_time_over_declared_cpus_plus_the_baseline() -> None:
    plain, based = _picture().view, _picture(baseline_cpu=0.1).view
    # The first worker has n, double#0, count and out: 3.5 x 1000/s x 0.5 ms of CPU on 4 CPUs.
    assert plain.node("n1").load.cpu == pytest.approx(3.5 * 0.5 / 4, rel=0.02)
    assert plain.node("n2").load.cpu == pytest.approx(0.5 * 0.5 / 4, rel=0.02)
    assert based.node("n2").load.cpu == pytest.approx(0.1 + 0.5 * 0.5 / 4, rel=0.02)


def test_task_memory_is_state_and_queued_bytes() -> None:
    topology = _picture().view.topology("wc")
    row = topology.rows("count")[0]
    assert topology.tasks.mem[row] == pytest.approx((1000 + 5 * 100) / 1e9)


def test_sources_and_sinks_keep_their_size_unless_all_may_change() -> None:
    fixed, free = _picture().view.topology("wc"), _picture(scale="all").view.topology("wc")
    assert fixed.operator("out").parallelism_max == fixed.operator("out").parallelism_min == 1
    assert free.operator("out").parallelism_max > 1
    assert free.operator("n").parallelism_max == 1  # it has one split
    assert fixed.operator("double").parallelism_max > 2


def test_a_topology_that_is_restarted_may_change_size_where_a_running_one_may_not() -> None:
    for execute, free in ((None, False), ("restart", True)):
        record, book = make_record(execute=execute), SlotBook()
        record.checkpointed = True
        view = build([record], [record], {"wc": Meter()}, NODES, book, record.control, 0.0, 0.0).view
        operator = view.topology("wc").operator("double")
        assert (operator.parallelism_max > 2) is free


def test_a_policy_sees_its_own_slots_and_free_ones_but_none_of_another_topology() -> None:
    ours, theirs = make_record("ours"), make_record("theirs")
    book = SlotBook()
    book.sync([theirs, ours])
    meters = {"ours": Meter(), "theirs": Meter()}
    picture = build([ours], [ours, theirs], meters, NODES, book, ControlConfig(), 0.0, 0.0)
    assert [node.processes for node in picture.view.nodes] == [3, 3]
    local = picture.view.topology("ours").placement[TaskId("count", 0)]
    assert local == Slot("n1", 0)
    assert picture.numbering.real(local) == Slot("n1", 1)
    assert book.worker(Slot("n1", 1)) == "ours/w0"
    assert book.worker(Slot("n1", 0)) == "theirs/w0"


def test_the_load_of_other_topologies_counts() -> None:
    ours, theirs = make_record("ours"), make_record("theirs")
    book, meters = SlotBook(), {"ours": Meter(), "theirs": Meter()}
    fill(meters["theirs"], theirs, 0.0, 12.0, 1000.0, 0.0005)
    book.sync([ours, theirs])
    view = build([ours], [ours, theirs], meters, NODES, book, ControlConfig(), 1.0, 11.0).view
    assert view.node("n1").load.cpu == pytest.approx(3.5 * 0.5 / 4, rel=0.02)
