"""Guard rails: each limit holds back what it should, says so, and lets the rest through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rstream.schedulers.guards import Guarded, GuardParameters, Veto
from rstream.schedulers.plan import Plan, Reason, StateAction, TopologyPlan, settle
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import View
from rstream.testing.views import Chain, view_of

RNG = np.random.default_rng(0)


class Wants:
    """A policy that always wants the same, and counts how often it was let through."""

    name = "wants"
    interval_s = 10.0

    def __init__(self, plan: TopologyPlan, **cluster: Any) -> None:
        self.wanted, self.cluster = plan, cluster

    def plan(self, view: View, memory: Mapping[str, Any], rng: np.random.Generator) -> tuple[Plan, Mapping[str, Any]]:
        plan = Plan({"chain": self.wanted}, reasons=(Reason("chain", "wanted"),), **self.cluster)
        return plan, {"decided": memory.get("decided", 0) + 1}


def guarded(
    plan: TopologyPlan, veto: Veto | None = None, cluster: dict[str, Any] | None = None, **limits: Any
) -> Guarded:
    return Guarded(Wants(plan, **(cluster or {})), GuardParameters(**limits), veto)


def view(end_s: float = 60.0) -> View:
    return view_of([Chain(parallelism={"read": 2, "split": 4})], 8, end_s=end_s)


GROW = TopologyPlan({"split": 9}, placement={TaskId("split", 4 + at): Slot(f"n000{3 + at}", 1) for at in range(5)})


def size(plan: Plan, name: str = "split") -> int:
    return len(settle(view().topologies[0], plan.topologies.get("chain", TopologyPlan())).active[name])


def test_the_largest_step_is_kept_and_places_beyond_it_are_dropped() -> None:
    plan, _ = guarded(GROW, step_max=2).plan(view(), {}, RNG)
    assert size(plan) == 6
    assert set(plan.topologies["chain"].placement) == {TaskId("split", 4), TaskId("split", 5)}
    assert any("9 instances wanted, 6 allowed" in reason.summary for reason in plan.reasons)


def test_the_bounds_of_an_operator_are_kept() -> None:
    assert size(guarded(GROW, parallelism_max={"split": 5}).plan(view(), {}, RNG)[0]) == 5
    assert size(guarded(TopologyPlan({"split": 1}), parallelism_min={"split": 3}).plan(view(), {}, RNG)[0]) == 3


def test_small_changes_are_left_alone() -> None:
    assert not guarded(TopologyPlan({"split": 5}), hysteresis=0.5).plan(view(), {}, RNG)[0]
    assert size(guarded(TopologyPlan({"split": 7}), hysteresis=0.5).plan(view(), {}, RNG)[0]) == 7


def test_the_cooldown_holds_a_topology_for_its_time() -> None:
    policy = guarded(GROW, cooldown_s=30)
    first, memory = policy.plan(view(60.0), {}, RNG)
    early, memory = policy.plan(view(80.0), memory, RNG)
    late, _ = policy.plan(view(90.0), memory, RNG)
    assert (bool(first), bool(early), bool(late)) == (True, False, True)


def test_a_plan_held_back_whole_leaves_the_policy_as_if_it_had_not_decided() -> None:
    policy = guarded(GROW, cooldown_s=30)
    _, memory = policy.plan(view(60.0), {}, RNG)
    _, after = policy.plan(view(70.0), memory, RNG)
    assert after["policy"] == memory["policy"] == {"decided": 1}


def test_a_dry_run_changes_nothing_and_shows_what_it_would() -> None:
    plan, _ = guarded(GROW, dry_run=True).plan(view(), {}, RNG)
    assert not plan
    assert plan.reasons[-1].summary == "guard: dry run"
    assert plan.reasons[-1].inputs["held_back"]["chain"]["parallelism"] == {"split": 9}


def test_the_node_budget_refuses_plans_that_need_more_nodes_and_trims_requests() -> None:
    used = len(view().used_nodes())
    assert not guarded(GROW, nodes_max=used).plan(view(), {}, RNG)[0]
    assert guarded(GROW, nodes_max=8).plan(view(), {}, RNG)[0]
    asks = guarded(TopologyPlan({"split": 4}), cluster={"nodes_more": 5}, nodes_max=used + 2)
    assert asks.plan(view(), {}, RNG)[0].nodes_more == 2


def test_a_veto_sees_the_moves_and_its_words_are_shown() -> None:
    seen: list[str] = []

    def no(view: View, plan: Plan, moves: Any) -> str:
        seen.extend(move.kind for move in moves)
        return "not on a Friday"

    plan, _ = guarded(GROW, no).plan(view(), {}, RNG)
    assert not plan
    assert "vetoed: not on a Friday" in plan.reasons[-1].summary
    assert "add_task" in seen
    assert guarded(GROW, lambda *_: "").plan(view(), {}, RNG)[0]


def test_state_actions_follow_the_size_that_is_allowed() -> None:
    chain = Chain(parallelism={"read": 2, "split": 4}, stateful=frozenset({"split"}))
    wanted = TopologyPlan(
        {"split": 9}, state_actions=(StateAction("repartition", "split", detail={"m_old": 4, "m_new": 9}),)
    )
    cluster = view_of([chain], 8)
    plan, _ = guarded(wanted, step_max=1).plan(cluster, {}, RNG)
    assert plan.topologies["chain"].state_actions[0].detail["m_new"] == 5
    held, _ = guarded(wanted, parallelism_max={"split": 4}).plan(cluster, {}, RNG)
    assert not held
