"""Cutting graphs: annealing and swarm against brute force, and resource scaling that always ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rstream.schedulers import swarm
from rstream.schedulers.annealing import anneal
from rstream.schedulers.bands import pack_tightly, scale
from rstream.schedulers.fitting import pair_tasks
from rstream.schedulers.partition import Graph, Limits, Schedule, first_fit, rate_cut
from tests.vectors.partition import _problem, ra_best_partition, ra_min_bins, sl_best_partition


def layered(seed: int, layers: tuple[int, ...]) -> tuple[int, list[tuple[int, int, float]]]:
    """Tasks in layers, every pair of neighbours linked by some traffic."""
    rng = np.random.default_rng(seed)
    first = np.cumsum([0, *layers])
    edges = [
        (int(one), int(other), float(rng.integers(1, 20) * 25))
        for at in range(len(layers) - 1)
        for one in range(first[at], first[at + 1])
        for other in range(first[at + 1], first[at + 2])
    ]
    return int(first[-1]), edges


def annealed(seed: int, size: int, edges: Any, parts: int, room: int) -> float:
    graph, limits = Graph.of(size, edges), Limits.tasks_only(size, room)
    rng = np.random.default_rng(seed)
    found = anneal(graph, first_fit(limits, parts), parts, 0.7, limits, Schedule(), rng)
    assert np.bincount(found).max() <= room
    return rate_cut(graph, found, parts, 0.7).cost


def swarmed(seed: int, problem: swarm.Problem) -> float:
    return swarm.search(problem, [swarm.greedy(problem)], swarm.Swarm(), np.random.default_rng(seed)).cost


def swarm_case(graph_seed: int, parts: int) -> tuple[swarm.Problem, float]:
    size, edges = layered(graph_seed, (1, 3, 3))
    resources = np.random.default_rng(graph_seed).integers(5, 20, size).tolist()
    target, cap = [1.0 / parts] * parts, 1.3 * sum(resources) / parts
    problem = _problem(edges, size, parts, resources, 3000.0, target, cap)
    best = sl_best_partition(edges, size, parts, resources, 3000.0, target, max_load=cap)["p"]
    return problem, best


def test_annealing_finds_the_best_cut_of_a_small_graph() -> None:
    size, edges = layered(5, (2, 2, 2))
    best = ra_best_partition(size, edges, 3, 0.7, "cv", 3)["f"]
    assert annealed(1, size, edges, 3, 3) == pytest.approx(best, rel=0.01)


def test_the_swarm_finds_the_best_cut_of_a_small_graph() -> None:
    problem, best = swarm_case(3, 3)
    assert swarmed(1, problem) == pytest.approx(best, rel=0.01)


# One case of each runs always; the others take a while.
LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("layers", "parts", "room"),
    [
        ((2, 2, 2), 3, 2),
        pytest.param((1, 3, 3), 2, 4, marks=LONG),
        pytest.param((2, 3, 2), 3, 3, marks=LONG),
        pytest.param((2, 3, 3), 4, 2, marks=LONG),
    ],
)
def test_annealing_reaches_the_optimum_with_every_seed(layers: tuple[int, ...], parts: int, room: int) -> None:
    size, edges = layered(7, layers)
    best = ra_best_partition(size, edges, parts, 0.7, "cv", room)["f"]
    misses = [seed for seed in range(20) if annealed(seed, size, edges, parts, room) > 1.01 * best + 1e-12]
    assert not misses


@pytest.mark.parametrize(
    ("graph_seed", "parts"),
    [(2, 3), *(pytest.param(seed, parts, marks=LONG) for seed, parts in ((1, 2), (3, 3), (4, 2)))],
)
def test_the_swarm_reaches_the_optimum_with_every_seed(graph_seed: int, parts: int) -> None:
    problem, best = swarm_case(graph_seed, parts)
    misses = [seed for seed in range(20) if swarmed(seed, problem) > 1.01 * best + 1e-12]
    assert not misses


def test_a_full_cluster_is_improved_by_swaps() -> None:
    graph = Graph.of(4, [(0, 1, 10.0), (2, 3, 10.0)])
    limits = Limits.tasks_only(4, 2)
    found = anneal(graph, np.array([0, 1, 0, 1]), 2, 0.7, limits, Schedule(), np.random.default_rng(0))
    assert rate_cut(graph, found, 2, 0.7).share == 0.0


def test_the_same_seed_gives_the_same_cut() -> None:
    size, edges = layered(2, (3, 4, 3))
    assert annealed(9, size, edges, 4, 4) == annealed(9, size, edges, 4, 4)


@st.composite
def loads(draw: st.DrawFn) -> tuple[Graph, Limits, Any, int]:
    size = draw(st.integers(1, 24))
    demand = np.array(draw(st.lists(st.floats(0.0, 0.9), min_size=size, max_size=size)))
    parts = draw(st.integers(1, 8))
    labels = np.array(draw(st.lists(st.integers(0, parts - 1), min_size=size, max_size=size)))
    pairs = draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1), st.floats(0, 9)), max_size=30))
    limits = Limits(demand, np.column_stack((demand, demand / 2)), 0.75, 1.0, draw(st.integers(1, 8)))
    return Graph.of(size, pairs), limits, labels, draw(st.integers(parts, 12))


@settings(max_examples=60, deadline=None)
@given(loads())
def test_resource_scaling_ends_and_keeps_every_limit_that_can_be_kept(case: tuple[Graph, Limits, Any, int]) -> None:
    graph, limits, labels, nodes = case
    done = scale(graph, labels, limits, 0.6, nodes)
    assert done.steps <= 4 * graph.size * len(set(labels.tolist()))
    assert sorted(set(done.labels.tolist())) == list(range(done.parts))
    held = np.bincount(done.labels, limits.demand, done.parts)
    count = np.bincount(done.labels, minlength=done.parts)
    for part in range(done.parts):
        if part not in done.over_accepted:
            assert held[part] <= limits.demand_max + 1e-6
            assert count[part] <= limits.tasks_max
        if held[part] < 0.6 - 1e-6 and part not in done.over_accepted:
            assert part in done.under_accepted
    if not done.over_accepted:
        assert done.parts >= math.ceil(limits.demand.sum() / limits.demand_max - 1e-6)
    assert done.parts <= max(nodes, len(set(labels.tolist())))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.05, 0.7), min_size=1, max_size=7), st.integers(2, 4))
def test_scaling_comes_close_to_the_fewest_nodes(demand: list[float], room: int) -> None:
    size = len(demand)
    limits = Limits(np.array(demand), np.zeros((size, 1)), 0.75, 1.0, room)
    done = scale(Graph.of(size, []), np.arange(size), limits, 0.6, size)
    assert done.parts <= ra_min_bins(demand, 0.75, room)["bins"] + 1


def test_two_subgraphs_that_cannot_merge_are_accepted_as_they_are() -> None:
    limits = Limits(np.array([0.4, 0.4]), np.zeros((2, 1)), 0.75, 1.0, 4)
    done = scale(Graph.of(2, [(0, 1, 5.0)]), np.array([0, 1]), limits, 0.6, 4)
    assert (done.parts, done.under_accepted) == (2, (0, 1))


def test_a_subgraph_below_the_band_pulls_the_task_that_its_donor_misses_least() -> None:
    demand = np.array([0.3, 0.3, 0.1, 0.1, 0.45])  # the first four are 0.8 together, the last one needs 0.15 or more
    limits = Limits(demand, np.zeros((5, 1)), 0.85, 1.0, 8)
    graph = Graph.of(5, [(0, 1, 9.0), (0, 2, 5.0), (0, 3, 1.0)])
    done = scale(graph, np.array([0, 0, 0, 0, 1]), limits, 0.55, 2)
    assert done.labels.tolist() == [0, 0, 0, 1, 1]
    assert not done.under_accepted


def test_a_subgraph_without_a_partner_is_spread_over_several() -> None:
    demand = np.array([0.5, 0.1, 0.5, 0.1, 0.15, 0.15])
    limits = Limits(demand, np.zeros((6, 1)), 0.75, 1.0, 8)
    graph = Graph.of(6, [(0, 1, 9.0), (2, 3, 9.0), (4, 0, 3.0), (5, 2, 3.0)])
    done = scale(graph, np.array([0, 0, 1, 1, 2, 2]), limits, 0.6, 3)
    assert done.labels.tolist() == [0, 0, 1, 1, 0, 1]


def test_a_single_task_above_the_band_is_accepted_and_reported() -> None:
    limits = Limits(np.array([0.9]), np.zeros((1, 1)), 0.75, 1.0, 4)
    assert scale(Graph.of(1, []), np.array([0]), limits, 0.6, 4).over_accepted == (0,)


def test_packing_by_size_refuses_a_task_that_fits_nowhere() -> None:
    assert pack_tightly(Limits(np.array([0.9, 0.1]), np.zeros((2, 1)), 0.75, 1.0, 4)) is None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(1, 4), st.integers(0, 2**31))
def test_pairing_seats_every_task_once_and_fills_processes(size: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    traffic = [(int(a), int(b), float(w)) for a, b, w in rng.integers(0, max(1, size), (12, 3))]
    processes = pair_tasks(list(range(size)), traffic, width)
    assert sorted(task for process in processes for task in process) == list(range(size))
    assert all(len(process) <= width for process in processes)
    assert len(processes) == math.ceil(size / width)
