"""Me-Stream, DABS, DRS and static: who grows, when, and what it costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rstream import schedulers
from rstream.schedulers.me import MeStream
from rstream.schedulers.moves import MoveTask, diff
from rstream.schedulers.plan import Plan, TopologyPlan, settle
from rstream.schedulers.view import Links, NodeView, View
from rstream.testing.views import Chain, view_of

RNG = np.random.default_rng(0)
# Three samples of twelve well above the rest: an effective bottleneck.
WAVE = (1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0)


def wordcount(
    rate: float = 300.0, nodes: int = 8, *, name: str = "wc", calm: bool = False, end_s: float = 60.0
) -> View:
    chain = Chain(name, {"read": 2, "split": 2, "count": 2}, rate, {"read": 1e-3, "split": 5e-3, "count": 3e-3})
    view = view_of([chain], nodes, end_s=end_s, window_s=60.0, samples=12)
    return view if calm else replace(view, topologies=tuple(waved(topology) for topology in view.topologies))


def waved(topology: Any) -> Any:
    operators = tuple(
        replace(o, process_samples_ms=tuple(v * rise for v, rise in zip(o.process_samples_ms, WAVE, strict=True)))
        for o in topology.operators
    )
    return replace(topology, operators=operators)


def sizes(view: View, plan: Plan, name: str = "wc") -> dict[str, int]:
    settled = settle(view.topology(name), plan.topologies.get(name, TopologyPlan()))
    return {operator: len(indices) for operator, indices in settled.active.items()}


def test_me_grows_the_slowest_operator_most() -> None:
    view = wordcount()
    plan, _ = schedulers.make("me", {"utilisation_min": 0}).plan(view, {}, RNG)
    assert sizes(view, plan) == {"read": 3, "split": 5, "count": 4}


def test_me_leaves_idle_operators_alone() -> None:
    view = wordcount()
    plan, _ = schedulers.make("me").plan(view, {}, RNG)
    assert sizes(view, plan) == {"read": 2, "split": 4, "count": 3}
    assert any("below 30%" in reason.summary for reason in plan.reasons)


def test_me_finds_no_bottleneck_in_steady_delays() -> None:
    assert not schedulers.make("me", {"utilisation_min": 0}).plan(wordcount(calm=True), {}, RNG)[0]


def test_me_sees_that_a_link_to_a_neighbour_is_slow() -> None:
    view = wordcount(calm=True)
    (topology,) = view.topologies
    ids = [node.id for node in view.nodes]
    slow = replace(view, links=Links(pairs={(one, other): 100.0 for one in ids for other in ids if one < other}))
    me = schedulers.make("me")
    assert isinstance(me, MeStream)
    quick, held = (me._operator_item(each, topology, "count").time_ms for each in (view, slow))
    assert quick == pytest.approx(3.0), "its calculation decides"
    (edge,) = topology.parents("count")
    assert held == pytest.approx(edge.tuple_bytes / 100.0 * 1e3 / 2), "half of what a tuple takes over the link"


def test_me_waits_out_its_cooldown() -> None:
    policy = schedulers.make("me", {"interval_s": 10, "cooldown_s": 60})
    _, memory = policy.plan(wordcount(end_s=60.0), {}, RNG)
    assert not policy.plan(wordcount(end_s=90.0), memory, RNG)[0]
    assert policy.plan(wordcount(end_s=120.0), memory, RNG)[0]


def test_me_keeps_a_line_that_no_longer_changes() -> None:
    policy = schedulers.make("me", {"refit_count": 2})
    memory: Any = {}
    for _ in range(4):
        _, memory = policy.plan(wordcount(), memory, RNG)
    line = memory["lines"]["wc/split"]
    assert line["calm"] == 2
    slow = wordcount(rate=300.0)
    topology = slow.topologies[0]
    worse = replace(topology, operators=tuple(replace(o, process_samples_ms=(99.0,) * 12) for o in topology.operators))
    _, after = policy.plan(replace(slow, topologies=(worse,)), memory, RNG)
    assert after["lines"]["wc/split"] == line


@pytest.mark.parametrize(("mode", "split"), [("parameter", 2), ("level", 4)])
def test_me_shares_out_scarce_slots_by_its_mode(mode: str, split: int) -> None:
    view = wordcount(nodes=2)  # eight places, six of them taken: split wants three more
    plan, _ = schedulers.make("me", {"utilisation_min": 0, "mode": mode}).plan(view, {}, RNG)
    assert sizes(view, plan)["split"] == split


def test_me_ranks_whole_topologies_when_asked_to() -> None:
    slow = Chain("slow", {"in": 1, "work": 2}, 100.0, {"in": 1e-3, "work": 8e-3})
    fast = Chain("fast", {"in": 1, "work": 2}, 100.0, {"in": 1e-3, "work": 2e-3})
    view = view_of([slow, fast], 8, window_s=60.0, samples=12)
    view = replace(view, topologies=tuple(waved(topology) for topology in view.topologies))
    plan, _ = schedulers.make("me", {"scope": "topology", "utilisation_min": 0}).plan(view, {}, RNG)
    assert sizes(view, plan, "slow") == {"in": 1, "work": 4}
    assert sizes(view, plan, "fast") == {"in": 1, "work": 3}


def test_me_deals_its_executors_out_over_free_slots_and_moves_no_more_than_it_must() -> None:
    chain = Chain("wc", {"read": 1, "split": 3, "count": 2}, 300.0, {"read": 1e-3, "split": 5e-3, "count": 3e-3})
    nodes = [NodeView(f"n{at}", tasks_per_process=6) for at in range(6)]
    view = view_of([chain], nodes, window_s=60.0, samples=12)  # six tasks fill one process
    view = replace(view, topologies=(waved(view.topologies[0]),))
    plan, _ = schedulers.make("me", {"utilisation_min": 0}).plan(view, {}, RNG)
    after = settle(view.topology("wc"), plan.topologies["wc"])
    assert {name: len(tasks) for name, tasks in after.active.items()} == {"read": 2, "split": 6, "count": 4}
    slots = Counter(after.placement.values())
    assert len(slots) == 7  # the one that was held, and one more for each of the six executors that were added
    assert sorted(slots.values()) == [1, 1, 2, 2, 2, 2, 2]
    assert {node for node, _ in slots} == {node.id for node in view.nodes}
    moves = [move for move in diff(view, plan) if isinstance(move, MoveTask)]
    assert len(moves) == 4  # six stood in one slot, two may stay
    assert [move.task.operator for move in moves] == ["split", "count", "count", "read"]  # the highest level first


def test_me_finds_homes_only_where_there_is_room() -> None:
    view = wordcount(nodes=2)
    full = replace(view, nodes=tuple(replace(node, tasks_per_process=2) for node in view.nodes))
    plan, _ = schedulers.make("me", {"utilisation_min": 0, "mode": "level"}).plan(full, {}, RNG)
    held = Counter(settle(full.topology("wc"), plan.topologies["wc"]).placement.values())
    assert sum(held.values()) == 8
    assert max(held.values()) == 2


def test_dabs_sizes_for_the_forecast_and_restarts_with_loss() -> None:
    view = wordcount(600.0, 20, calm=True)
    plan, memory = schedulers.make("dabs").plan(view, {}, RNG)
    assert sizes(view, plan)["split"] > 2
    assert plan.topologies["wc"].execute == "restart-drop"
    again, _ = schedulers.make("dabs").plan(wordcount(600.0, 20, calm=True, end_s=100.0), memory, RNG)
    assert not again
    assert "grace period" in again.reasons[0].summary


def test_dabs_scales_in_when_half_would_do() -> None:
    chain = Chain("wc", {"read": 1, "split": 8}, 50.0, {"split": 5e-3})
    view = view_of([chain], 8, window_s=60.0, samples=6)
    assert sizes(view, schedulers.make("dabs").plan(view, {}, RNG)[0])["split"] == 1


def test_drs_spreads_a_fixed_number_of_threads_by_need() -> None:
    chain = Chain("wc", {"read": 4, "split": 4, "count": 4}, 500.0, {"read": 1e-3, "split": 7e-3, "count": 2e-3})
    view = view_of([chain], 8)
    plan, memory = schedulers.make("drs").plan(view, {}, RNG)
    after = sizes(view, plan)
    assert sum(after.values()) == 12
    assert after["split"] > after["count"] >= after["read"]
    later = replace(view, start_s=60.0, end_s=90.0)
    assert "too few intervals" in schedulers.make("drs").plan(later, memory, RNG)[0].reasons[0].summary


def test_drs_deals_its_threads_out_over_as_many_processes_as_before() -> None:
    chain = Chain("wc", {"read": 6, "split": 2, "count": 4}, 250.0, {"read": 1e-3, "split": 7e-3, "count": 2e-3})
    nodes = [NodeView(f"n{at}", tasks_per_process=4) for at in range(6)]
    view = view_of([chain], nodes)  # twelve tasks on three processes of three nodes
    plan, _ = schedulers.make("drs").plan(view, {}, RNG)
    after = settle(view.topology("wc"), plan.topologies["wc"])
    assert len(after.active["split"]) > 2
    assert not after.unplaced()
    assert Counter(Counter(after.placement.values()).values()) == {4: 3}


def test_drs_finds_the_fewest_threads_for_a_bound() -> None:
    chain = Chain("wc", {"read": 4, "split": 9, "count": 6}, 500.0, {"read": 1e-3, "split": 7e-3, "count": 2e-3})
    view = replace(view_of([chain], 8))
    view = replace(view, topologies=(replace(view.topologies[0], latency_ms=0.0),))
    loose = schedulers.make("drs", {"latency_ms_max": 40}).plan(view, {}, RNG)[0]
    tight = schedulers.make("drs", {"latency_ms_max": 12}).plan(view, {}, RNG)[0]
    assert sum(sizes(view, loose).values()) < sum(sizes(view, tight).values())


def test_static_sets_its_size_once_and_never_moves() -> None:
    view = wordcount(nodes=10, calm=True)
    plan, _ = schedulers.make("static", {"replicas": 4}).plan(view, {}, RNG)
    assert sizes(view, plan) == {"read": 2, "split": 4, "count": 4}
    assert not schedulers.make("static").plan(wordcount(rate=90_000.0), {}, RNG)[0]
