"""What steps do to streams: order, keys, merging, branching, side outputs, lives of bolts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rstream import Topology
from rstream.groupings import All, Global, Key
from rstream.operators import sinks
from tests.behaviour import parts
from tests.behaviour.conftest import RunTopology

each_number_of_workers = pytest.mark.parametrize("workers", [1, 2, 3, 4])


def positive(number: int) -> bool:
    return number > 0


def add_pairs(left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
    return left[0], left[1] + right[1]


def double(number: int) -> int:
    return number * 2


@each_number_of_workers
def test_order_is_kept_from_task_to_task(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("order")
    numbers = topology.source("numbers", range(5000), parallelism=2)
    numbers.process("tag", parts.Tag, parallelism=2).grouped(Global()).sink("out")
    came = run_topology(topology, workers)["out"]
    assert sorted(number for _, number in came) == list(range(5000))
    for task in (0, 1):
        for part in (0, 1):
            on_one_way = [number for tag, number in came if tag == task and number % 2 == part]
            assert on_one_way == sorted(on_one_way)


@each_number_of_workers
def test_map_flat_map_and_filter_do_what_python_does(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("steps")
    numbers = topology.source("numbers", range(-50, 50), parallelism=3)
    numbers.filter("positive", positive, parallelism=2).flat_map("range", range, parallelism=2).map("str", str).sink(
        "o"
    )
    wanted = [str(inner) for n in range(-50, 50) if n > 0 for inner in range(n)]
    assert Counter(run_topology(topology, workers)["o"]) == Counter(wanted)


@each_number_of_workers
def test_reduce_gives_every_running_total(run_topology: RunTopology, workers: int) -> None:
    pairs = [(f"k{n % 7}", n) for n in range(200)]
    topology = Topology("reduce")
    topology.source("pairs", pairs).key_by("key", parts.first).reduce("sum", add_pairs, parallelism=3).sink("out")
    so_far: dict[str, int] = {}
    wanted = []
    for key, n in pairs:
        so_far[key] = so_far.get(key, 0) + n
        wanted.append((key, (key, so_far[key])))
    assert sorted(run_topology(topology, workers)["out"]) == sorted(wanted)


@each_number_of_workers
def test_equal_numbers_of_different_types_are_one_key(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("types")
    topology.source("numbers", [1, 1.0, True, 0, -0.0, False] * 5, parallelism=2).key_by("n").count(
        "count", parallelism=4
    )
    topology.bolt("latest", sinks.Latest, kind="sink").shuffle("count")
    assert sorted(run_topology(topology, workers)["latest"]) == [(0, 15), (1, 15)]


@each_number_of_workers
def test_inputs_with_different_keys_meet_by_key(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("join")
    left = [(f"k{n % 5}", n) for n in range(50)]
    right = [("other", f"k{n % 5}", n) for n in range(50)]
    topology.source("left", left, fields=("key", "n"))
    topology.source("right", right, fields=("kind", "key", "n"))
    topology.bolt("sum", parts.SumByKey, parallelism=3).fields("left", "key").fields("right", "key")
    topology.bolt("latest", sinks.Latest, kind="sink").shuffle("sum")
    wanted = {f"k{k}": 2 * sum(n for n in range(50) if n % 5 == k) for k in range(5)}
    assert dict(run_topology(topology, workers)["latest"]) == wanted


@each_number_of_workers
def test_merged_streams_lose_and_double_nothing(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("merge")
    streams = [topology.source(f"s{k}", range(k * 1000, k * 1000 + 300), parallelism=2) for k in range(3)]
    merged = topology.merge("all", *streams)
    merged.map("double", double, parallelism=2).sink("out")
    merged.key_by("key").count("count", parallelism=2).sink("counts")
    came = run_topology(topology, workers)
    numbers = [n for k in range(3) for n in range(k * 1000, k * 1000 + 300)]
    assert sorted(came["out"]) == [n * 2 for n in numbers]
    assert sorted(came["counts"]) == [(n, 1) for n in numbers]


@each_number_of_workers
def test_a_branch_splits_a_stream_in_two(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("branch")
    yes, no = topology.source("numbers", range(-20, 20)).branch("positive", positive, parallelism=2)
    yes.sink("yes")
    no.sink("no")
    came = run_topology(topology, workers)
    assert sorted(came["yes"]) == list(range(1, 20))
    assert sorted(came["no"]) == list(range(-20, 1))


@each_number_of_workers
def test_side_outputs_go_to_those_who_ask_for_them(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("sides")
    stream = topology.source("numbers", range(100)).process(
        "sides", parts.Sides, outputs=("odd", "three", "never"), parallelism=2
    )
    stream.sink("out")
    stream.output("odd").sink("odd", parallelism=2)
    stream.output("three").key_by("n").count("count", parallelism=2).sink("three")
    came = run_topology(topology, workers)
    assert sorted(came["out"]) == list(range(100))
    assert sorted(came["odd"]) == list(range(1, 100, 2))
    assert sorted(came["three"]) == [(n, 1) for n in range(0, 100, 3)]


@each_number_of_workers
def test_spouts_emit_until_they_say_end(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("spout")
    spout = topology.spout("down", parts.Countdown(60), parallelism=2, outputs=("even",))
    spout.sink("out")
    spout.output("even").sink("even")
    came = run_topology(topology, workers)
    assert sorted(came["out"]) == sorted((task, n) for task in (0, 1) for n in range(1, 61))
    assert sorted(came["even"]) == sorted([*range(2, 61, 2)] * 2)


def test_a_bolt_lives_from_open_to_end_and_knows_who_it_is(run_topology: RunTopology) -> None:
    topology = Topology("life")
    topology.source("s", ["x"]).grouped(All()).process(
        "step", parts.Life, parallelism=2, config={"colour": "red"}
    ).sink("out")
    came = run_topology(topology, 2)["out"]
    for task in (0, 1):
        assert f"open life step {task}/2 red" in came
    assert Counter(line.split()[0] for line in came) == {"open": 2, "process": 2, "end": 2}


@each_number_of_workers
def test_a_diamond_gives_both_ways(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("diamond")
    source = topology.source("numbers", range(100), parallelism=2)
    left, right = source.map("left", double, parallelism=2), source.map("right", str, parallelism=3)
    left.merge("both", right).sink("out", parallelism=2)
    wanted: Counter[Any] = Counter([n * 2 for n in range(100)]) + Counter([str(n) for n in range(100)])
    assert Counter(run_topology(topology, workers)["out"]) == wanted


@each_number_of_workers
def test_a_bounded_source_loses_nothing(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("pending")
    source = topology.source("numbers", range(500), parallelism=2, max_pending=3)
    source.grouped(Key()).map("double", double, parallelism=2).sink("out")
    assert sorted(run_topology(topology, workers)["out"]) == [n * 2 for n in range(500)]


@each_number_of_workers
def test_small_windows_lose_nothing(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("window")
    words = topology.source("numbers", range(300), parallelism=2).flat_map("many", parts_of, parallelism=2)
    words.key_by("n").count("count", parallelism=3).sink("out")
    came = run_topology(topology, workers, batch__max_tuples=3, batch__window=2)["out"]
    assert Counter(key for key, _ in came) == Counter(part for n in range(300) for part in parts_of(n))


def parts_of(number: int) -> list[int]:
    return [number, number // 2, number // 3, -number]


@each_number_of_workers
def test_blocking_steps_run_on_threads_of_their_own_and_keep_order(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("blocking")
    stream = topology.source("numbers", range(200)).process("nap", parts.OnThread, blocking=True)
    stream.process("plain", parts.OnThread).grouped(Global()).sink("out")
    came = run_topology(topology, workers)["out"]
    assert [number for (number, _), _ in came] == list(range(200))
    assert {thread for (_, thread), _ in came} == {"rstream nap#0"}
    assert "rstream nap#0" not in {thread for _, thread in came}
