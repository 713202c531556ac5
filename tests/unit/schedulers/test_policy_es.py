"""Es-Stream through its policy: sizes, triggers, nodes, state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstream import schedulers
from rstream.schedulers.loads import choose_node
from rstream.schedulers.plan import Plan, settle
from rstream.schedulers.queueing import allocate, cheapest, queue
from rstream.schedulers.tables import Load
from rstream.schedulers.view import NodeView, View
from rstream.testing.views import Chain, view_of

RNG = np.random.default_rng(0)
SERVICE_S = {"read": 1 / 875, "filter": 1 / 300, "count": 1 / 5000}


def commcount(rate: float, sizes: dict[str, int] | None = None, *, end_s: float = 20.0, nodes: int = 13) -> View:
    """The paper's COMMCount: two operators that scale, and a stateful one with one fixed instance."""
    chain = Chain(
        "comm", sizes or {"read": 3, "filter": 10, "count": 1}, rate, SERVICE_S, stateful=frozenset({"count"})
    )
    return view_of([chain], nodes, end_s=end_s, window_s=10.0)


def sizes(view: View, plan: Plan) -> dict[str, int]:
    settled = settle(view.topologies[0], plan.topologies["comm"]) if plan.topologies else None
    topology = view.topologies[0]
    return {o.name: len(settled.active[o.name]) if settled else topology.active(o.name) for o in topology.operators}


def test_the_totals_of_figure_15_come_from_the_running_policy() -> None:
    policy = schedulers.make("es", {"beta": 0.25, "scale_stateful": False})
    memory: Any = {}
    now = {"read": 3, "filter": 10, "count": 1}
    totals = []
    for at, rate in enumerate((1800.0, 3600.0, 2700.0)):
        view = commcount(rate, now, end_s=100.0 + 60 * at, nodes=40)
        plan, memory = policy.plan(view, memory, RNG)
        now = sizes(view, plan)
        totals.append(sum(now.values()))
    assert totals == [14, 24, 19]


def test_a_rate_that_no_node_could_be_found_for_is_not_taken_as_settled() -> None:
    policy = schedulers.make("es", {"beta": 0.25, "scale_stateful": False})
    plan, memory = policy.plan(commcount(3600.0, nodes=1), {}, RNG)
    assert plan.nodes_more
    again, memory = policy.plan(commcount(3600.0, end_s=60.0, nodes=40), memory, RNG)
    assert again.topologies, "the nodes that came are used, though the rate is the same"
    grown = sizes(commcount(3600.0, nodes=40), again)
    assert not policy.plan(commcount(3600.0, grown, end_s=100.0, nodes=40), memory, RNG)[0]


@pytest.mark.parametrize(("rate", "acts"), [(1800, False), (2160, False), (2200, True), (1400, True)])
def test_only_a_change_of_more_than_a_fifth_starts_a_scaling_up_or_down(rate: float, acts: bool) -> None:
    policy = schedulers.make("es", {"beta": 0.25, "scale_stateful": False})
    start = commcount(1800.0, nodes=40)
    plan, memory = policy.plan(start, {}, RNG)
    later = commcount(rate, sizes(start, plan), end_s=60.0, nodes=40)
    assert bool(policy.plan(later, memory, RNG)[0]) is acts


def test_the_adjust_interval_is_waited_out() -> None:
    policy = schedulers.make("es", {"beta": 0.25})
    _, memory = policy.plan(commcount(1800.0, end_s=20.0, nodes=40), {}, RNG)
    early, _ = policy.plan(commcount(3600.0, end_s=25.0, nodes=40), memory, RNG)
    due, _ = policy.plan(commcount(3600.0, end_s=30.0, nodes=40), memory, RNG)
    assert not early
    assert due


def test_an_operator_that_cannot_keep_up_takes_its_maximum_and_says_saturated() -> None:
    chain = Chain("comm", {"read": 1, "filter": 2}, 5000.0, SERVICE_S, parallelism_max=6)
    plan, _ = schedulers.make("es", {"beta": 0.25}).plan(view_of([chain], 20), {}, RNG)
    assert plan.topologies["comm"].parallelism["filter"] == 6
    assert any("saturated" in reason.summary for reason in plan.reasons)


def test_instances_that_fit_nowhere_are_not_added_and_more_nodes_are_asked_for() -> None:
    view = commcount(9000.0, nodes=4)
    full = replace(view, nodes=tuple(replace(node, load=Load(0.79, 0.79, 0.79)) for node in view.nodes))
    plan, _ = schedulers.make("es", {"beta": 0.25}).plan(full, {}, RNG)
    assert not plan.topologies
    assert plan.nodes_more > 0
    assert any("no node fits the rest" in reason.summary for reason in plan.reasons)


def test_shrinking_leaves_the_newest_nodes_first_and_gives_them_back() -> None:
    busy = commcount(3600.0, {"read": 7, "filter": 16, "count": 1}, nodes=6)
    nodes = tuple(replace(node, added_order=at - 3 if at >= 3 else None) for at, node in enumerate(busy.nodes))
    _, memory = schedulers.make("es", {"beta": 0.25}).plan(replace(busy, nodes=nodes), {}, RNG)
    calm = commcount(600.0, {"read": 7, "filter": 16, "count": 1}, end_s=60.0, nodes=6)
    plan, _ = schedulers.make("es", {"beta": 0.25}).plan(replace(calm, nodes=nodes), memory, RNG)
    assert plan.nodes_released
    assert set(plan.nodes_released) <= {"n0003", "n0004", "n0005"}
    assert list(plan.nodes_released) == sorted(plan.nodes_released, reverse=True)
    left = {slot.node for slot in settle(calm.topologies[0], plan.topologies["comm"]).placement.values()}
    assert not left & set(plan.nodes_released)


