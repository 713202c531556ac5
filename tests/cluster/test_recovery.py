"""Exact results although workers are killed: real processes, real SIGKILL, compared with a count of the input."""

from __future__ import annotations

import collections
import ctypes
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from rstream import Bolt, Topology, submit
from rstream.client import Handle
from rstream.clock import sleep
from rstream.operators import sinks, sources
from tests.cluster.gated import Gated
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")

WORDS = [f"word{n}" for n in range(50)]
LINES = 12_000


def line(n: int) -> str:
    return " ".join(WORDS[(n * step) % len(WORDS)] for step in (1, 7, 11, 13))


def counting(name: str, gate: Path, tasks: tuple[int, ...] = (2, 3, 3, 2)) -> Topology:
    topology = Topology(name, backup={"interval_s": 0.3})
    lines = topology.source("lines", Gated(line, 500.0, LINES, gate), parallelism=tasks[0])
    words = lines.flat_map("split", str.split, parallelism=tasks[1])
    counts = words.key_by("word").count("count", parallelism=tasks[2])
    counts.key_by("key", _first).sink("out", sinks.Latest(), parallelism=tasks[3])
    return topology


def _first(pair: Any) -> Any:
    return pair[0]


def truth() -> dict[str, int]:
    return dict(collections.Counter(word for n in range(LINES) for word in line(n).split()))


def flowing(handle: Handle, emitted: int) -> bool:
    status = handle.status()
    return bool(status["emitted"] > emitted and status["healed"])


def hosts(handle: Handle) -> dict[str, int]:
    return {worker["id"]: worker["pid"] for worker in handle.status()["workers"] if worker["tasks"]}


def measured(handle: Handle, worker: str) -> bool:
    """Whether `status` says what each phase of the recovery of a worker took."""
    phases = ("start_s", "fetch_s", "decode_s", "load_s", "restore_s", "replay_s")
    found = [each for each in handle.status()["recoveries"] if each["worker"] == worker]
    return bool(found) and all(found[-1][phase] is not None for phase in phases)


def test_counts_are_exact_although_workers_are_killed_and_the_others_live_on(gate: Path) -> None:
    handle = submit(counting("killed", gate), workers=4, spares=1, folder="")
    chance = random.Random(7)
    for kill in range(3):
        wait_until(lambda: flowing(handle, 300), "tuples to flow with backups in place", timeout_s=90)
        before = hosts(handle)
        victim = chance.choice(sorted(before))
        os.kill(before[victim], signal.SIGKILL)
        wait_until(lambda k=kill: handle.status()["restarts"] == k + 1, "the death to be noticed")  # type: ignore[misc]
        wait_until(lambda v=victim: v not in hosts(handle), "a spare to take over")  # type: ignore[misc]
        after = hosts(handle)
        assert {name: pid for name, pid in before.items() if name != victim}.items() <= after.items()
        wait_until(lambda v=victim: measured(handle, v), "the phases of the recovery to be known")  # type: ignore[misc]
    gate.touch()
    assert handle.wait(90) == "FINISHED"
    assert dict(handle.results("out")) == truth()
    over(handle)


class Numbered(Bolt):
    """Its output depends on the order in which its inputs arrive."""

    def __init__(self) -> None:
        self.seen = 0

    def open(self, ctx: Any) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Any) -> None:
        self.seen += 1
        out.emit((self.ctx.task, self.seen, value, self.ctx.now()))

    def snapshot(self) -> Any:
        return self.seen

    def restore(self, snapshot: Any) -> None:
        self.seen = snapshot


def test_two_observers_of_an_interleaving_agree_across_kills(gate: Path) -> None:
    from rstream import groupings

    topology = Topology("observed", backup={"interval_s": 0.3})
    left = topology.source("a", Gated(_tagged_a, 800.0, 3000, gate))
    right = topology.source("b", Gated(_tagged_b, 800.0, 3000, gate))
    both = left.merge("both", right).grouped(groupings.Shuffle()).process("number", Numbered(), parallelism=2)
    both.grouped(groupings.All()).sink("one")
    both.grouped(groupings.All()).sink("two")
    handle = submit(topology, workers=3, spares=1, folder="")
    wait_until(lambda: flowing(handle, 500), "tuples to flow with backups in place", timeout_s=90)
    victim = next(w for w in handle.status()["workers"] if "number#1" in w["tasks"])
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: handle.status()["restarts"] == 1, "the death to be noticed")
    gate.touch()
    assert handle.wait(90) == "FINISHED"
    one, two = sorted(handle.results("one")), sorted(handle.results("two"))
    assert one == two
    assert sorted(value for _, _, value, _ in one) == sorted(
        [_tagged_a(n) for n in range(3000)] + [_tagged_b(n) for n in range(3000)]
    )
    for task in (0, 1):
        numbers = [seen for number, seen, _, _ in one if number == task]
        assert numbers == list(range(1, len(numbers) + 1))
    over(handle)


class Blocked(Bolt):
    """Keeps its worker's only data thread for twice as long as any lease."""

    def process(self, value: Any, out: Any) -> None:
        if value == 100:
            sleep(20)
        out.emit(value)


class Hoarding(Bolt):
    """Keeps the interpreter from every thread of its process, as a library does that never lets go of it: nothing is
    heard of its worker for that long."""

    def process(self, value: Any, out: Any) -> None:
        if value == 100:
            ctypes.PyDLL(None).sleep(20)
        out.emit(value)


@pytest.mark.long
@pytest.mark.parametrize("bolt", [Blocked, Hoarding])
def test_a_bolt_that_blocks_for_20_s_is_never_taken_for_dead(bolt: type[Bolt]) -> None:
    topology = Topology("blocked", backup={"interval_s": 0.3})
    numbers = topology.source("numbers", sources.Rate(int, per_s=500, limit=1000))
    numbers.process("block", bolt()).sink("out")
    handle = submit(topology, workers=3, spares=1, folder="", lease_s=5.0)
    assert handle.wait(120) == "FINISHED"
    assert handle.status()["restarts"] == 0
    assert handle.results("out") == list(range(1000))
    over(handle)


def _tagged_a(n: int) -> str:
    return f"a{n}"


def _tagged_b(n: int) -> str:
    return f"b{n}"
