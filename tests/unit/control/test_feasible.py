"""What a topology cannot do while it runs is not planned, and said once instead of tried for ever."""

from __future__ import annotations

import pytest

from rstream.config import ControlConfig
from rstream.core.feasible import feasible
from rstream.core.meter import Meter
from rstream.core.records import TopologyRecord
from rstream.core.slots import SlotBook
from rstream.core.view import build
from rstream.schedulers.base import Batch, Plan, Slot, StateAction, TaskId, TopologyPlan, View
from tests.unit.control.samples import NODES, make_record

ONE, NEW = TaskId("double", 0), TaskId("double", 2)


def _view(record: TopologyRecord) -> View:
    book = SlotBook()
    book.sync([record])
    return build([record], [record], {"wc": Meter()}, NODES, book, ControlConfig(), 0.0, 0.0).view


def _kept(record: TopologyRecord, plan: TopologyPlan) -> Plan:
    wanted = Plan({"wc": plan}, nodes_taken=("n2",), nodes_released=("n1",))
    return feasible(_view(record), wanted, {"wc": record})


MOVES = TopologyPlan(
    placement={ONE: Slot("n2", 1)},
    batches=(Batch("double", (ONE,)),),
    state_actions=(StateAction("rehome", "double", (ONE,)),),
)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"checkpointed": True}, "state.backend: checkpoint"),
        ({"exact": False}, "delivery: at_least_once"),
        ({"recovers": False}, "delivery: at_most_once"),
    ],
)
def test_moves_that_would_be_refused_are_held_back_and_the_reason_says_why(change: dict[str, bool], why: str) -> None:
    record = make_record()
    for name, value in change.items():
        setattr(record, name, value)
    plan = _kept(record, MOVES)
    assert not plan
    (reason,) = plan.reasons
    assert reason.summary.startswith("held back: 1 tasks would move; topology 'wc' has ")
    assert why in reason.summary


def test_what_can_be_done_is_left_as_it_is() -> None:
    record = make_record()
    wanted = Plan({"wc": MOVES}, nodes_taken=("n2",))
    assert feasible(_view(record), wanted, {"wc": record}) is wanted


def test_a_topology_that_cannot_move_tasks_still_grows() -> None:
    record = make_record()
    record.recovers = False
    grown = TopologyPlan({"double": 3}, placement={NEW: Slot("n2", 1), ONE: Slot("n2", 1)})
    plan = _kept(record, grown)
    assert plan.topologies["wc"] == TopologyPlan({"double": 3}, placement={NEW: Slot("n2", 1)})
    assert (plan.nodes_taken, plan.nodes_released) == (("n2",), ()), "nothing is emptied that stays in use"


def test_a_step_that_cannot_change_keeps_its_size() -> None:
    record = make_record()
    record.checkpointed = True
    plan = _kept(record, TopologyPlan({"double": 3}, placement={NEW: Slot("n2", 1)}, retire=(ONE,)))
    assert not plan
    assert plan.reasons[0].subject == "wc/double"
    assert plan.reasons[0].summary.startswith("held back: 3 instances wanted; topology 'wc' has state.backend")


def test_a_restart_may_do_what_a_running_topology_cannot() -> None:
    record = make_record(execute="restart")
    record.checkpointed = True
    wanted = Plan({"wc": MOVES})
    assert feasible(_view(record), wanted, {"wc": record}) is wanted
