"""One property of all tiers and hosts: values arrive as they were sent, and equal keys meet in the same task."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rstream import Topology
from rstream.keys import slot_of
from tests import samples
from tests.behaviour import parts
from tests.behaviour.conftest import RunTopology, run_embedded

EXAMPLES = 40
TASKS = 3
numbers = st.one_of(st.integers(-3, 3), st.integers(-3, 3).map(float), st.booleans(), st.integers(-(2**70), 2**70))
keys = st.one_of(numbers, samples.atoms, st.tuples(numbers, st.text(max_size=2)), st.frozensets(numbers, max_size=3))


@functools.cache
def made() -> list[tuple[int, Any, Any]]:
    """(number, key, value) as Hypothesis makes them, in one run; each key three times, for tasks in three places."""
    found: list[tuple[Any, Any]] = []

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(keys, samples.anything)
    def collect(key: Any, value: Any) -> None:
        found.append((key, value))

    collect()
    thrice = [pair for pair in found for _ in range(TASKS)]
    return [(number, key, value) for number, (key, value) in enumerate(thrice)]


def topology() -> Topology:
    """From every task of one step to every task of the next, by key."""
    whole = Topology("everything")
    tagged = whole.source("made", made(), parallelism=TASKS).process("from", parts.Tag, parallelism=TASKS)
    tagged.key_by("key", parts.key_of_tagged).process("to", parts.Tag, parallelism=TASKS).sink("out")
    return whole


def test_embedded_thread_process_and_node_give_the_same_values_at_the_same_tasks(run_topology: RunTopology) -> None:
    came = run_topology(topology(), TASKS)
    here = {number: to for to, (_, (number, _, _)) in run_embedded(topology())["out"]}
    assert len(came["out"]) == len(made()) >= EXAMPLES * TASKS
    tasks: dict[int, set[int]] = {}
    for to, (_, (number, key, value)) in came["out"]:
        assert samples.same((number, key, value), made()[number])
        assert to == here[number], f"key {key!r} came to another task than on the embedded host"
        tasks.setdefault(slot_of(key), set()).add(to)
    assert all(len(each) == 1 for each in tasks.values()), "equal keys have one slot, and a slot has one task"
    ways = {(start, to) for to, (start, _) in came["out"]}
    assert ways == {(start, to) for start in range(TASKS) for to in range(TASKS)}, "tuples went every way"
    tiers = {
        (edge["from"], edge["to"]): edge["tier"] for edge in came.status["edges"] if edge["from"].startswith("from#")
    }
    nodes = {worker["node"] for worker in came.status["workers"]}
    assert set(tiers.values()) == ({"thread", "process", "node"} if len(nodes) > 1 else {"thread", "process"})
    assert all((tier == "thread") == (ends[0][-1] == ends[1][-1]) for ends, tier in tiers.items())
