"""What the monitor reads from the machine: a worker's own CPU time and memory, and what Ray says of its nodes.

Node load is made of the worker processes' CPU time over the CPUs that Ray declares: machine-wide figures would be the
same for all Ray nodes of one machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import ray

from rstream.core.report import Usage
from rstream.runtime import cluster

if TYPE_CHECKING:
    from rstream.core.view import NodeFacts

_SELF = psutil.Process()


def own_usage() -> Usage:
    """What this process has used."""
    with _SELF.oneshot():
        times = _SELF.cpu_times()
        return Usage(times.user + times.system, _SELF.memory_info().rss)


def node_facts(slots: int | None = None) -> list[NodeFacts]:
    """The live nodes; `slots` overrides how many workers each takes."""
    from rstream.core.view import NodeFacts  # with numpy and the policies, which no worker needs

    memory = {node["NodeID"]: float(node["Resources"].get("memory", 0.0)) for node in ray.nodes() if node["Alive"]}
    leaving = cluster.draining()
    return [
        NodeFacts(node.id, node.cpus or 1.0, memory.get(node.id) or 1.0, slots or node.slots, node.id in leaving)
        for node in cluster.nodes()
    ]
