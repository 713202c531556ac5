"""One behavioural suite for every host: `run_topology(topology, workers=n, **settings)` gives what each sink got.

Without a number of workers a host takes its own: one where everything is one process, the everyday number on Ray.
"""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from rstream import Topology
from rstream.config import load
from rstream.runtime.embedded import Embedded
from tests.behaviour.on_ray import EVERYDAY_WORKERS, RayHost, Results
from tests.conftest import TwoNodes


class RunTopology(Protocol):
    """Runs a topology to its end; `settings` are configuration keys, with two underscores for dots."""

    def __call__(self, topology: Topology, workers: int | None = None, **settings: Any) -> Results: ...


def run_embedded(topology: Topology, workers: int | None = None, **settings: Any) -> Results:
    """On the embedded host, with its invariants checked at every turn."""
    graph = topology.build()
    flags = {key.replace("__", "."): value for key, value in settings.items()}
    host = Embedded(graph, load(graph.config, environment={}, flags=flags).config, workers or 1)

    def never() -> bool:
        host.validate()
        return False

    host.run(until=never)
    host.validate()
    sinks = [operator.name for operator in graph.operators if operator.kind == "sink"]
    return Results({name: host.results(name) for name in sinks}, host.status())


HOSTS = ("embedded", "ray")
"""Every host by its name; those after the first are marked `cluster`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a cluster the everyday run takes three workers; the other numbers are for the long one."""
    for item in items:
        given = item.callspec.params.get("workers", EVERYDAY_WORKERS) if hasattr(item, "callspec") else EVERYDAY_WORKERS
        if item.get_closest_marker("cluster") and given != EVERYDAY_WORKERS:
            item.add_marker(pytest.mark.long)


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.cluster] if name != "embedded" else []) for name in HOSTS]
)
def host(request: pytest.FixtureRequest) -> str:
    """The name of the host that the test runs on."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def ray_host(request: pytest.FixtureRequest, two_nodes: TwoNodes) -> RayHost:
    """The shared cluster, with most topologies of the suite already run on it."""
    return RayHost(list(request.session.items), run_embedded)


@pytest.fixture
def run_topology(host: str, request: pytest.FixtureRequest) -> RunTopology:
    """Runs a topology on the host."""
    if host == "embedded":
        return run_embedded
    ray_host: RayHost = request.getfixturevalue("ray_host")
    return ray_host.run_of(request.node.nodeid)
