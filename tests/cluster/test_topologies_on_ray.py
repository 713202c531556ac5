"""Topologies on a cluster of two nodes: tiers, code shipping, steering, and the coordinator's death."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from rstream import Bolt, Topology, connect, submit
from rstream.client import Handle
from rstream.errors import ClusterError, OperatorError, UsageError, ValueNotSupported
from rstream.operators import sinks, sources
from rstream.runtime.coordinator_actor import find_coordinator
from tests.deadline import wait_until

Cli = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.usefixtures("two_nodes")


def word_count(name: str, lines: list[str], parallelism: int = 2) -> Topology:
    topology = Topology(name)
    (
        topology.source("lines", lines, parallelism=parallelism)
        .flat_map("split", str.split, parallelism=parallelism)
        .key_by("word")
        .count("count", parallelism=parallelism)
        .sink("out", sinks.Latest())
    )
    return topology


def endless(name: str, per_s: float = 500.0) -> Topology:
    topology = Topology(name)
    numbers = topology.source("numbers", sources.Rate(lambda n: n, per_s=per_s), parallelism=2)
    numbers.key_by("parity", lambda n: n % 7).count("count", parallelism=2).sink("out", sinks.Latest())
    return topology


def over(handle: Handle) -> None:
    if handle.status()["state"] in ("ACTIVE", "INACTIVE", "REBALANCING"):
        handle.kill()
    wait_until(lambda: not [w for w in handle.status()["workers"] if alive(w["pid"])], "workers to end")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return pid > 0


def test_word_count_uses_all_three_tiers_and_counts_right() -> None:
    lines = [f"the quick word{n % 97} jumps over word{n % 13}" for n in range(5_000)]
    handle = submit(word_count("tiers", lines, parallelism=4), workers=4, folder="")
    assert handle.wait(60) == "FINISHED"
    assert dict(handle.results("out")) == collections.Counter(word for line in lines for word in line.split())
    status = handle.status()
    assert {edge["tier"] for edge in status["edges"]} == {"thread", "process", "node"}
    assert len({worker["node"] for worker in status["workers"]}) == 2
    assert status["emitted"] == status["acked"] == 5_000
    over(handle)


def test_two_drivers_that_exit_leave_two_topologies_with_their_own_helpers(rstream: Cli, tmp_path: Path) -> None:
    for name, factor in (("doubled", 2), ("tripled", 3)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "helpers.py").write_text(f"def scale(n):\n    return n * {factor}\n")
        (folder / "job.py").write_text(
            "from rstream import Topology\nimport helpers\n"
            f"def build():\n    topology = Topology({name!r})\n"
            "    topology.source('n', list(range(100))).map('scale', helpers.scale, parallelism=2).sink('out')\n"
            "    return topology\n"
        )
        done = rstream("submit", "job.py", cwd=folder)
        assert done.returncode == 0, done.stderr
    for name, factor in (("doubled", 2), ("tripled", 3)):
        handle = connect(name)
        assert handle.wait(60) == "FINISHED"
        assert sorted(handle.results("out")) == [n * factor for n in range(100)]
    listed = json.loads(rstream("list", "--json").stdout)
    assert {line["name"]: line["state"] for line in listed}.items() >= {
        "doubled": "FINISHED",
        "tripled": "FINISHED",
    }.items()


def test_workers_do_not_notice_the_death_of_the_coordinator() -> None:
    handle = submit(endless("orphaned"), workers=2, folder="")
    wait_until(lambda: handle.status()["emitted"] > 100, "tuples to flow")
    wait_until(lambda: all(worker["pid"] for worker in handle.status()["workers"]), "the spare to be there too")
    before = {worker["id"]: worker["pid"] for worker in handle.status()["workers"]}
    pid = coordinator_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the coordinator to die")
    emitted = wait_until(lambda: handle.status()["emitted"], "the coordinator to know the counters again")
    assert {worker["id"]: worker["pid"] for worker in handle.status()["workers"]} == before
    assert coordinator_pid() != pid
    wait_until(lambda: handle.status()["emitted"] > emitted, "tuples to flow on")
    assert handle.status()["state"] == "ACTIVE"
    over(handle)


def coordinator_pid() -> int:
    actor = find_coordinator()
    return int(ray.get(actor.__ray_call__.remote(_pid)))


def _pid(_: Any) -> int:
    return os.getpid()


def test_deactivate_stops_the_sources_and_activate_goes_on() -> None:
    handle = submit(endless("paused"), workers=2, folder="")
    wait_until(lambda: handle.status()["emitted"] > 0, "tuples to flow")
    handle.deactivate()
    assert handle.status()["state"] == "INACTIVE"

    def stands_still() -> bool:
        status = handle.status()
        source, sink = status["operators"][0], status["operators"][-1]
        return bool(source["rate"] == 0.0 and sink["processed"] == source["emitted"])

    wait_until(stands_still, "the sources to stand still with everything processed")
    emitted = handle.status()["emitted"]
    handle.activate()
    wait_until(lambda: handle.status()["emitted"] > emitted, "tuples to flow again")
    over(handle)


def test_kill_with_drain_processes_everything_first() -> None:
    handle = submit(endless("drained", per_s=3000), workers=2, folder="")
    wait_until(lambda: handle.status()["emitted"] > 500, "tuples to flow")
    handle.kill(drain=True)
    assert handle.wait(30) == "KILLED"
    status = handle.status()
    assert status["emitted"] == sum(count for _, count in handle.results("out"))
    over(handle)


def test_rebalance_gives_the_new_parallelism() -> None:
    lines = ["a b c"] * 1000
    handle = submit(endless("wider"), workers=2, folder="")
    wait_until(lambda: handle.status()["state"] == "ACTIVE", "the topology to run")
    handle.rebalance({"count": 3})
    wait_until(lambda: handle.status()["state"] == "ACTIVE", "the topology to run again")
    operators = {operator["name"]: operator for operator in handle.status()["operators"]}
    assert operators["count"]["parallelism"] == 3
    with pytest.raises(UsageError, match="no step 'cuont'; its steps: numbers, count, out"):
        handle.rebalance({"cuont": 3})
    with pytest.raises(UsageError, match="between 1 and"):
        handle.rebalance({"count": 0})
    with pytest.raises(ClusterError, match="already active"):
        submit(word_count("wider", lines), folder="")
    over(handle)
    with pytest.raises(UsageError, match="nothing to rebalance"):
        handle.rebalance({"count": 2})


class Breaks(Bolt):
    """Fails on one value."""

    def process(self, value: Any, out: Any) -> None:
        if value == 7:
            raise ZeroDivisionError("seven is not allowed")
        out.emit(value)


def test_an_exception_on_a_worker_reaches_the_driver_with_step_task_node_and_traceback() -> None:
    topology = Topology("breaks")
    topology.source("n", list(range(10))).process("break", Breaks()).sink("out")
    handle = submit(topology, folder="")
    with pytest.raises(OperatorError) as caught:
        handle.wait(60)
    assert (caught.value.step, caught.value.task) == ("break", 0)
    assert "seven is not allowed" in str(caught.value)
    assert "in process" in caught.value.traceback
    assert caught.value.node in {node["NodeID"] for node in ray.nodes()}
    assert handle.status()["state"] == "FAILED"
    assert "seven is not allowed" in handle.errors()[-1]["error"]
    over(handle)


def test_a_failing_tuple_goes_to_the_dead_letters_when_asked() -> None:
    topology = Topology("letters", on_error="dead_letter")
    checked = topology.source("n", list(range(10))).process("break", Breaks())
    checked.sink("out")
    checked.dead_letters.sink("dead")
    handle = submit(topology, folder="")
    assert handle.wait(60) == "FINISHED"
    assert handle.results() == {"out": [n for n in range(10) if n != 7], "dead": [7]}
    assert handle.status()["failed"] == 1
    over(handle)


class Unsendable:
    """A class that no codec knows."""


def test_a_value_that_cannot_travel_stops_the_topology_and_names_step_and_type() -> None:
    topology = Topology("unsendable")
    topology.source("n", [1]).map("wrap", lambda n: Unsendable()).sink("out")
    with pytest.raises(OperatorError, match=r"step 'wrap'.*Unsendable cannot travel"):
        submit(topology, folder="").wait(60)
    assert issubclass(ValueNotSupported, Exception)


def test_two_workers_exchange_large_batches_both_ways_without_stalling() -> None:
    topology = Topology("large")
    big = topology.source("big", sources.Rate(_large, per_s=1e6, limit=12), parallelism=2)
    back = big.key_by("there", lambda blob: (blob[0] + 1) % 251).map("forth", _same, parallelism=2)
    back.key_by("here", lambda blob: blob[0]).map("size", len, parallelism=2).sink("out")
    handle = submit(topology, workers=2, folder="")
    assert handle.wait(90) == "FINISHED"
    assert handle.results("out") == [8 << 20] * 12
    over(handle)


def _large(n: int) -> bytes:
    return bytes([n % 251]) * (8 << 20)


def _same(blob: bytes) -> bytes:
    return blob


class Sleepy(Bolt):
    """Blocks for a while, as a slow service would."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def process(self, value: Any, out: Any) -> None:
        import time

        time.sleep(self.seconds)
        out.emit(value)


