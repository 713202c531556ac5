"""Who gets what, for every grouping, on one worker and on several."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rstream import Topology
from rstream.errors import RunError
from rstream.groupings import (
    All,
    Custom,
    Global,
    Grouping,
    Key,
    LoadBalanced,
    LocalOrShuffle,
    NoGrouping,
    PartialKey,
    Shuffle,
)
from tests.behaviour import parts
from tests.behaviour.conftest import RunTopology

WORDS = [f"word{n * n % 47:02}" + "x" * (n % 5) for n in range(600)]
RECEIVERS = 3

each_number_of_workers = pytest.mark.parametrize("workers", [1, 2, 3, 4])


def shared_out(run_topology: RunTopology, grouping: Grouping, workers: int) -> dict[int, list[str]]:
    """The words that each of three tasks got from two."""
    topology = Topology("grouping")
    words = topology.source("words", WORDS, parallelism=2)
    words.grouped(grouping).process("tag", parts.Tag, parallelism=RECEIVERS).sink("out")
    got: dict[int, list[str]] = {task: [] for task in range(RECEIVERS)}
    for task, word in run_topology(topology, workers)["out"]:
        got[task].append(word)
    return got


def everything(got: dict[int, list[str]]) -> Counter[str]:
    return Counter(word for words in got.values() for word in words)


@each_number_of_workers
@pytest.mark.parametrize("grouping", [Shuffle(), NoGrouping()], ids=lambda grouping: grouping.label)
def test_shuffle_gives_every_task_the_same_share(run_topology: RunTopology, grouping: Grouping, workers: int) -> None:
    got = shared_out(run_topology, grouping, workers)
    assert everything(got) == Counter(WORDS)
    assert [len(words) for words in got.values()] == [200, 200, 200]


@each_number_of_workers
@pytest.mark.parametrize("grouping", [LocalOrShuffle(), LoadBalanced()], ids=lambda grouping: grouping.label)
def test_every_tuple_goes_to_exactly_one_task(run_topology: RunTopology, grouping: Grouping, workers: int) -> None:
    assert everything(shared_out(run_topology, grouping, workers)) == Counter(WORDS)


@each_number_of_workers
def test_equal_keys_go_to_the_same_task(run_topology: RunTopology, workers: int) -> None:
    got = shared_out(run_topology, Key(), workers)
    assert everything(got) == Counter(WORDS)
    seen = [set(words) for words in got.values()]
    assert all(words for words in seen)
    assert sum(len(words) for words in seen) == len(set(WORDS))


@each_number_of_workers
def test_a_key_function_decides_what_equal_means(run_topology: RunTopology, workers: int) -> None:
    got = shared_out(run_topology, Key(len), workers)
    assert everything(got) == Counter(WORDS)
    lengths = [{len(word) for word in words} for words in got.values()]
    assert sum(map(len, lengths)) == len({len(word) for word in WORDS})


@each_number_of_workers
def test_a_partial_key_goes_to_two_tasks_at_most(run_topology: RunTopology, workers: int) -> None:
    got = shared_out(run_topology, PartialKey(len), workers)
    assert everything(got) == Counter(WORDS)
    for length in {len(word) for word in WORDS}:
        assert sum(any(len(word) == length for word in words) for words in got.values()) <= 2


def test_a_partial_key_evens_out_one_hot_key(run_topology: RunTopology) -> None:
    topology = Topology("skew")
    words = topology.source("words", ["hot"] * 300 + ["cold"] * 3)
    words.grouped(PartialKey()).process("count", parts.CountTask, parallelism=8).sink("out")
    counts = sorted(count for _, count in run_topology(topology, 3)["out"])
    assert sum(counts) == 303
    assert counts[-1] <= 160


@each_number_of_workers
def test_all_gives_every_tuple_to_every_task(run_topology: RunTopology, workers: int) -> None:
    got = shared_out(run_topology, All(), workers)
    assert [Counter(words) for words in got.values()] == [Counter(WORDS)] * RECEIVERS


@each_number_of_workers
def test_global_gives_every_tuple_to_the_first_task(run_topology: RunTopology, workers: int) -> None:
    got = shared_out(run_topology, Global(), workers)
    assert [Counter(words) for words in got.values()] == [Counter(WORDS), Counter(), Counter()]


@each_number_of_workers
def test_custom_gives_every_tuple_to_the_chosen_tasks(run_topology: RunTopology, workers: int) -> None:
    got = shared_out(run_topology, Custom(parts.by_length), workers)
    for task, words in got.items():
        assert Counter(words) == Counter(word for word in WORDS if len(word) % RECEIVERS == task)
    got = shared_out(run_topology, Custom(parts.to_first_and_last), workers)
    assert [Counter(words) for words in got.values()] == [Counter(WORDS), Counter(), Counter(WORDS)]
    got = shared_out(run_topology, Custom(parts.to_nobody), workers)
    assert everything(got) == Counter()


def test_custom_that_chooses_no_task_of_the_receivers_fails_with_the_step(run_topology: RunTopology) -> None:
    with pytest.raises(RunError, match=r"step 'words', task [01].*the custom grouping chose task 3 of 3"):
        shared_out(run_topology, Custom(parts.out_of_range), 1)


@each_number_of_workers
def test_direct_gives_every_tuple_to_the_named_task(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("direct")
    topology.source("pairs", [(n * 7 % 3, n) for n in range(300)], parallelism=2)
    topology.bolt("send", parts.SendDirect, parallelism=2).shuffle("pairs")
    topology.bolt("tag", parts.Tag, parallelism=RECEIVERS).direct("send").stream.sink("out")
    came = run_topology(topology, workers)["out"]
    assert sorted(came) == sorted((n * 7 % 3, (n * 7 % 3, n)) for n in range(300))


@each_number_of_workers
def test_a_spout_can_name_the_task_too(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("direct")
    topology.spout("numbers", parts.DirectSpout(100, 4))
    topology.bolt("tag", parts.Tag, parallelism=4).direct("numbers").stream.sink("out")
    assert sorted(run_topology(topology, workers)["out"]) == sorted((n % 4, n) for n in range(100))


def test_direct_to_a_task_that_does_not_exist_fails_with_the_step(run_topology: RunTopology) -> None:
    topology = Topology("direct")
    topology.source("pairs", [(3, "x")])
    topology.bolt("send", parts.SendDirect).shuffle("pairs")
    topology.bolt("tag", parts.Tag, parallelism=3).direct("send")
    with pytest.raises(RunError, match=r"step 'send', task 0.*emit_direct named task 3 of 3"):
        run_topology(topology)


# Exact word counts, against an independent count.

TEXT = [" ".join(WORDS[n : n + 9]) for n in range(0, 590, 3)]
COUNTS = Counter(" ".join(TEXT).split())


@each_number_of_workers
def test_word_counts_by_key_are_exact(run_topology: RunTopology, workers: int) -> None:
    topology = Topology("wordcount")
    words = topology.source("text", TEXT, parallelism=2).flat_map("split", str.split, parallelism=2)
    words.key_by("word").count("count", parallelism=3).sink("out")
    updates = run_topology(topology, workers)["out"]
    assert sorted(updates) == sorted((word, n) for word, total in COUNTS.items() for n in range(1, total + 1))


@each_number_of_workers
@pytest.mark.parametrize(
    "grouping",
    [Shuffle(), LocalOrShuffle(), NoGrouping(), Key(), PartialKey(), Global(), LoadBalanced(), Custom(parts.by_length)],
    ids=lambda grouping: grouping.label,
)
def test_counts_added_up_from_partial_counts_are_exact(
    run_topology: RunTopology, grouping: Grouping, workers: int
) -> None:
    topology = Topology("partial")
    words = topology.source("text", TEXT, parallelism=3).flat_map("split", str.split, parallelism=2)
    partial = words.grouped(grouping).process("partial", parts.CountWords, parallelism=3)
    partial.key_by("word", parts.first).process("total", parts.AddUp, parallelism=2).sink("out")
    totals: list[Any] = run_topology(topology, workers)["out"]
    assert sorted(totals) == sorted(COUNTS.items())


# The end of the stream.


@each_number_of_workers
@pytest.mark.parametrize(
    "grouping",
    [
        Shuffle(),
        LocalOrShuffle(),
        NoGrouping(),
        Key(),
        PartialKey(),
        All(),
        Global(),
        LoadBalanced(),
        Custom(parts.to_nobody),
    ],
    ids=lambda grouping: grouping.label,
)
@pytest.mark.parametrize("words", [[], ["one"]], ids=["nothing", "one"])
def test_every_task_sees_the_end_once_even_if_it_got_nothing(
    run_topology: RunTopology, grouping: Grouping, words: list[str], workers: int
) -> None:
    topology = Topology("end")
    stream = topology.source("words", words, parallelism=2).grouped(grouping)
    counts = stream.process("count", parts.CountTask, parallelism=4)
    counts.grouped(grouping).process("again", parts.CountTask, parallelism=2).sink("out")
    counts.sink("counts")
    came = run_topology(topology, workers)
    assert sorted(task for task, _ in came["counts"]) == [0, 1, 2, 3]
    assert sorted(task for task, _ in came["out"]) == [0, 1]


def test_the_end_passes_a_direct_grouping_too(run_topology: RunTopology) -> None:
    topology = Topology("end")
    topology.source("pairs", [(1, "x")])
    topology.bolt("send", parts.SendDirect).shuffle("pairs")
    topology.bolt("count", parts.CountTask, parallelism=3).direct("send").stream.sink("out")
    assert sorted(run_topology(topology, 3)["out"]) == [(0, 0), (1, 1), (2, 0)]
