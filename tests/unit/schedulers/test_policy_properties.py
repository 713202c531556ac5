"""What every policy promises on any cluster: room is never exceeded, names do not matter, more load is never less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rstream import schedulers
from rstream.schedulers.plan import Plan, TopologyPlan, plain, settle
from rstream.schedulers.tables import Slot
from rstream.schedulers.view import NodeView, View
from rstream.testing.views import Chain, view_of

# The searches are cut short here: what is promised does not depend on how good a partition is.
QUICK: Mapping[str, Mapping[str, Any]] = {
    "ra": {"moves": 1, "cooling": 0.8},
    "sl": {"particles": 4, "iterations": 5},
}
NAMES = sorted(schedulers.registry.BUILT_IN)


def planned(name: str, view: View, seed: int = 1) -> Plan:
    return schedulers.make(name, QUICK.get(name)).plan(view, {}, np.random.default_rng(seed))[0]


@st.composite
def clusters(draw: st.DrawFn, *, placed: bool = True) -> View:
    """One or two chains on nodes of unlike room, with or without backlog, idle replicas and keys."""
    chains = []
    for at in range(draw(st.integers(1, 2))):
        sizes = {f"op{op}": size for op, size in enumerate(draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))}
        service_s = {name: draw(st.sampled_from([0.0005, 0.002, 0.01])) for name in sizes}
        active = {"op1": draw(st.integers(1, sizes["op1"]))}
        stateful = frozenset({"op1"}) if draw(st.booleans()) else frozenset[str]()
        backlog = {"op1": draw(st.sampled_from([0.0, 500.0]))}
        rate = draw(st.floats(0, 20_000))
        chains.append(Chain(f"c{at}", sizes, rate, service_s, active=active, stateful=stateful, backlog=backlog))
    many = draw(st.integers(4, 9))
    room = st.tuples(st.integers(1, 3), st.integers(2, 5))
    nodes = [NodeView(f"n{at:04d}", *draw(room)) for at in range(many)]
    view = view_of(chains, nodes, placed=placed)
    assume(is_within_room(view))
    return view


def is_within_room(view: View) -> bool:
    """What runs has the room that it takes, and no slot serves two topologies."""
    held = Counter(slot for topology in view.topologies for slot in topology.placement.values())
    owners = Counter(slot for topology in view.topologies for slot in set(topology.placement.values()))
    return all(count <= view.node(slot.node).tasks_per_process and owners[slot] == 1 for slot, count in held.items())


def overfull(view: View, plan: Plan) -> list[str]:
    """Slots that a plan fills beyond their room, shares between topologies, or takes where there is none."""
    held: Counter[Slot] = Counter()
    owners: dict[Slot, set[str]] = {}
    touched: set[Slot] = set()
    for topology in view.topologies:
        wanted = settle(topology, plan.topologies.get(topology.name, TopologyPlan())).placement
        for task, slot in wanted.items():
            held[slot] += 1
            owners.setdefault(slot, set()).add(topology.name)
            if topology.placement.get(task) != slot:
                touched.add(slot)
    found = []
    for slot in sorted(touched):
        node = view.node(slot.node)
        if slot.process >= node.processes or held[slot] > node.tasks_per_process or len(owners[slot]) > 1:
            found.append(f"{slot}: {held[slot]} tasks of {sorted(owners[slot])}, room for {node.tasks_per_process}")
    return found


@settings(max_examples=60)
@given(name=st.sampled_from(NAMES), view=clusters(), seed=st.integers(0, 2**32 - 1))
def test_the_same_seed_gives_the_same_plan_and_it_fits_the_cluster(name: str, view: View, seed: int) -> None:
    plan = planned(name, view, seed)
    assert plain(plan) == plain(planned(name, view, seed))
    assert overfull(view, plan) == []


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(NAMES), view=clusters(placed=False), seed=st.integers(0, 2**32 - 1))
def test_what_runs_nowhere_yet_is_placed_within_the_room(name: str, view: View, seed: int) -> None:
    assert overfull(view, planned(name, view, seed)) == []


def test_a_plan_that_exceeds_the_room_is_seen() -> None:
    view = view_of([Chain(parallelism={"a": 3, "b": 3})], 4)
    first = view.nodes[0].id
    crowd = {task: Slot(first, 0) for task in view.topologies[0].task_ids}
    assert overfull(view, Plan({"chain": TopologyPlan(placement=crowd)}))


def renamed(view: View, names: Mapping[str, str]) -> View:
    """The same cluster with other names; the nodes stay in their places in the list."""
    nodes = tuple(replace(node, id=names[node.id]) for node in view.nodes)
    topologies = tuple(replace(topology, node_ids=()) for topology in view.topologies)
    return replace(view, nodes=nodes, topologies=topologies)


def with_names(data: Any, names: Mapping[str, str]) -> Any:
    """A plan as data with its nodes renamed, in whichever place they are named."""
    if isinstance(data, Mapping):
        return {with_names(key, names): with_names(value, names) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [with_names(each, names) for each in data]
    if isinstance(data, str):
        for old, new in names.items():
            data = data.replace(old, new)
    return data


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(NAMES), view=clusters(), seed=st.integers(0, 2**32 - 1))
def test_renamed_nodes_get_the_same_plan_by_their_new_names(name: str, view: View, seed: int) -> None:
    # Ids break ties, so that the new names keep the order of the old ones.
    names = {node.id: f"host-{at * 7:03d}.example" for at, node in enumerate(view.nodes)}
    there = planned(name, renamed(view, names), seed)
    assert with_names(plain(planned(name, view, seed)), names) == with_names(plain(there), {})


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    order=st.permutations(range(6)),
    rate=st.floats(100, 5000),
)
def test_equal_empty_nodes_take_the_same_groups_of_tasks_under_any_names(
    name: str, sizes: list[int], order: list[int], rate: float
) -> None:
    chain = Chain("c", {f"op{at}": size for at, size in enumerate(sizes)}, rate)
    view = view_of([chain], 6, placed=False)
    other = renamed(view, {node.id: f"m{at}" for node, at in zip(view.nodes, order, strict=True)})
    assert groups(view, planned(name, view)) == groups(other, planned(name, other))


def groups(view: View, plan: Plan) -> list[list[str]]:
    """Which tasks share a node, whatever it is called."""
    (topology,) = view.topologies
    on: dict[str, list[str]] = {}
    for task, slot in settle(topology, plan.topologies.get("c", TopologyPlan())).placement.items():
        on.setdefault(slot.node, []).append(str(task))
    return sorted(sorted(tasks) for tasks in on.values())


@st.composite
def loads(draw: st.DrawFn) -> tuple[Chain, float]:
    """A chain that keeps up with its load, and a factor by which the load grows."""
    sizes = {f"op{at}": 60 for at in range(draw(st.integers(2, 4)))}
    service_s = {name: draw(st.floats(0.0005, 0.01)) for name in sizes}
    return Chain("c", sizes, draw(st.floats(10, 1000)), service_s, parallelism_max=10**6), draw(st.floats(1, 4))


@pytest.mark.parametrize("name", ["es", "psps"])
@settings(max_examples=30, deadline=None)
@given(case=loads())
def test_more_load_never_gives_fewer_instances_of_any_operator(name: str, case: tuple[Chain, float]) -> None:
    chain, more = case
    found = []
    for rate in (chain.rate, chain.rate * more):
        view = view_of([replace(chain, rate=rate)], [NodeView(f"n{at:02d}", 8, 40) for at in range(10)])
        (topology,) = view.topologies
        sizes = planned(name, view).topologies.get("c", TopologyPlan()).parallelism
        found.append(
            {operator.name: sizes.get(operator.name, topology.active(operator.name)) for operator in topology.operators}
        )
    assert all(found[0][operator] <= found[1][operator] for operator in found[0]), found
