"""Delivery at least once on real processes: a killed worker loses nothing, and tuples may come twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rstream import Topology, submit
from rstream.errors import UsageError
from rstream.operators import sinks
from tests.cluster.gated import Gated
from tests.cluster.test_recovery import flowing, hosts
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")

NUMBERS = 4000


def test_a_killed_worker_loses_nothing_with_delivery_at_least_once(gate: Path) -> None:
    topology = Topology("twice", backup={"interval_s": 0.3})
    numbers = topology.source("numbers", Gated(int, 500.0, NUMBERS, gate), parallelism=2)
    numbers.map("same", int, parallelism=3).sink("out", sinks.Collect(), parallelism=2)
    handle = submit(topology, workers=3, spares=1, folder="", delivery="at_least_once")
    with pytest.raises(UsageError, match="at_least_once, and cannot change while it runs"):
        handle.rebalance({"same": 2})
    wait_until(lambda: flowing(handle, 300), "tuples to flow with backups in place", timeout_s=90)
    os.kill(sorted(hosts(handle).items())[0][1], signal.SIGKILL)
    wait_until(lambda: handle.status()["restarts"] == 1, "the death to be noticed")
    gate.touch()
    assert handle.wait(90) == "FINISHED"
    found = handle.results("out")
    assert set(found) == set(range(NUMBERS))
    assert len(found) >= NUMBERS
    over(handle)