def sleepy(name: str, seconds: float, blocking: bool) -> Topology:
    topology = Topology(name, slow_call_ms=500)
    topology.source("slow", [1]).process("sleep", Sleepy(seconds), blocking=blocking).sink("slept")
    topology.source("fast", sources.Rate(lambda n: n, per_s=200)).map("same", abs).sink("out", sinks.Discard())
    return topology


def test_a_blocking_bolt_marked_so_delays_nobody_and_control_answers_at_once() -> None:
    handle = submit(sleepy("marked", 10.0, blocking=True), workers=1, spares=0, folder="")
    wait_until(lambda: handle.status()["emitted"] > 400, "tuples to flow past the sleeping bolt", timeout_s=9)
    [worker] = handle.status()["workers"]
    actor = ray.get_actor(worker["id"], namespace="rstream")
    assert ray.get(actor.ping.remote(), timeout=0.1 + 2.0) < 0.6
    assert handle.status()["p99_ms"] < 100
    assert handle.errors() == []
    over(handle)


def test_a_blocking_bolt_not_marked_is_named_by_errors() -> None:
    handle = submit(sleepy("unmarked", 1.5, blocking=False), workers=1, spares=0, folder="")
    errors = wait_until(handle.errors, "the slow call to be named")
    assert errors[0]["step"] == "sleep"
    assert "blocking=True" in errors[0]["error"]
    over(handle)
