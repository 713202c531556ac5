"""The policies that place: even, rstorm, ra, sl and sp-ant on clusters where the right answer is plain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rstream import schedulers
from rstream.schedulers.even import misfits
from rstream.schedulers.plan import Plan, TopologyPlan, settle
from rstream.schedulers.rstorm import distances
from rstream.schedulers.sl_moves import migration
from rstream.schedulers.tables import Load, Slot, TaskId, TaskTable, Traffic
from rstream.schedulers.view import EdgeView, NodeView, OperatorView, TopologyView, View
from rstream.testing.views import Chain, view_of


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def places(view: View, plan: Plan, name: str = "") -> dict[TaskId, Slot]:
    topology = view.topology(name) if name else view.topologies[0]
    return dict(settle(topology, plan.topologies.get(topology.name, TopologyPlan())).placement)


def used(view: View, plan: Plan) -> int:
    return len({slot.node for topology in view.topologies for slot in places(view, plan, topology.name).values()})


def spread_out(rate: float, tasks: int = 40, nodes: int = 14, **chain: Any) -> View:
    """Many small tasks over all nodes, which take any number of them."""
    hosts = [NodeView(f"n{at:02d}", processes=10, tasks_per_process=4) for at in range(nodes)]
    sizes = {"read": tasks // 4, "split": tasks // 4, "count": tasks // 4, "out": tasks // 4}
    service_s = dict.fromkeys(sizes, 0.003)
    made = Chain("wc", sizes, rate, service_s, memory_each=chain.pop("memory_each", 0.06), **chain)
    view = view_of([made], hosts)
    where = np.arange(tasks) % nodes
    where.flags.writeable = False
    topology = view.topologies[0]
    table = replace(topology.tasks, node=where)
    loads = np.zeros((nodes, 3))
    np.add.at(loads, where, table.loads)
    hosts = [replace(host, load=Load(*loads[at].tolist())) for at, host in enumerate(hosts)]
    return replace(view, nodes=tuple(hosts), topologies=(replace(topology, tasks=table, node_ids=()),))


# --- even -------------------------------------------------------------------------------------------------------


def test_even_deals_tasks_over_nodes_in_turn() -> None:
    view = view_of([Chain(parallelism={"a": 2, "b": 2})], 4, placed=False)
    plan, _ = schedulers.make("even").plan(view, {}, rng())
    assert [slot.node for slot in places(view, plan).values()] == ["n0000", "n0001", "n0002", "n0003"]


def test_even_moves_only_what_stood_on_a_dead_node_or_an_uneven_slot() -> None:
    view = view_of([Chain(parallelism={"a": 3, "b": 3})], 6)
    nodes = tuple(replace(node, alive=node.id != "n0001") for node in view.nodes)
    plan, _ = schedulers.make("even").plan(replace(view, nodes=nodes), {}, rng())
    before, after = view.topologies[0].placement, places(view, plan)
    lost = {task for task, slot in before.items() if slot.node == "n0001"}
    assert lost
    assert all(after[task].node != "n0001" for task in lost)
    assert all(slot.node in {node.id for node in nodes if node.alive} for slot in after.values())


def test_slots_with_too_many_or_too_few_tasks_do_not_fit_an_even_distribution() -> None:
    held = {Slot("a", 0): 3, Slot("b", 0): 2, Slot("c", 0): 1}
    assert misfits(held, tasks=6, workers=3) == [Slot("a", 0), Slot("c", 0)]
    assert misfits({Slot("a", 0): 3, Slot("b", 0): 2}, tasks=5, workers=2) == []


def test_even_frees_an_uneven_slot_when_it_has_to_place_anyway() -> None:
    table = TaskTable.columns([0] * 4, [0, 1, 2, 3], [0, 0, 0, -1], [0, 0, 0, -1])
    topology = TopologyView("t", (OperatorView("a"),), (), table, workers=4)
    hosts = tuple(NodeView(f"n{at}", processes=4, tasks_per_process=4) for at in range(4))
    view = View(0.0, 10.0, hosts, (topology,))
    plan, _ = schedulers.make("even").plan(view, {}, rng())
    assert len({slot.node for slot in places(view, plan).values()}) == 4


# --- rstorm ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1", "2"])
def test_rstorm_puts_neighbours_together_and_then_changes_nothing(version: str) -> None:
    view = view_of([Chain(parallelism={"a": 2, "b": 2})], 4)
    policy = schedulers.make("rstorm", {"version": version})
    plan, memory = policy.plan(view, {}, rng())
    assert used(view, plan) == 1
    again, _ = policy.plan(view, memory, rng())
    assert not again


def test_rstorm_respects_declared_memory() -> None:
    hosts = [NodeView(f"n{at}", processes=4, tasks_per_process=8, memory_bytes=256 * 2**20) for at in range(4)]
    view = view_of([Chain(parallelism={"a": 3, "b": 3})], hosts)
    plan, _ = schedulers.make("rstorm").plan(view, {}, rng())
    held = [slot.node for slot in places(view, plan).values()]
    assert max(held.count(node) for node in held) <= 2


def test_rstorm_finds_the_node_of_its_last_choice_nearest_then_its_rack() -> None:
    free = {"a": [100.0, 1000.0], "b": [100.0, 1000.0], "c": [100.0, 1000.0]}
    found = distances([10.0, 128.0], free, "a", {"r1": ["a", "b"], "r2": ["c"]})
    assert found["a"] is not None
    assert found["b"] is not None
    assert found["c"] is not None
    assert found["a"] < found["b"] < found["c"]


# --- ra ----------------------------------------------------------------------------------------------------------


def test_ra_empties_nodes_that_are_not_needed_and_stays_then() -> None:
    view = spread_out(1500.0)
    policy = schedulers.make("ra", {"resources": "measured", "moves": 5})
    plan, memory = policy.plan(view, {}, rng())
    demand = plan.reasons[0].inputs["demand"]
    assert used(view, plan) == int(np.ceil(demand / 0.75)) < 14
    assert len(plan.nodes_released) == 14 - used(view, plan)
    assert memory["at_s"] == view.end_s


def test_ra_opens_nodes_when_one_is_overloaded() -> None:
    view = spread_out(1500.0)
    policy = schedulers.make("ra", {"resources": "measured", "moves": 5})
    plan, memory = policy.plan(view, {}, rng())
    placed = places(view, plan)
    where = np.array([view.node_positions[placed[task].node] for task in view.topologies[0].task_ids])
    busier = spread_out(3000.0)
    topology = busier.topologies[0]
    where.flags.writeable = False
    moved = replace(topology, tasks=replace(topology.tasks, node=where), node_ids=())
    later = replace(busier, start_s=100.0, end_s=130.0, topologies=(moved,))
    grown, _ = policy.plan(later, memory, rng())
    assert used(later, grown) > used(view, plan)
    assert "more than 0.75" in grown.reasons[0].summary


def in_band(rate: float = 1500.0) -> View:
    return spread_out(rate, nodes=4, tasks=40, memory_each=0.02)


def test_ra_plans_after_the_first_full_period_and_keeps_what_sits_in_its_band() -> None:
    plan, memory = schedulers.make("ra", {"resources": "measured", "moves": 1}).plan(in_band(), {}, rng())
    assert 0.6 <= plan.reasons[0].inputs["node_demand_mean"] <= 0.75
    assert not plan
    assert "the first statistics period is over; the present placement stays" in plan.reasons[0].summary
    assert memory["rates"] == {"wc": 1500.0}
    assert memory["at_s"] is None, "nothing changed: no cooldown"


def test_ra_waits_for_its_first_full_period() -> None:
    early = replace(in_band(), start_s=0.0, end_s=29.0)
    plan, memory = schedulers.make("ra", {"moves": 1}).plan(early, {}, rng())
    assert "the first statistics period is not over" in plan.reasons[0].summary
    late = replace(in_band(), start_s=29.0, end_s=30.0)
    plan, memory = schedulers.make("ra", {"moves": 1}).plan(late, memory, rng())
    assert "the first statistics period is over" in plan.reasons[0].summary


def test_ra_plans_again_when_the_rate_moves_by_a_fifth_inside_the_band() -> None:
    policy = schedulers.make("ra", {"resources": "measured", "moves": 1, "under": 0.1, "over": 1.0})
    _, memory = policy.plan(in_band(), {}, rng())
    steady, memory = policy.plan(in_band(1600.0), memory, rng())
    assert "in its band and the rates are steady" in steady.reasons[0].summary
    moved, memory = policy.plan(in_band(1850.0), memory, rng())
    assert "the source rate of wc moved from 1500 to 1850" in moved.reasons[0].summary
    assert memory["rates"] == {"wc": 1850.0}


def test_ra_waits_for_measurements_and_for_its_cooldown() -> None:
    policy = schedulers.make("ra", {"moves": 1})
    assert "nothing has been measured" in policy.plan(spread_out(0.0), {}, rng())[0].reasons[0].summary
    recent = {"at_s": 50.0, "rates": {"wc": 1500.0}}
    assert "cooldown" in policy.plan(spread_out(1500.0), recent, rng())[0].reasons[0].summary


def two_pairs() -> View:
    """Two chatty pairs of tasks, each torn apart between two nodes."""
    table = TaskTable.columns(
        [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0],
        processed=[100] * 4, received=[100] * 4, cpu=[0.2] * 4, mem=[0.2] * 4,
    )  # fmt: skip
    operators = (
        OperatorView("read", kind="source", service_s=0.001),
        OperatorView("count", kind="sink", stateful=True, service_s=0.001),
    )
    traffic = Traffic.columns([0, 1, 0], [2, 3, 3], [100.0, 100.0, 1.0])
    edges = (EdgeView("read", "count", count=400),)
    topology = TopologyView("wc", operators, edges, table, traffic, {"read": 400}, latency_ms=5.0)
    nodes = (NodeView("a", load=Load(0.4, 0.4)), NodeView("b", load=Load(0.4, 0.4)))
    return View(0.0, 60.0, nodes, (topology,))


def together(place: dict[TaskId, Slot]) -> bool:
    return all(place[TaskId("read", at)].node == place[TaskId("count", at)].node for at in (0, 1))


# --- sl ----------------------------------------------------------------------------------------------------------


def test_sl_brings_chatty_tasks_together_in_half_layers_with_their_state() -> None:
    view = two_pairs()
    plan, memory = schedulers.make("sl").plan(view, {}, rng())
    assert together(places(view, plan))
    wanted = plan.topologies["wc"]
    assert [batch.operator for batch in wanted.batches] == sorted(
        (batch.operator for batch in wanted.batches), key=["read", "count"].index
    )
    assert all(len(batch.tasks) == 1 for batch in wanted.batches)
    kinds = {action.kind for action in wanted.state_actions}
    assert kinds <= {"backup", "restore", "rehome"}
    assert kinds
    assert memory["changed_s"] == {"wc": 60.0}


def test_a_move_saves_state_before_and_restores_it_after_and_rehomes_what_it_holds_for_others() -> None:
    view = two_pairs()
    wanted = {TaskId("read", 0): Slot("b", 1), TaskId("count", 1): Slot("b", 1)}
    batches, actions = migration(view.topologies[0], wanted, checks=0, pause_s=2.0)
    assert [(batch.operator, batch.pause_s) for batch in batches] == [("read", 2.0), ("count", 2.0)]
    assert [(action.kind, action.operator) for action in actions] == [
        ("rehome", "read"),
        ("backup", "count"),
        ("restore", "count"),
    ]
    assert actions[0].detail == {"lost_at_once": 1, "recoverable_without": False}


def test_sl_stays_when_the_new_cut_is_not_clearly_cheaper() -> None:
    view = two_pairs()
    plan, _ = schedulers.make("sl").plan(view, {}, rng())
    placed = places(view, plan)
    topology = view.topologies[0]
    where = np.array([view.node_positions[placed[task].node] for task in topology.task_ids])
    where.flags.writeable = False
    settled = replace(view, topologies=(replace(topology, tasks=replace(topology.tasks, node=where), node_ids=()),))
    again, _ = schedulers.make("sl").plan(settled, {}, rng())
    assert not again
    assert again.reasons[0].alternatives


def test_sl_keeps_the_old_plan_when_no_node_fits() -> None:
    view = two_pairs()
    tight = replace(
        view, nodes=tuple(replace(node, baseline=Load(0.7, 0.7), load=Load(1.5, 1.5)) for node in view.nodes)
    )
    plan, _ = schedulers.make("sl", {"load_max": 5.0}).plan(tight, {}, rng())
    assert not plan
    assert "no node fits" in plan.reasons[0].summary


def test_ra_brings_chatty_tasks_together_too() -> None:
    view = two_pairs()
    plan, _ = schedulers.make("ra", {"under": 0.0, "over": 0.4, "resources": "measured", "trigger": 0.1}).plan(
        view, {"rates": {"wc": 1.0}, "at_s": None}, rng()
    )
    assert together(places(view, plan))


# --- sp-ant ------------------------------------------------------------------------------------------------------


def test_the_ants_of_an_iteration_walk_before_any_pheromone_is_laid() -> None:
    policy = schedulers.make("sp-ant", {"ants": 4, "iterations": 2})
    view, random = view_of([Chain(parallelism={"a": 3, "b": 3})], 6), rng()
    memory: Any = {}
    tried = []
    for _ in range(5):  # the plan to start from and four ants, milliseconds each: any pheromone would decide
        view = replace(view, topologies=(replace(view.topologies[0], latency_ms=5.0),))
        plan, memory = policy.plan(view, memory, random)
        tried.append(tuple(sorted(places(view, plan).items())))
    assert len(set(tried)) == 5
    assert not memory[view.topologies[0].name]["pairs"]
    _, memory = policy.plan(view, memory, random)
    laid = max(tau for tau, _ in memory[view.topologies[0].name]["pairs"].values())
    assert laid > 100 * memory[view.topologies[0].name]["rest"]


def test_sp_ant_tries_plans_and_keeps_the_one_with_the_least_latency() -> None:
    policy = schedulers.make("sp-ant", {"ants": 2, "iterations": 2})
    view, random = view_of([Chain(parallelism={"a": 2, "b": 2})], 3), rng()
    memory: Any = {}
    tried: list[tuple[float, dict[TaskId, Slot]]] = []
    # Latencies of seconds lay little pheromone, so that the ants go on trying other ways.
    for latency_ms in (9e4, 2e4, 5e3, 3e4, 4e4, 6e4, 7e4):
        topology = view.topologies[0]
        if tried:
            tried[-1] = (latency_ms, tried[-1][1])
        view = replace(view, topologies=(replace(topology, latency_ms=latency_ms),))
        plan, memory = policy.plan(view, memory, random)
        tried.append((0.0, places(view, plan)))
    best = min(tried[:5], key=lambda pair: pair[0])[1]
    assert [place for _, place in tried[:5]].count(best) == 1
    assert tried[-1][1] == best
    assert "kept" in plan.reasons[0].summary
