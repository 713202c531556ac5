"""A node whose end was announced is left by everything that runs there, on a real third node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from rstream import submit
from tests.cluster.conftest import TwoNodes
from tests.cluster.test_control import acts
from tests.cluster.test_recovery import counting, flowing, truth
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.long
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]


def alive() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


@pytest.fixture
def third_node(two_nodes: TwoNodes) -> Iterator[str]:
    """A further node of the shared cluster, by its id; it is gone after the test."""
    before = alive()
    start = [*RAY, "start", "--address", two_nodes.address, "--num-cpus", "2", "--block"]
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: alive() - before, "the third node")
        (node,) = alive() - before
        yield node
    finally:
        process.terminate()
        process.wait(60)
        wait_until(lambda: alive() == before, "the third node to be gone")


def test_a_drained_node_is_left_under_any_policy_and_counts_stay_exact(
    third_node: str, two_nodes: TwoNodes, gate: Path
) -> None:
    handle = submit(counting("drained", gate), policy="static", workers=3, spares=1, folder="")
    wait_until(lambda: flowing(handle, 300), "tuples to flow with backups in place")

    def there() -> list[str]:
        return [
            task for worker in handle.status()["workers"] if worker["node"] == third_node for task in worker["tasks"]
        ]

    assert there()
    notice = (
        "--reason",
        "DRAIN_NODE_REASON_PREEMPTION",
        "--reason-message",
        "test",
        "--deadline-remaining-seconds",
        "600",
    )
    drain = [*RAY, "drain-node", "--address", two_nodes.address, "--node-id", third_node, *notice]
    subprocess.run(drain, check=True, capture_output=True, timeout=60)
    wait_until(lambda: not there(), "the tasks to leave")
    wait_until(lambda: [each for each in acts(handle, "move") if each["policy"] == "evacuation"], "it to be done")
    assert handle.status()["restarts"] == 0
    gate.touch()
    assert handle.wait(120) == "FINISHED"
    assert dict(handle.results("out")) == truth()
    over(handle)
