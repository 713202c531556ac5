"""One Ray cluster of two nodes on this machine, for all tests of a run that need one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class TwoNodes:
    """The running cluster."""

    address: str


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[TwoNodes]:
    """The cluster, started when the first test asks for it; this process is connected to it."""
    import ray  # unit tests do not pay for it
    from ray.cluster_utils import Cluster

    from rstream.runtime import cluster as ray_cluster

    ray_cluster.settings()
    # Workers import the tests' own classes, and rstream from this checkout.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    ray_cluster.connect(cluster.address)
    yield TwoNodes(cluster.address)
    ray.shutdown()
    cluster.shutdown()
