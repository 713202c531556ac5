"""Nobody can change what another one got, and every value arrives as it was sent, on every tier."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from rstream import Topology
from rstream.errors import RunError
from rstream.groupings import All
from tests import samples
from tests.behaviour import parts
from tests.behaviour.conftest import RunTopology
from tests.samples import Colour, FrozenOrder, LooseOrder, Order, Place, Point, Reading, Right, Size, Weekday

each_number_of_workers = pytest.mark.parametrize("workers", [1, 2, 3, 4])


def make_box(number: int) -> dict[str, Any]:
    return {"number": number, "list": [number], "dict": {}, "set": {"x"}}


@each_number_of_workers
def test_a_receiver_that_changes_what_it_got_changes_nobody_elses(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("spoil")
    boxes = topology.source("numbers", range(40)).map("box", make_box)
    boxes.sink("first")
    boxes.grouped(All()).process("spoil", parts.Spoil, parallelism=3).sink("spoilt")
    boxes.sink("last")
    came = run_topology(topology, workers)
    clean = [make_box(n) for n in range(40)]
    assert sorted(came["first"], key=lambda box: box["number"]) == clean
    assert sorted(came["last"], key=lambda box: box["number"]) == clean
    assert len(came["spoilt"]) == 120
    for task, box in came["spoilt"]:
        assert box["list"] == [box["number"], f"spoilt by {task}"]
        assert box["dict"] == {task: True}
        assert box["set"] == {"x", task}


@each_number_of_workers
def test_a_source_is_not_changed_by_those_who_read_it(run_topology: RunTopology, workers: int) -> None:
    boxes = [make_box(n) for n in range(20)]
    topology = Topology("spoil")
    topology.source("boxes", boxes).grouped(All()).process("spoil", parts.Spoil, parallelism=2).sink("out")
    came = run_topology(topology, workers)["out"]
    assert boxes == [make_box(n) for n in range(20)]
    assert all(len(box["list"]) == 2 for _, box in came)


@each_number_of_workers
def test_a_bolt_that_changes_what_it_emitted_changes_nothing_downstream(
    run_topology: RunTopology, workers: int
) -> None:
    topology = Topology("change")
    stream = topology.source("numbers", [1, 2]).process("change", parts.EmitThenChange, outputs=["side"])
    stream.sink("out")
    stream.output("side").sink("side")
    came = run_topology(topology, workers, batch__max_tuples=1)
    assert came["out"] == came["side"] == [[1], [1, "after", 2]]


@each_number_of_workers
def test_a_bolt_may_empty_the_batch_that_it_was_handed(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("empty")
    numbers = topology.source("numbers", range(500))
    numbers.process("spoil", parts.SpoilBatch).sink("out")
    numbers.sink("other")
    came = run_topology(topology, workers)
    assert came["out"] == came["other"] == list(range(500))


VALUES: list[Any] = [
    None,
    True,
    7,
    -(2**200),
    1.5,
    float("inf"),
    "straße",
    "\ud800",
    b"\x00\xff",
    (),
    ("a", 1, None),
    ("a", ("b", ["c"])),
    [],
    [1, (2, [3])],
    {"a": {1: (2,)}, (1, 2): {3}},
    {1, "a", None},
    frozenset({1}),
    bytearray(b"x"),
    1 + 2j,
    Decimal("1.10"),
    uuid.UUID(int=3),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6),
    dt.datetime(2026, 7, 2, tzinfo=samples.ZONES[3]),
    dt.date(2026, 1, 2),
    dt.time(1, 2, tzinfo=dt.UTC),
    dt.timedelta(days=-1, microseconds=3),
    Colour.GREEN,
    Weekday.MONDAY,
    Size.LARGE,
    Right.READ | Right.RUN,
    Point(1, [2]),
    Reading("s", [1.5], {"k": {1}}),
    Place(1.0, (2,), "note"),
    Order(number=1, lines=[("a", 2)]).checked(3),
    FrozenOrder(number=2),
    LooseOrder(no=3, more=[1]),
    np.int8(3),
    np.float32(1.5),
    np.datetime64(5, "ms"),
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.zeros(2, dtype=[("a", "<i4"), ("b", "<f8")]),
]


@each_number_of_workers
def test_every_value_arrives_with_its_type_and_value(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("values")
    numbered = topology.source("values", list(enumerate(VALUES)), parallelism=2)
    numbered.process("tag", parts.Tag, parallelism=2).map("untag", parts.second, parallelism=3).sink(
        "out", parallelism=2
    )
    topology.source("bare", VALUES).process("again", parts.Tag, parallelism=1).map("untag2", parts.second).sink(
        "bare out"
    )
    came = run_topology(topology, workers)
    arrived = dict(came["out"])
    assert len(arrived) == len(VALUES)
    for number, value in enumerate(VALUES):
        assert samples.same(arrived[number], value), (arrived[number], value)
    for arrived_value, value in zip(came["bare out"], VALUES, strict=True):
        assert samples.same(arrived_value, value), (arrived_value, value)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_value_that_cannot_travel_is_refused_at_the_first_emit_on_every_tier(
    run_topology: RunTopology, workers: int
) -> None:
    topology = Topology("refused")
    topology.source("s", [1]).process("make", parts.Emit(object)).sink("out", parallelism=2)
    with pytest.raises(RunError, match=r"step 'make', task 0.*builtins\.object cannot travel .*register_codec"):
        run_topology(topology, workers)