def test_rescaling_a_stateful_operator_brings_its_repartition_and_replay_and_no_second_change_meanwhile() -> None:
    chain = Chain("comm", {"read": 1, "count": 2}, 2000.0, {"read": 1e-4, "count": 2e-3}, stateful=frozenset({"count"}))
    policy = schedulers.make("es", {"beta": 0.25})
    plan, memory = policy.plan(view_of([chain], 8, end_s=30.0, window_s=10.0), {}, RNG)
    wanted = plan.topologies["comm"]
    assert [action.kind for action in wanted.state_actions] == ["repartition", "replay"]
    assert wanted.state_actions[0].detail == {"m_old": 2, "m_new": wanted.parallelism["count"]}
    assert memory["topologies"]["comm"]["busy"]["count"] > 30.0
    moved = replace(chain, rate=4000.0, parallelism={"read": 1, "count": wanted.parallelism["count"]})
    held = {**memory["topologies"]["comm"], "busy": {"count": 1000.0}}
    again, _ = policy.plan(view_of([moved], 8, end_s=60.0, window_s=10.0), {"topologies": {"comm": held}}, RNG)
    assert "count" not in again.topologies.get("comm", wanted.__class__()).parallelism


def test_backups_pause_on_a_busy_node_and_resume_when_it_is_calm() -> None:
    chain = Chain("comm", {"read": 1, "count": 2}, 100.0, stateful=frozenset({"count"}))
    calm = view_of([chain], 1)
    busy = replace(calm, nodes=(replace(calm.nodes[0], load=Load(0.9, 0.1, 0.1)),))
    policy = schedulers.make("es", {"beta": 0.25})
    plan, memory = policy.plan(busy, {}, RNG)
    sync = [action for action in plan.topologies["comm"].state_actions if action.kind == "sync"]
    assert [action.detail["interval_s"] for action in sync] == [None]
    plan, _ = policy.plan(calm, memory, RNG)
    sync = [action for action in plan.topologies["comm"].state_actions if action.kind == "sync"]
    assert [action.detail["interval_s"] for action in sync] == [5.0]


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 500), st.floats(1, 100), st.floats(0.02, 0.98))
def test_the_chosen_number_is_the_cheapest_of_all(rate: float, served: float, beta: float) -> None:
    choice = cheapest(rate, served, beta)
    costs = [beta * k + (1 - beta) * queue(rate, served, k).length for k in range(1, choice.servers + 60)]
    assert min(costs) == pytest.approx(choice.cost)
    assert choice.servers == 1 + next(at for at, cost in enumerate(costs) if cost <= min(costs) + 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.floats(1, 4000), st.floats(1, 2), st.sampled_from([0.05, 0.25, 0.6]))
def test_more_load_never_gives_fewer_instances_while_there_is_room(rate: float, more: float, beta: float) -> None:
    plans = []
    for value in (rate, rate * more):
        view = commcount(value, {"read": 1, "filter": 1, "count": 1}, nodes=40)
        plan, _ = schedulers.make("es", {"beta": beta}).plan(view, {}, RNG)
        plans.append(sizes(view, plan))
    assert all(plans[0][name] <= plans[1][name] for name in plans[0])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 60), st.floats(5, 40)), min_size=1, max_size=3), st.integers(0, 6))
def test_drs_gives_threads_as_brute_force_would(queues: list[tuple[float, float]], extra: int) -> None:
    lam, mu = [one for one, _ in queues], [other for _, other in queues]
    first = next(iter(allocate(lam, mu, 10_000, 1.0)))
    total = sum(first.servers) + extra
    best = list(allocate(lam, mu, total, 1.0))[-1]

    def spread(left: int, at: int) -> float:
        if at == len(lam):
            return 0.0
        least = first.servers[at]
        rest = sum(first.servers[at + 1 :])
        return min(
            lam[at] * queue(lam[at], mu[at], k).sojourn_s + spread(left - k, at + 1)
            for k in range(least, left - rest + 1)
        )

    assert best.sojourn_s == pytest.approx(spread(total, 0), rel=1e-9)


def test_a_loaded_cluster_opens_new_nodes_and_a_calm_one_fills_the_old() -> None:
    nodes = {"a": [0.5, 0.1, 0.1], "b": [0.0, 0.0, 0.0]}
    need, cap = [0.1, 0.1, 0.1], [0.8, 0.8, 0.8]
    assert choose_node(nodes, ["a"], need, cap, "scale_out") == "b"
    assert choose_node(nodes, ["a"], need, cap, "in_place") == "a"
    assert choose_node(nodes, ["a"], [0.9, 0.0, 0.0], cap, "scale_out") is None


def test_a_dead_node_gets_no_new_instance() -> None:
    nodes = [NodeView(f"n{at}", alive=at != 1, processes=8) for at in range(3)]
    chain = Chain("comm", {"read": 1, "filter": 1}, 900.0, SERVICE_S)
    plan, _ = schedulers.make("es", {"beta": 0.25}).plan(view_of([chain], nodes), {}, RNG)
    assert plan.topologies["comm"].placement
    assert "n1" not in {slot.node for slot in plan.topologies["comm"].placement.values()}
