"""Every policy keeps the contract, and what the contract promises can be broken by a policy that does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rstream import schedulers
from rstream.schedulers.guards import Guarded
from rstream.schedulers.plan import Plan, Reason, TopologyPlan, plain
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import View
from rstream.testing import check_policy
from rstream.testing.views import Chain, view_of

# The searches are cut short here: the contract does not depend on how good a partition is.
QUICK: Mapping[str, Mapping[str, Any]] = {
    "ra": {"moves": 1, "cooling": 0.8},
    "sl": {"particles": 4, "iterations": 5},
}


@pytest.mark.parametrize("name", schedulers.registry.BUILT_IN)
def test_the_policy_keeps_the_contract(name: str) -> None:
    check_policy(lambda: schedulers.make(name, QUICK.get(name)))


@pytest.mark.parametrize("name", schedulers.registry.BUILT_IN)
def test_neutral_guard_rails_change_nothing(name: str) -> None:
    view = view_of([Chain(rate=2000.0, service_s={"split": 0.002})], 6)
    bare, _ = schedulers.make(name, QUICK.get(name)).plan(view, {}, np.random.default_rng(3))
    guarded, _ = Guarded(schedulers.make(name, QUICK.get(name))).plan(view, {}, np.random.default_rng(3))
    assert plain(bare) == plain(guarded)


class Rogue:
    """A policy that breaks one promise at a time."""

    name = "rogue"
    interval_s = 1.0

    def __init__(self, sin: str) -> None:
        self.sin = sin
        self.calls = 0

    def plan(self, view: View, memory: Mapping[str, Any], rng: np.random.Generator) -> tuple[Plan, Mapping[str, Any]]:
        self.calls += 1
        reasons = (Reason("x", "because"),)
        if not view.topologies or not view.nodes:
            return Plan(reasons=reasons), {}
        topology = view.topologies[0]
        first = topology.operators[0].name
        sins: dict[str, TopologyPlan] = {
            "overbooks": TopologyPlan(
                placement={task: Slot(view.node(min(view.node_positions)).id, 0) for task in topology.task_ids}
            ),
            "ignores bounds": TopologyPlan(parallelism={first: 10**6}),
            "is moody": TopologyPlan(parallelism={first: 1 + self.calls % 2}),
            "follows the listing": TopologyPlan(placement={TaskId(first, 0): Slot(view.nodes[0].id, 1)}),
        }
        wanted = sins.get(self.sin, TopologyPlan())
        memory = {"when": object()} if self.sin == "remembers objects" else {}
        return Plan(
            {topology.name: wanted} if wanted else {}, reasons=() if self.sin == "is silent" else reasons
        ), memory


@pytest.mark.parametrize(
    "sin", ["overbooks", "ignores bounds", "is moody", "follows the listing", "is silent", "remembers objects"]
)
def test_a_policy_that_breaks_a_promise_is_found_out(sin: str) -> None:
    rogue = Rogue(sin)
    with pytest.raises((AssertionError, TypeError)):
        check_policy(lambda: rogue)


def test_an_honest_policy_that_does_nothing_passes() -> None:
    check_policy(lambda: Rogue("none"))


@pytest.mark.parametrize("name", ["es", "psps", "drs", "dabs", "me", "even", "rstorm", "ra"])
def test_other_node_names_give_the_same_sizes_and_as_many_nodes(name: str) -> None:
    view = view_of([Chain(rate=2500.0, service_s={"split": 0.002, "count": 0.001})], 6)
    names = ["z", "k", "m", "a", "q", "b"]
    renamed = replace(view, nodes=tuple(replace(node, id=new) for node, new in zip(view.nodes, names, strict=True)))
    plans = [
        schedulers.make(name, QUICK.get(name))
        .plan(v, {}, np.random.default_rng(1))[0]
        .topologies.get("chain", TopologyPlan())
        for v in (view, renamed)
    ]
    assert plans[0].parallelism == plans[1].parallelism
    assert len({s.node for s in plans[0].placement.values()}) == len({s.node for s in plans[1].placement.values()})
