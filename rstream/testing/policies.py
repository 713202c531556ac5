"""The conformance kit for scheduling policies: what every one must do, whatever it decides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from rstream.schedulers.moves import diff
from rstream.schedulers.plan import Plan, plain, settle
from rstream.schedulers.policy import Memory, Policy
from rstream.schedulers.tables import Slot
from rstream.schedulers.view import NodeView, View
from rstream.testing.views import Chain, view_of


def check_policy(make: Callable[[], Policy]) -> None:
    """Raise AssertionError, with the case named, unless the policy keeps the contract.

    It must terminate on idle, busy, overloaded, unplaced, partly dead and empty clusters; give the same plan for the
    same view, memory and seed, whatever the order of the nodes; keep memory that survives JSON; never book a slot
    twice or beyond its room; stay within each operator's bounds; say why; and be turned into moves by `diff`.

    >>> from rstream import schedulers
    >>> check_policy(lambda: schedulers.make("static"))
    """
    policy = make()
    assert isinstance(policy, Policy), f"{policy!r} needs a name, an interval_s and a plan method"
    assert policy.interval_s > 0, f"policy {policy.name!r}: interval_s must be positive"
    for label, views in cases():
        memory: Memory = {}
        for turn, view in enumerate(views):
            where = f"policy {policy.name!r}, case {label!r}, turn {turn}"
            plan, after = policy.plan(view, memory, np.random.default_rng(7))
            again, _ = make().plan(view, json.loads(json.dumps(plain(memory))), np.random.default_rng(7))
            assert plain(plan) == plain(again), f"{where}: a second run with the memory from JSON gave another plan"
            turned, _ = policy.plan(_reversed(view), memory, np.random.default_rng(7))
            assert plain(plan) == plain(turned), f"{where}: the order in which nodes are listed changed the plan"
            assert plan.reasons or not view.topologies, f"{where}: a plan must say why"
            json.dumps(plan.to_data(), allow_nan=False)
            _check_bounds(where, view, plan)
            _check_slots(where, view, plan)
            for move in diff(view, plan):
                json.dumps(move.to_data(), allow_nan=False)
            memory = after


def cases() -> Iterator[tuple[str, list[View]]]:
    """The clusters that a policy must cope with, each a short history."""
    busy = {"read": 0.0005, "split": 0.002, "count": 0.001, "out": 0.0005}
    wide = {"read": 2, "split": 4, "count": 4, "out": 2}
    one = Chain("wc", wide, 1500, busy, {"split": 2.0}, stateful=frozenset({"count"}))

    def at(turn: int, *chains: Chain, nodes: int = 8) -> View:
        return view_of(chains, nodes, end_s=60.0 * (turn + 1), window_s=30.0)

    def rate(value: float) -> Chain:
        return Chain("wc", wide, value, busy, {"split": 2.0}, stateful=frozenset({"count"}))

    yield "no topology", [view_of([], 3)]
    yield "no node", [view_of([one], 0)]
    yield "idle", [at(turn, rate(0.0)) for turn in range(2)]
    yield "steady", [at(turn, one) for turn in range(4)]
    yield "rising and falling", [at(turn, rate(value)) for turn, value in enumerate((500, 2000, 4000, 1000, 100))]
    yield "overloaded", [at(turn, rate(40_000.0)) for turn in range(3)]
    yield "too few slots", [at(turn, rate(4000.0), nodes=3) for turn in range(2)]
    pool = Chain("wc", {"read": 1, "split": 6, "out": 6}, 900, busy, active={"split": 2, "out": 1})
    yield "a pool", [at(turn, pool) for turn in range(3)]
    yield "two topologies", [at(turn, one, Chain("other", {"in": 2, "work": 3}, 300.0)) for turn in range(3)]
    yield "not placed yet", [view_of([one], 8, placed=False)]
    dead = view_of([one], 8, end_s=120.0)
    nodes = tuple(NodeView(n.id, load=n.load, alive=at != 2) for at, n in enumerate(dead.nodes))
    yield "a dead node", [at(0, one), View(dead.start_s, dead.end_s, nodes, dead.topologies, dead.sample_s)]


def _reversed(view: View) -> View:
    """The same cluster, its nodes listed from the other end."""
    last = len(view.nodes) - 1
    topologies = []
    for topology in view.topologies:
        node = np.where(topology.tasks.node >= 0, last - topology.tasks.node, -1)
        node.flags.writeable = False
        topologies.append(replace(topology, tasks=replace(topology.tasks, node=node), node_ids=()))
    return replace(view, nodes=view.nodes[::-1], topologies=tuple(topologies))


def _check_bounds(where: str, view: View, plan: Plan) -> None:
    for name, wanted in plan.topologies.items():
        topology = view.topology(name)
        for operator, count in wanted.parallelism.items():
            declared = topology.operator(operator)
            low, high = declared.parallelism_min, declared.parallelism_max
            assert low <= count <= high, f"{where}: {operator} wants {count} instances, allowed are {low} to {high}"


def _check_slots(where: str, view: View, plan: Plan) -> None:
    """Only what the plan itself adds or moves is its fault; what stood too full before may stay."""
    held: Counter[Slot] = Counter()
    owner: dict[Slot, str] = {}
    touched: set[Slot] = set()
    for topology in view.topologies:
        wanted = plan.topologies.get(topology.name)
        placement = settle(topology, wanted).placement if wanted else topology.placement
        for task, slot in placement.items():
            held[slot] += 1
            if topology.placement.get(task) != slot:
                touched.add(slot)
            other = owner.setdefault(slot, topology.name)
            assert other == topology.name, f"{where}: {slot} is given to {other!r} and {topology.name!r}"
    for slot in touched:
        node = view.node(slot.node)
        assert node.alive, f"{where}: {slot} is on a dead node"
        assert 0 <= slot.process < node.processes, f"{where}: {slot} does not exist"
        limit = node.tasks_per_process
        assert held[slot] <= limit, f"{where}: {slot} would hold {held[slot]} tasks, it takes {limit}"
