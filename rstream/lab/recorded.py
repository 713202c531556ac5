"""A live run as a load, a cluster and a topology of the lab: what would another policy have done with it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rstream.lab.spec import ClusterSpec, EdgeSpec, Grouping, OperatorSpec, TopologySpec
from rstream.lab.trace import Trace

SERVICE_S_MIN = 1e-6
"""What a step that was too quick to measure counts for."""
GROUPINGS: Mapping[str, Grouping] = {"key": "fields", "loadbalanced": "load_balanced"}


def from_recording(recording: Mapping[str, Any]) -> tuple[Trace, ClusterSpec, TopologySpec]:
    """The recorded rates, on a cluster like the one that they were recorded on.

    >>> operators = [{"name": "n", "kind": "source", "keyed": False, "parallelism": 1, "service_s": 0.0,
    ...               "state_bytes": 0}]
    >>> trace, cluster, topology = from_recording({"name": "t", "rates": [[0.0, 10.0], [1.0, 20.0]], "nodes": 2,
    ...     "operators": operators, "edges": [], "cores": 2.0, "slots": 4, "tasks_per_slot": 4, "workers": 1})
    >>> trace.at(1.5), cluster.nodes, topology.operators[0].kind
    (20.0, 2, 'source')
    """
    rates = recording["rates"]
    trace = Trace.steps(*((at_s, rate) for at_s, rate in rates), end_s=rates[-1][0] + 1.0)
    cluster = ClusterSpec(
        nodes=max(1, recording["nodes"]),
        cores=recording["cores"],
        processes=recording["slots"],
        tasks_per_process=recording["tasks_per_slot"],
    )
    operators = tuple(
        OperatorSpec(
            each["name"],
            max(SERVICE_S_MIN, each["service_s"]),
            each["parallelism"],
            kind="source" if each["kind"] == "source" else "bolt",
            stateful=each["keyed"],
            keyed=each["keyed"],
            state_bytes=float(each["state_bytes"]),
        )
        for each in recording["operators"]
    )
    edges = tuple(
        EdgeSpec(
            each["source"],
            each["target"],
            each["selectivity"],
            GROUPINGS.get(each["grouping"], "shuffle"),
            each["tuple_bytes"],
        )
        for each in recording["edges"]
    )
    return trace, cluster, TopologySpec(recording["name"], operators, edges, recording["workers"], 10_000.0)
