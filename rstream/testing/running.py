"""Run a topology in virtual time: the real engine on the embedded host, with a clock that is moved, not awaited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rstream.clock import ManualClock
from rstream.config import Config
from rstream.errors import TopologyError
from rstream.graph import Graph, Operator
from rstream.operators.sinks import Collect
from rstream.operators.sources import FromIterable
from rstream.runtime.embedded import Embedded
from rstream.topology import Topology


def run(
    topology: Topology | Graph,
    inputs: Mapping[str, Iterable[Any]] | None = None,
    clock: ManualClock | None = None,
    workers: int = 1,
    config: Config | None = None,
    duration_s: float | None = None,
) -> dict[str, list[Any]]:
    """Run to the end of all sources and give what reached each sink.

    `inputs` replaces the named sources by these items. A sink that has no `results()` writes nothing in a test: it is
    replaced by one that collects. Waiting costs nothing: ticks, timers and `ctx.occupy` happen in the virtual time
    of `clock`. Sources that never end need `duration_s`.

    >>> topology = Topology("count")
    >>> _ = topology.source("words", []).key_by("word").count("n").sink("out", print)
    >>> run(topology, {"words": ["a", "b", "a"]}, workers=2)
    {'out': [('a', 1), ('b', 1), ('a', 2)]}
    """
    graph = topology.build() if isinstance(topology, Topology) else topology
    host = Embedded(_for_test(graph, inputs or {}), config, workers, clock or ManualClock())
    host.run(duration_s=duration_s)
    return {operator.name: host.results(operator.name) for operator in graph.operators if operator.kind == "sink"}


def _for_test(graph: Graph, inputs: Mapping[str, Iterable[Any]]) -> Graph:
    sources = [operator.name for operator in graph.operators if operator.kind == "source"]
    for name in inputs:
        if name not in sources:
            raise TopologyError(f"inputs: {name!r} is no source of this topology; its sources: {', '.join(sources)}")

    def changed(operator: Operator) -> Operator:
        if operator.name in inputs:
            return replace(operator, logic=FromIterable(inputs[operator.name]))
        if operator.kind == "sink" and not hasattr(operator.logic, "results"):
            return replace(operator, logic=Collect())
        return operator

    return replace(graph, operators=tuple(map(changed, graph.operators)))
