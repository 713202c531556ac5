"""PSPS through its policy: forecasts, pools, draining, grouping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstream import schedulers
from rstream.schedulers.balancing import LoadBalancer
from rstream.schedulers.moves import diff
from rstream.schedulers.plan import TopologyPlan, settle
from rstream.schedulers.tables import TaskId
from rstream.schedulers.view import View
from rstream.testing.views import Chain, view_of

RNG = np.random.default_rng(0)


def twitter(
    rate: float, active: dict[str, int], *, backlog: dict[str, float] | None = None, end_s: float = 30.0
) -> View:
    pools = {"source": 1, **dict.fromkeys(("text", "author", "store"), 8)}
    service_s = {"source": 1e-6, "text": 0.010, "author": 0.020, "store": 0.005}
    chain = Chain("tw", pools, rate, service_s, {"author": 0.5}, active=active, backlog=backlog or {})
    return view_of([chain], 20, end_s=end_s, window_s=30.0)


def wanted(view: View, memory: Any = None, **parameters: Any) -> dict[str, int]:
    plan, _ = schedulers.make("psps", parameters).plan(view, memory or {}, RNG)
    settled = settle(view.topologies[0], plan.topologies.get("tw", TopologyPlan()))
    return {name: len(indices) for name, indices in settled.active.items()}


ONE = {"text": 1, "author": 1, "store": 1}


def test_replicas_are_what_the_forecast_needs_rounded_up() -> None:
    sizes = wanted(twitter(300.0, {"text": 8, "author": 8, "store": 8}))
    assert sizes == {"source": 1, "text": 3, "author": 6, "store": 1}


def test_the_pool_is_the_most() -> None:
    assert wanted(twitter(5000.0, ONE))["text"] == 8


def test_no_input_leaves_one_replica_each() -> None:
    assert wanted(twitter(0.0, {"text": 5, "author": 5, "store": 5})) == {
        "source": 1,
        "text": 1,
        "author": 1,
        "store": 1,
    }


def test_the_backlog_counts() -> None:
    calm = wanted(twitter(100.0, {"text": 1, "author": 2, "store": 1}))
    late = wanted(twitter(100.0, {"text": 1, "author": 2, "store": 1}, backlog={"author": 3000.0}))
    assert late["author"] > calm["author"]


def test_waking_a_replica_is_no_more_than_a_change_of_routing() -> None:
    view = twitter(300.0, ONE)
    plan, _ = schedulers.make("psps").plan(view, {}, RNG)
    assert {move.kind for move in diff(view, plan)} == {"activate", "set_grouping"}


def test_replicas_that_stop_are_the_highest_and_they_drain_and_stay_loaded() -> None:
    view = twitter(100.0, {"text": 5, "author": 5, "store": 5})
    plan, _ = schedulers.make("psps", {"grouping": "keep"}).plan(view, {}, RNG)
    drained = {task for action in plan.topologies["tw"].state_actions for task in action.tasks}
    assert TaskId("text", 4) in drained
    assert TaskId("text", 0) not in drained
    kinds = [move.kind for move in diff(view, plan)]
    assert "remove_task" not in kinds
    assert "deactivate" in kinds


def test_a_stalled_interval_keeps_the_last_ratios() -> None:
    policy = schedulers.make("psps")
    _, memory = policy.plan(twitter(200.0, {"text": 4, "author": 4, "store": 4}), {}, RNG)
    assert memory["topologies"]["tw"]["ratios"]["author>store"] == pytest.approx(0.5)
    _, after = policy.plan(twitter(0.0, {"text": 4, "author": 4, "store": 4}, end_s=60.0), memory, RNG)
    assert after["topologies"]["tw"]["ratios"]["author>store"] == pytest.approx(0.5)


def test_the_benchmark_of_the_first_minute_decides_unless_the_recent_mean_is_asked_for() -> None:
    policy = schedulers.make("psps")
    _, memory = policy.plan(twitter(100.0, ONE, end_s=30.0), {}, RNG)
    slower = Chain("tw", {"source": 1, "text": 8}, 100.0, {"source": 1e-6, "text": 0.05}, active={"text": 8})
    view = view_of([slower], 20, end_s=300.0)
    assert wanted(view, memory)["text"] == 1
    assert wanted(view, memory, service_time="max")["text"] == 5


def test_stateful_operators_and_keyed_edges_are_left_alone() -> None:
    chain = Chain("tw", {"source": 1, "count": 2}, 4000.0, {"count": 0.01}, stateful=frozenset({"count"}))
    plan, _ = schedulers.make("psps").plan(view_of([chain], 6), {}, RNG)
    assert not plan
    plan, _ = schedulers.make("psps", {"scale_stateful": True}).plan(view_of([chain], 60), {}, RNG)
    assert plan.topologies["tw"].parallelism["count"] > 2
    assert not plan.topologies["tw"].groupings


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 3000), st.floats(1, 4), st.integers(1, 8))
def test_more_load_never_gives_fewer_replicas(rate: float, more: float, active: int) -> None:
    now = dict.fromkeys(ONE, active)
    low, high = wanted(twitter(rate, now)), wanted(twitter(rate * more, now))
    # What a saturated operator passes on does not grow with the load, so the first one tells.
    assert low["text"] <= high["text"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1.2), min_size=1, max_size=6), st.floats(0.01, 0.5), st.integers(1, 60))
def test_the_balancer_never_picks_a_busier_replica_than_it_must(use: list[float], step: float, tuples: int) -> None:
    balancer = LoadBalancer(use, step)
    for _ in range(tuples):
        before = list(balancer.utilisations)
        chosen = balancer.choose()
        assert before[chosen] == min(before) or min(before) >= 1.0
    assert len(balancer.utilisations) == len(use)
