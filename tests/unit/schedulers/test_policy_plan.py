"""Views, plans and the moves between them."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstream.errors import PolicyError
from rstream.schedulers.base import (
    Batch,
    EdgeView,
    Ledger,
    NodeView,
    OperatorView,
    Plan,
    Slot,
    StateAction,
    TaskId,
    TaskTable,
    TopologyPlan,
    TopologyView,
    Traffic,
    View,
    diff,
    settle,
)
from rstream.testing.views import Chain, view_of


def small(*, active: list[bool] | None = None, pool: int = 0, stateful: bool = False) -> View:
    """Three tasks of `split` on two nodes, and one of `sink`."""
    table = TaskTable.columns(
        operator=[0, 0, 0, 1], index=[0, 1, 2, 0], node=[0, 1, 0, 1], process=[0, 0, 1, 1], active=active
    )
    operators = (OperatorView("split", pool=pool, stateful=stateful), OperatorView("sink", kind="sink"))
    topology = TopologyView("t", operators, (EdgeView("split", "sink"),), table)
    return View(0.0, 10.0, (NodeView("a"), NodeView("b")), (topology,))


def kinds(view: View, plan: TopologyPlan) -> list[str]:
    return [move.kind for move in diff(view, Plan({"t": plan}))]


def test_a_plan_that_agrees_with_the_view_needs_no_move() -> None:
    assert diff(small(), Plan({"t": TopologyPlan({"split": 3}, placement={TaskId("split", 0): Slot("a", 0)})})) == ()


def test_growing_makes_tasks_before_work_reaches_them() -> None:
    plan = TopologyPlan({"split": 4}, placement={TaskId("split", 3): Slot("b", 0)})
    assert kinds(small(), plan) == ["add_task", "activate"]


def test_idle_replicas_are_woken_before_new_ones_are_made() -> None:
    view = small(active=[True, False, False, True], pool=3)
    moves = diff(view, Plan({"t": TopologyPlan({"split": 2})}))
    assert [move.to_data() for move in moves] == [{"kind": "activate", "topology": "t", "task": ["split", 1]}]


def test_a_task_that_stops_stays_loaded_only_in_a_pool() -> None:
    assert kinds(small(pool=3), TopologyPlan({"split": 2})) == ["deactivate"]
    assert kinds(small(), TopologyPlan({"split": 2})) == ["deactivate", "remove_task"]


def test_idle_replicas_stay_loaded_when_a_plan_is_about_something_else() -> None:
    view = small(active=[True, False, False, True])
    assert kinds(view, TopologyPlan({"sink": 2})) == ["add_task", "activate"]
    assert kinds(view, TopologyPlan(pool={"split": 1})) == ["remove_task", "remove_task"]


def test_the_tasks_named_to_retire_go_first() -> None:
    settled = settle(small().topologies[0], TopologyPlan({"split": 2}, retire=(TaskId("split", 0),)))
    assert settled.active["split"] == (1, 2)


def test_a_stateful_operator_is_rescaled_before_tasks_stop() -> None:
    assert kinds(small(stateful=True), TopologyPlan({"split": 2})) == ["rescale", "deactivate", "remove_task"]


def test_tasks_move_in_the_order_of_their_batches_with_state_saved_before() -> None:
    plan = TopologyPlan(
        placement={TaskId("split", 0): Slot("b", 1), TaskId("sink", 0): Slot("a", 0)},
        batches=(Batch("sink", (TaskId("sink", 0),), 2.0), Batch("split", (TaskId("split", 0),))),
        state_actions=(StateAction("restore", "sink"), StateAction("backup", "sink")),
    )
    moves = diff(small(), Plan({"t": plan}))
    assert [move.kind for move in moves] == ["state", "move_task", "move_task", "state"]
    assert [move.to_data().get("task") for move in moves[1:3]] == [["sink", 0], ["split", 0]]


def test_nodes_come_first_and_leave_last() -> None:
    moves = diff(small(), Plan({"t": TopologyPlan({"split": 4})}, ("c",), ("b",), 1))
    assert [move.kind for move in moves] == ["request_nodes", "add_node", "add_task", "activate", "release_node"]


def test_a_grouping_that_is_already_there_is_not_set_again() -> None:
    assert kinds(small(), TopologyPlan(groupings={("split", "sink"): "shuffle"})) == []
    assert kinds(small(), TopologyPlan(groupings={("split", "sink"): "load_balanced"})) == ["set_grouping"]


def test_plans_and_moves_are_plain_data() -> None:
    plan = Plan({"t": TopologyPlan({"split": 4}, placement={TaskId("split", 3): Slot("b", 1)})})
    data = json.loads(json.dumps(plan.to_data()))
    assert data["topologies"]["t"]["placement"] == {"split/3": ["b", 1]}
    json.dumps([move.to_data() for move in diff(small(), plan)])


def test_a_view_cannot_be_changed() -> None:
    view = small()
    with pytest.raises(FrozenInstanceError):
        view.start_s = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        view.topologies[0].tasks.queue[0] = 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: View(5.0, 1.0, (), ()), "must not end before it starts"),
        (lambda: View(0.0, 1.0, (NodeView("a"), NodeView("a")), ()), "node ids must differ"),
        (lambda: TaskTable.columns([0], [0], [0], [0], cpuu=[1.0]), "unknown columns"),
        (lambda: TaskTable.columns([0, 0], [0], [0], [0]), "every column needs 2 entries"),
        (lambda: Traffic.columns([0], [1, 2], [1.0]), "1 sources, 2 targets"),
        (lambda: small().topology("nope"), "no topology 'nope'"),
    ],
)
def test_a_view_that_cannot_be_is_refused(make: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        make()  # type: ignore[operator]


def test_rows_read_as_records() -> None:
    view = small()
    first = next(iter(view.topologies[0]))
    assert first.id == TaskId("split", 0)
    assert first.slot == Slot("a", 0)
    assert view.topologies[0].rows("split").tolist() == [0, 1, 2]
    assert view.used_nodes() == [0, 1]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 10), st.integers(0, 10), st.booleans())
def test_settling_gives_exactly_the_wanted_number(loaded: int, idle: int, wanted: int, pool: int, named: bool) -> None:
    active = [True] * loaded + [False] * idle
    rows = len(active)
    table = TaskTable.columns([0] * rows, list(range(rows)), [0] * rows, [0] * rows, active)
    topology = View(0, 1, (NodeView("a"),), (TopologyView("t", (OperatorView("o"),), (), table),)).topologies[0]
    settled = settle(topology, TopologyPlan({"o": wanted}, pool={"o": pool} if named else {}))
    assert len(settled.active["o"]) == wanted
    assert set(settled.active["o"]) <= set(settled.loaded["o"])
    if named:
        assert len(settled.loaded["o"]) == max(wanted, pool)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_the_ledger_never_books_beyond_room_or_owner(bookings: list[tuple[str, int, int]]) -> None:
    nodes = tuple(NodeView(f"n{at}", processes=2, tasks_per_process=2) for at in range(3))
    ledger = Ledger(View(0, 1, nodes, ()))
    held: dict[Slot, list[str]] = {}
    for at, (topology, node, _) in enumerate(bookings):
        before = ledger.room(topology, f"n{node}")
        slot = ledger.book(topology, TaskId("o", at), f"n{node}")
        assert (slot is None) == (before == 0)
        if slot is not None:
            held.setdefault(slot, []).append(topology)
    assert all(len(names) <= 2 and len(set(names)) == 1 for names in held.values())
    for topology in "xy":
        assert sum(ledger.open(topology).values()) == sum(ledger.room(topology, node.id) for node in nodes)


def test_a_view_of_ten_thousand_tasks_is_cheap_to_read() -> None:
    view = view_of([Chain(parallelism=dict.fromkeys("abcde", 100)) for _ in range(1)], 130)
    assert len(view.topologies[0].placement) == 500
    assert np.isclose(view.node_loads[:, 1].sum(), 500 * 0.02)
