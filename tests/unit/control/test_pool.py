"""The replica pool: how large it is, what policies see of it, and how senders hear of uneven use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rstream.config import ControlConfig
from rstream.core.meter import Meter
from rstream.core.pool import balances, missing_replicas, pool_of
from rstream.core.slots import SlotBook
from rstream.core.versions import Version
from rstream.core.view import build
from rstream.schedulers.base import EdgeView, TopologyView, View
from tests.unit.control.samples import NODES, fill, make_record


def test_psps_has_twice_the_slots_over_the_operators_loaded_of_steps_that_it_scales() -> None:
    record = make_record(policy="psps")
    assert missing_replicas(record, slots=8) == {"double": 4}, "2 x 8 slots over 4 operators; count is keyed"
    keyed = make_record(policy="psps", parameters={"scale_stateful": True})
    assert missing_replicas(keyed, slots=8) == {"double": 4, "count": 4}
    assert missing_replicas(make_record(policy="es"), slots=8) == {}


def test_a_pool_that_the_user_asked_for_counts_for_any_policy() -> None:
    record = make_record(policy="es")
    record.pool, record.versions = {"double": 3}, {"double": [Version.first(2, 5)]}
    assert pool_of(record, "double", slots=8) == 5


def test_policies_see_idle_replicas_as_far_as_the_pool_goes() -> None:
    record, book = make_record(policy="psps"), SlotBook()
    record.instances = {"n": 1, "double": 7, "count": 3, "out": 1}
    record.placement.update({task: "wc/w0" for name in ("double", "count") for task in record.tasks(name)})
    book.sync([record])
    view = build([record], [record], {"wc": Meter()}, NODES, book, ControlConfig(), 0.0, 0.0).view.topology("wc")
    assert (len(view.rows("double")), view.active("double")) == (4, 2)
    assert (len(view.rows("count")), view.active("count")) == (1, 1), "removed tasks are at nobody's disposal"


def _balanced(waiting_s: tuple[float, float]) -> tuple[View, TopologyView]:
    record, meter, book = make_record(), Meter(), SlotBook()
    fill(meter, record, 0.0, 12.0, 1000.0, 0.001)
    book.sync([record])
    view = build([record], [record], {"wc": meter}, NODES, book, ControlConfig(), 1.0, 11.0).view
    topology = view.topology("wc")
    edges = tuple(
        EdgeView(edge.source, edge.target, edge.selectivity, "load_balanced" if edge.target == "double" else "key")
        for edge in topology.edges
    )
    table = topology.tasks
    queue = 0.0 * table.queue
    queue[topology.rows("double")] = [seconds / topology.service_s("double") for seconds in waiting_s]
    return view, replace(topology, edges=edges, tasks=replace(table, queue=queue))


def test_senders_hear_of_uneven_backlogs_and_of_nothing_else() -> None:
    view, topology = _balanced((8.0, 2.0))
    (told,) = balances(view, topology)
    assert told.operator == "double"
    assert told.use == pytest.approx([0.8, 0.2])
    assert told.step == pytest.approx(1 * (10.0 / 10_000) / 10.0, rel=0.05), "senders x service time / interval"
    assert list(balances(*_balanced((5.0, 5.2)))) == []
