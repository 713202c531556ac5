"""The lab's model: tuples are neither made nor lost, and queues behave as queueing theory says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rstream.errors import TopologyError
from rstream.lab.calibration import TIERS
from rstream.lab.compare import fed
from rstream.lab.contention import slowdown
from rstream.lab.flow import Flow
from rstream.lab.simulate import Control, Run, Setup, simulate
from rstream.lab.spec import ClusterSpec, EdgeSpec, OperatorSpec, TopologySpec
from rstream.lab.trace import Trace
from rstream.lab.world import World
from rstream.schedulers.balancing import LoadBalancer, backlog
from rstream.schedulers.base import TaskId

STATIC = Control("static", 10.0)
FREE = {"drs": {"executors_max": 12}}


def chain(*sizes: int, service_s: float = 0.002, queue_limit: float | None = None) -> TopologySpec:
    names = [f"op{at}" for at in range(len(sizes))]
    operators = tuple(OperatorSpec(name, service_s, size) for name, size in zip(names, sizes, strict=True))
    edges = tuple(EdgeSpec(a, b) for a, b in pairwise(names))
    return TopologySpec("chain", operators, edges, queue_limit=queue_limit)


def run(topology: TopologySpec, rate: float, *, end_s: float = 60.0, nodes: int = 8, control: Control = STATIC) -> Run:
    setup = Setup(ClusterSpec(nodes), (topology,), (Trace.constant(rate, end_s),), TIERS, spread=0.0)
    return simulate(setup, control, 1)


def test_what_is_offered_is_finished_queued_or_held_back() -> None:
    for rate, limit in ((300.0, None), (900.0, None), (900.0, 500.0)):
        result = run(chain(1, 2, 1, queue_limit=limit), rate)
        totals = result.totals[0]
        waiting = totals.offered - totals.finished
        held = result.queued[-1] + result.backlog[-1]
        assert waiting == pytest.approx(held, rel=0.05, abs=rate * 1.5)  # the last second is not in the sample


def test_a_task_cannot_process_more_than_its_service_time_allows() -> None:
    result = run(chain(1, service_s=0.002), 800.0)
    assert result.mean("throughput", 10) == pytest.approx(500.0, rel=0.02)


def test_latency_below_saturation_is_the_mm1_sojourn_time() -> None:
    result = run(chain(1, service_s=0.002), 250.0)
    assert result.mean("latency_ms", 20) == pytest.approx(2.0 / (1.0 - 0.5), rel=0.03)


def test_back_pressure_bounds_the_queues_and_holds_the_source_back() -> None:
    result = run(chain(4, 1, queue_limit=200.0), 2000.0)
    one_step = 0.1 / 0.002  # credit comes back within a step: at its end a queue may be over by what was served in it
    assert max(result.queued) <= 5 * 200.0 + 2 * one_step
    assert result.backlog[-1] > 10_000
    assert result.mean("throughput", 20) == pytest.approx(500.0, rel=0.05)


def test_a_short_queue_does_not_slow_a_task_that_serves_many_of_it_within_a_step() -> None:
    result = run(chain(1, 1, service_s=0.0001, queue_limit=100.0), 8000.0)
    assert result.mean("throughput", 20) == pytest.approx(8000.0, rel=0.01)
    assert result.backlog[-1] < 800.0


def test_threads_share_the_cores_of_a_full_node() -> None:
    crowded = run(chain(8, service_s=0.004), 2000.0, nodes=1)
    assert crowded.mean("throughput", 20) == pytest.approx(2 / 0.004, rel=0.03)


def test_slowdown_is_one_with_a_core_each_and_full_sharing_when_all_are_busy() -> None:
    threads, cores = np.array([1, 2, 6]), np.array([2.0, 2.0, 2.0])
    assert slowdown(threads, np.ones(3), cores).tolist() == [1.0, 1.0, 3.0]


def test_old_tuples_are_dropped_when_they_are_dequeued_and_counted() -> None:
    result = run(replace(chain(1, service_s=0.002), t_out_s=5.0), 1000.0, end_s=120.0)
    totals = result.totals[0]
    assert totals.timed_out > 0
    assert max(result.latency_ms) <= 5_000 + 200
    assert totals.finished == pytest.approx(500.0 * 120, rel=0.02)


def test_a_full_source_queue_drops_the_newest_and_counts_them() -> None:
    result = run(replace(chain(1, service_s=0.002), q_size=100.0), 1000.0)
    totals = result.totals[0]
    assert totals.dropped == pytest.approx(totals.offered - totals.finished, rel=0.02)
    assert max(result.queued) <= 100.0 + 1e-6


def test_a_hop_between_nodes_costs_more_than_one_within_a_process() -> None:
    # R-Storm packs the chain onto one node, the even spread does not.
    packed = run(chain(1, 1, 1), 100.0, control=Control("rstorm"))
    spread = run(chain(1, 1, 1), 100.0, control=Control("even"))
    assert packed.nodes[-1] < spread.nodes[-1]
    assert packed.mean("latency_ms", 20) < spread.mean("latency_ms", 20)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    setup = Setup(ClusterSpec(4), (chain(1, 2),), (Trace.constant(300, 20),), TIERS)
    first, again, other = (simulate(setup, STATIC, seed) for seed in (1, 1, 2))
    assert first.latency_ms == again.latency_ms
    assert first.latency_ms != other.latency_ms


def test_a_restart_that_drops_loses_what_was_queued_and_stands_still() -> None:
    setup = Setup(ClusterSpec(8), (chain(2, 1),), (Trace.constant(700, 200),), TIERS, step_s=0.25, spread=0.0)
    result = simulate(setup, Control("dabs"), 1)
    assert result.restarts > 0
    assert result.totals[0].dropped > 0
    assert min(result.throughput[60:]) == 0.0


def test_the_models_load_balancing_is_the_live_routers() -> None:
    topology = TopologySpec(
        "t",
        (OperatorSpec("in", 1e-6, kind="source"), OperatorSpec("work", 0.01, 3)),
        (EdgeSpec("in", "work", grouping="load_balanced"),),
    )
    world = World(ClusterSpec(3), (topology,))
    world.start()
    flow = Flow(world, TIERS, 0.5)
    rows = world.rows("t", [TaskId("work", at) for at in range(3)])
    waiting = [200.0, 0.0, 50.0]
    world.values["queue"][rows] = waiting
    flow.start_interval(10.0)
    use = backlog(waiting, 0.01, 10.0)
    assert world.values["credit"][rows].tolist() == use
    balancer = LoadBalancer(use, 0.01 / 10.0)
    dealt = np.bincount([balancer.choose() for _ in range(400)], minlength=3)
    shares = flow._balanced_shares(world.op_at["t", "work"], 400.0, world.weight)[rows]
    assert (shares * 400.0).tolist() == pytest.approx(dealt.tolist(), abs=1.5)
    assert world.values["credit"][rows].tolist() == pytest.approx(balancer.utilisations, abs=0.0011)


def test_load_balancing_starts_at_zero_when_replicas_change_and_from_the_backlog_at_the_next_interval() -> None:
    topology = TopologySpec("t", (OperatorSpec("work", 0.01, 1, pool=2),), ())
    world = World(ClusterSpec(2), (topology,))
    world.start()
    flow = Flow(world, TIERS, 0.5)
    world.values["queue"][0] = 500.0
    flow.start_interval(10.0)
    assert world.values["credit"].tolist() == [0.5, 0.0]
    world.activate([1], True)
    flow.start_interval(10.0)
    assert world.values["credit"].tolist() == [0.0, 0.0]
    world.resized[:] = False
    flow.start_interval(10.0)
    assert world.values["credit"].tolist() == [0.5, 0.0]


@pytest.mark.parametrize("policy", ["psps", "dabs", "es", "drs"])
def test_every_policy_may_resize_the_first_operator_of_a_comparison(policy: str) -> None:
    topology = fed(chain(1, 2, service_s=0.004))
    result = run(topology, 700.0, end_s=240.0, control=Control(policy, parameters=FREE.get(policy, {})))
    assert max(sizes["op0"] for sizes in result.sizes) > 1
    assert {sizes["input"] for sizes in result.sizes} == {1}


def test_a_topology_that_goes_back_is_refused() -> None:
    with pytest.raises(TopologyError, match="goes back"):
        TopologySpec("t", (OperatorSpec("a", 0.001), OperatorSpec("b", 0.001)), (EdgeSpec("b", "a"),))
