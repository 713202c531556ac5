"""The replica pool: a loaded, idle replica takes part in milliseconds, brings a replica's worth, and loses nothing."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from rstream import client
from tests.cluster.conftest import TwoNodes
from tests.cluster.loads import chain, expected
from tests.cluster.test_control import acts
from tests.cluster.test_rescale import operator
from tests.deadline import wait_until

pytestmark = pytest.mark.cluster
WORK_MS = 20.0
PER_S = 1000.0 / WORK_MS
"""What one replica can do."""


def worker_of(handle: client.Handle, task: str) -> dict[str, Any]:
    """The worker that has a task."""
    return next(worker for worker in handle.status()["workers"] if task in worker["tasks"])


def measured_rate(handle: client.Handle, name: str, samples: int = 4) -> float:
    """Tuples that a step processed a second, over the newest whole samples of the monitor that begin after now."""
    first = len(handle.history())
    wait_until(lambda: len(handle.history()) > first + samples + 1, "samples of the monitor", timeout_s=60)
    lines = handle.history()[first + 1 : first + 1 + samples]
    processed: list[float] = [line["operators"][name]["processed"] for line in lines]
    return sum(processed) / samples


def test_activating_a_replica_adds_what_it_can_do_in_another_process(two_nodes: TwoNodes) -> None:
    topology = chain("pooled", 4 * PER_S, None, ms=WORK_MS, work=1, count=1, pools={"work": 1})
    handle = client.submit(topology, policy="static", workers=2)
    wait_until(lambda: operator(handle, "work")["processed"] > 0, "tuples to flow", timeout_s=90)
    assert (operator(handle, "work")["active"], operator(handle, "work")["pool"]) == (1, 1)
    idle = worker_of(handle, "work#1")
    assert idle["pid"] != worker_of(handle, "work#0")["pid"]
    process = psutil.Process(idle["pid"])
    cpu_s = sum(process.cpu_times()[:2])
    before = measured_rate(handle, "work")
    # Its loop wakes for reports and backups alone; a core would be four seconds of CPU.
    assert sum(process.cpu_times()[:2]) - cpu_s < 1.0, "an idle replica costs next to no CPU"
    handle.rebalance({"work": 2})
    wait_until(lambda: operator(handle, "work")["active"] == 2 and handle.state() == "ACTIVE", "the switch")
    after = measured_rate(handle, "work")
    assert before == pytest.approx(PER_S, rel=0.2)
    assert after - before >= 0.8 * PER_S
    handle.kill()


def test_psps_switches_replicas_on_and_off_with_the_load_and_drops_nothing(two_nodes: TwoNodes) -> None:
    phases = [(8.0, 60.0), (12.0, 220.0), (12.0, 30.0)]
    control = {"interval_s": 2.0, "parameters": {"benchmark_s": 2.0, "benchmark_sample_s": 1.0}}
    topology = chain("psps-live", phases, ms=WORK_MS, work=2, count=1, control=control)
    handle = client.submit(topology, policy="psps", workers=2)
    wait_until(lambda: handle.state() in ("ACTIVE", "REBALANCING"), "the topology to run", timeout_s=90)
    assert operator(handle, "work")["pool"] >= 2, "psps has a pool by default"
    assert operator(handle, "count")["pool"] == 0, "it does not scale keyed steps unless told to"
    assert handle.wait(240) == "FINISHED"
    assert dict(handle.results("out")) == expected(int(sum(seconds * per_s for seconds, per_s in phases)))
    assert handle.status()["failed"] == 0
    on, off = acts(handle, "activate"), acts(handle, "deactivate")
    assert on, [entry["steps"] for entry in handle.explain()]
    assert off, [entry["steps"] for entry in handle.explain()]
    assert all(step["kind"] != "load" for entry in on for step in entry["steps"]), "the pool was there already"
    assert min(step["took_s"] for entry in on for step in entry["steps"]) < 1.0
