"""Windows on real processes: open ones move with their keys when tasks change, and come back after a SIGKILL."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rstream import Topology, submit
from rstream.event_time import EventTime
from rstream.operators.windows import Sliding, Tumbling
from tests.cluster.gated import Gated
from tests.cluster.test_recovery import flowing
from tests.cluster.test_rescale import changed
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")

EVENTS = 6_000
SIZE_S, STEP_S = 900, 300


def event(n: int) -> tuple[str, int]:
    """(key, seconds): a second for each event, in pairs that come in the wrong order."""
    return f"key{n * 7 % 40}", n ^ 1


def at_s(value: Any) -> int:
    return int(value[1])


def key_of(value: Any) -> Any:
    return value[0]


def end_of(row: Any) -> Any:
    return row[2]


def number_of(row: Any) -> Any:
    return row[3]


def windows(gate: Path) -> Topology:
    """Counts by key and sliding window; and how many values all keys have together, as a window over those rows."""
    topology = Topology("windows", backup={"interval_s": 0.3})
    stamp = EventTime(at_s, delay_s=5, every_s=0.05)
    source = topology.source("events", Gated(event, 500.0, EVENTS, gate), parallelism=2, event_time=stamp)
    counts = source.key_by("key", key_of).window(Sliding(SIZE_S, STEP_S), time=at_s).count("count", parallelism=2)
    counts.sink("counts")
    counts.output("late").sink("late")
    counts.window(Tumbling(STEP_S), time=end_of).sum("all", of=number_of).sink("totals")
    return topology


def test_windows_are_exact_across_a_kill_and_rescales_inside_them(gate: Path) -> None:
    handle = submit(windows(gate), workers=3, spares=1, folder="")
    wait_until(lambda: flowing(handle, 600), "windows to be open, with backups", timeout_s=120)
    handle.rebalance({"count": 5})
    wait_until(lambda: changed(handle), "five tasks to own the keys", timeout_s=90)
    wait_until(lambda: handle.status()["healed"], "backups of the new tasks", timeout_s=90)
    victim = next(worker for worker in handle.status()["workers"] if "count#4" in worker["tasks"])
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: handle.status()["restarts"] == 1 and changed(handle), "the recovery", timeout_s=90)
    handle.rebalance({"count": 1})
    gate.touch()
    assert handle.wait(180) == "FINISHED"

    wanted: Counter[tuple[str, int]] = Counter()
    for key, at in map(event, range(EVENTS)):
        for start in range(at // STEP_S * STEP_S, at - SIZE_S, -STEP_S):
            wanted[key, start] += 1
    results = handle.results()
    assert sorted(results["counts"]) == sorted((key, start, start + SIZE_S, n) for (key, start), n in wanted.items())
    assert results["late"] == []
    totals: Counter[int] = Counter()
    for (_, start), n in wanted.items():
        totals[start + SIZE_S] += n
    assert sorted(results["totals"]) == sorted((end, end + STEP_S, n) for end, n in totals.items())
    over(handle)
