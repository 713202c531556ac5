"""The behavioural suite on Ray: the shared cluster, and most topologies of the suite together as one.

Starting two processes for each of some sixty topologies would take minutes. So before the first test asks, each one is
tried on the embedded host to see which topologies it runs; those that run to their end there with no setting of their
own become parts of one large topology, which is submitted once. The tests then get their part of what came out. A test
that wants a failure, a setting or its own name has a submission for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rstream import Topology, submit
from rstream.graph import Graph

Results = dict[str, list[Any]]
Run = Callable[..., Results]

KNOW_THEIR_NAMES = {
    "test_a_bolt_lives_from_open_to_end_and_knows_who_it_is",
    "test_blocking_steps_run_on_threads_of_their_own_and_keep_order",
}
WORKERS = 2
END_TIMEOUT_S = 120.0


class RayHost:
    """Runs topologies on the cluster that this process is connected to."""

    def __init__(self, items: list[pytest.Item], run_embedded: Run) -> None:
        self._together: dict[str, list[Results]] = {}
        self._alone = 0
        parts: dict[str, list[Graph]] = {}
        for item in items:
            graphs = _tried(item, run_embedded)
            if graphs:
                parts[item.nodeid] = graphs
        if parts:
            self._run_together(parts)

    def run_of(self, test: str) -> Run:
        """The `run_topology` of one test."""
        prepared = iter(self._together.get(test, ()))

        def run(topology: Topology, workers: int = 1, **settings: Any) -> Results:
            found = next(prepared, None)
            return self._run_alone(topology, workers, settings) if found is None else found

        return run

    def _run_alone(self, topology: Topology, workers: int, settings: dict[str, Any]) -> Results:
        self._alone += 1
        graph = topology.build()
        flags = {key.replace("__", "."): value for key, value in settings.items()}
        name = graph.name if graph.name == "life" else f"{graph.name}-{self._alone}"
        handle = submit(replace(graph, name=name), workers=workers, spares=0, folder="", **flags)
        handle.wait(END_TIMEOUT_S)
        found = handle.results()
        return {operator.name: found.get(operator.name, []) for operator in graph.operators if operator.kind == "sink"}

    def _run_together(self, parts: dict[str, list[Graph]]) -> None:
        numbered = [(test, graph) for test, graphs in parts.items() for graph in graphs]
        whole = [_renamed(graph, number) for number, (_, graph) in enumerate(numbered)]
        merged = Graph(
            "behaviour",
            tuple(operator for graph in whole for operator in graph.operators),
            tuple(edge for graph in whole for edge in graph.edges),
        )
        handle = submit(merged, workers=WORKERS, spares=0, folder="")
        handle.wait(END_TIMEOUT_S)
        found = handle.results()
        for number, (test, graph) in enumerate(numbered):
            sinks = [operator.name for operator in graph.operators if operator.kind == "sink"]
            results = {name: found.get(_name(name, number), []) for name in sinks}
            self._together.setdefault(test, []).append(results)


def _tried(item: pytest.Item, run_embedded: Run) -> list[Graph]:
    """The topologies that a test runs; none where it has to run by itself."""
    function: Callable[..., None] = item.function  # type: ignore[attr-defined]
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("host") != "ray" or item.originalname in KNOW_THEIR_NAMES:  # type: ignore[attr-defined]
        return []
    arguments = {name: value for name, value in callspec.params.items() if name != "host"}
    graphs: list[Graph] = []
    by_itself = False

    def run(topology: Topology, workers: int = 1, **settings: Any) -> Results:
        nonlocal by_itself
        graph = topology.build()
        by_itself |= bool(settings or graph.config) or workers > WORKERS
        graphs.append(graph)
        return run_embedded(topology, workers, **settings)

    def run_and_fail(*given: Any, **settings: Any) -> Results:
        nonlocal by_itself
        try:
            return run(*given, **settings)
        except Exception:
            by_itself = True
            raise

    try:
        function(run_topology=run_and_fail, **arguments)
    except Exception:
        return []  # it fails where nothing is distributed: let it fail as itself
    return [] if by_itself else graphs


def _name(name: str, number: int) -> str:
    return f"{name} of {number}"


def _renamed(graph: Graph, number: int) -> Graph:
    return Graph(
        graph.name,
        tuple(replace(operator, name=_name(operator.name, number)) for operator in graph.operators),
        tuple(
            replace(edge, source=_name(edge.source, number), target=_name(edge.target, number)) for edge in graph.edges
        ),
    )
