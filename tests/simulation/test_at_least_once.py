"""Delivery at least once, in virtual time: seeded crashes lose nothing, though no order of steps is written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rstream import Topology
from rstream.core.channel import OutChannel
from rstream.groupings import All
from rstream.lab.fault_topologies import CountKeys, Number, Workload, key_of
from rstream.lab.faults import Outcome, Schedule
from rstream.operators import sinks

SEEDS = range(40)
TUPLES = 150


class AtLeastOnce(Schedule):
    """A schedule of a topology whose crashes may double tuples."""

    exact = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed, workload=workload())


def workload() -> Workload:
    topology = Topology("again")
    left = topology.source("s0", [("s0", index) for index in range(TUPLES)], parallelism=2)
    right = topology.source("s1", [("s1", index) for index in range(TUPLES)])
    numbered = topology.merge("merge", left, right).process("number", Number(), parallelism=2)
    numbered.key_by("key", key_of).process("count", CountKeys(), parallelism=3).sink("counts", parallelism=2)
    numbered.grouped(All()).sink("seen", sinks.Collect())
    return Workload(topology.build(), nothing_lost)


def nothing_lost(results: Mapping[str, list[Any]]) -> str:
    wanted = {(source, index) for source in ("s0", "s1") for index in range(TUPLES)}
    lost = wanted - {item[0] for item in results.get("seen", [])}
    counted = sum(1 for _ in results.get("counts", []))
    if lost:
        return f"lost {len(lost)} of {len(wanted)}"
    return "" if counted >= len(wanted) else f"{counted} of {len(wanted)} were counted"


def run(seed: int) -> tuple[Outcome, AtLeastOnce]:
    schedule = AtLeastOnce(seed)
    return schedule.run(), schedule


def test_nothing_is_lost_and_some_tuples_come_twice() -> None:
    doubled = 0
    for seed in SEEDS:
        outcome, schedule = run(seed)
        assert outcome.exact, f"seed {seed}: {outcome.verdict}"
        doubled += len(schedule.results["seen"]) > 2 * TUPLES
        assert not any(
            task.log.records for each in schedule.workers.values() if each.machine for task in each.machine.tasks
        )
    assert doubled > 3, "crashes should have doubled something somewhere"


def lost_somewhere() -> bool:
    for seed in range(200):
        try:
            if not run(seed)[0].exact:
                return True
        except AssertionError:
            return True
    return False


def test_offsets_that_the_receiver_takes_for_known_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OutChannel, "_skip_to", lambda self, received: None)
    assert lost_somewhere()
