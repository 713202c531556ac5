"""The behavioural suite on Ray: the shared cluster, and most topologies of the suite together as one.

Starting two processes for each of some sixty topologies would take minutes. So before the first test asks, each one is
tried on the embedded host to see which topologies it runs; those that run to their end there with no setting of their
own become parts of one large topology for each number of workers, which is submitted once. The tests then get their
part of what came out. A test that wants a failure, a setting or its own name has a submission for itself.

The everyday run has one number of workers, three: on two nodes that is the smallest with edges on all three tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from rstream import Topology, submit
from rstream.graph import Graph


class Results(dict[str, list[Any]]):
    """What each sink got, and the last status of the topology."""

    def __init__(self, found: Mapping[str, list[Any]], status: Mapping[str, Any]) -> None:
        super().__init__(found)
        self.status = status


Run = Callable[..., Results]

KNOW_THEIR_NAMES = {
    "test_a_bolt_lives_from_open_to_end_and_knows_who_it_is",
    "test_blocking_steps_run_on_threads_of_their_own_and_keep_order",
}
EVERYDAY_WORKERS = 3
END_TIMEOUT_S = 120.0


class RayHost:
    """Runs topologies on the cluster that this process is connected to."""

    def __init__(self, items: list[pytest.Item], run_embedded: Run) -> None:
        self._together: dict[str, list[Results]] = {}
        self._alone = 0
        parts: dict[int, list[tuple[str, Graph]]] = {}
        for item in items:
            for workers, graph in _tried(item, run_embedded):
                parts.setdefault(workers, []).append((item.nodeid, graph))
        for workers, numbered in sorted(parts.items()):
            self._run_together(workers, numbered)

    def run_of(self, test: str) -> Run:
        """The `run_topology` of one test."""
        prepared = iter(self._together.get(test, ()))

        def run(topology: Topology, workers: int | None = None, **settings: Any) -> Results:
            found = next(prepared, None)
            return self._run_alone(topology, workers or 1, settings) if found is None else found

        return run

    def _run_alone(self, topology: Topology, workers: int, settings: dict[str, Any]) -> Results:
        self._alone += 1
        graph = topology.build()
        flags = {key.replace("__", "."): value for key, value in settings.items()}
        name = graph.name if graph.name == "life" else f"{graph.name}-{self._alone}"
        handle = submit(replace(graph, name=name), workers=workers, spares=0, folder="", **flags)
        handle.wait(END_TIMEOUT_S)
        found = handle.results()
        sinks = [operator.name for operator in graph.operators if operator.kind == "sink"]
        return Results({name: found.get(name, []) for name in sinks}, handle.status())

    def _run_together(self, workers: int, numbered: list[tuple[str, Graph]]) -> None:
        whole = [_renamed(graph, number) for number, (_, graph) in enumerate(numbered)]
        merged = Graph(
            f"behaviour-{workers}",
            tuple(operator for graph in whole for operator in graph.operators),
            tuple(edge for graph in whole for edge in graph.edges),
        )
        handle = submit(merged, workers=workers, spares=0, folder="", on_note=lambda text: None)
        handle.wait(END_TIMEOUT_S)
        found, status = handle.results(), handle.status()
        for number, (test, graph) in enumerate(numbered):
            sinks = [operator.name for operator in graph.operators if operator.kind == "sink"]
            results = {name: found.get(_name(name, number), []) for name in sinks}
            self._together.setdefault(test, []).append(Results(results, _part(status, number)))


def _tried(item: pytest.Item, run_embedded: Run) -> list[tuple[int, Graph]]:
    """The topologies that a test runs and on how many workers; none where it has to run by itself."""
    function: Callable[..., None] = item.function  # type: ignore[attr-defined]
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("host") != "ray" or item.originalname in KNOW_THEIR_NAMES:  # type: ignore[attr-defined]
        return []
    arguments = {name: value for name, value in callspec.params.items() if name != "host"}
    graphs: list[tuple[int, Graph]] = []
    by_itself = False

    def run(topology: Topology, workers: int | None = None, **settings: Any) -> Results:
        nonlocal by_itself
        graph = topology.build()
        by_itself |= bool(settings or graph.config)
        graphs.append((workers or EVERYDAY_WORKERS, graph))
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


def _part(status: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The steps and edges of one topology in the status of the large one, by the names that they have in the test."""
    end = _name("", number)
    steps = [step for step in status["operators"] if step["name"].endswith(end)]
    edges = [edge for edge in status["edges"] if edge["from"].rpartition("#")[0].endswith(end)]
    return {
        **status,
        "operators": [{**step, "name": step["name"].removesuffix(end)} for step in steps],
        "edges": [{**edge, **{side: edge[side].replace(f"{end}#", "#") for side in ("from", "to")}} for edge in edges],
    }


def _renamed(graph: Graph, number: int) -> Graph:
    return Graph(
        graph.name,
        tuple(replace(operator, name=_name(operator.name, number)) for operator in graph.operators),
        tuple(
            replace(edge, source=_name(edge.source, number), target=_name(edge.target, number)) for edge in graph.edges
        ),
    )
