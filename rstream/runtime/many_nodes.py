"""Several Ray nodes on this one machine: a cluster of our own for chaos and benchmarks, whose nodes can be killed.

The first node is the head. It holds what Ray knows of the cluster, so it lives as long as the cluster does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psutil

from rstream.runtime import cluster


class ManyNodes:
    """A running cluster; `address` is what `ray.init` and RAY_ADDRESS take."""

    def __init__(self, cpus: int) -> None:
        from ray.cluster_utils import Cluster

        self._cpus = cpus
        self._cluster = Cluster(initialize_head=True, head_node_args=self._arguments(), connect=False)
        self._nodes: dict[str, Any] = {}

    def _arguments(self) -> dict[str, Any]:
        return {"num_cpus": self._cpus, "include_dashboard": False}

    @property
    def address(self) -> str:
        """Where the cluster answers."""
        return str(self._cluster.address)

    @property
    def mortal(self) -> list[str]:
        """The ids of the nodes that can be killed: all but the head."""
        return list(self._nodes)

    def add(self) -> str:
        """Start a node; gives its id."""
        node = self._cluster.add_node(wait=True, **self._arguments())
        self._nodes[node.node_id] = node
        return str(node.node_id)

    def kill(self, id: str) -> list[int]:
        """End a node as a power cut does: every process of it by SIGKILL, at once. Gives their pids."""
        node = self._nodes.pop(id)
        found: list[psutil.Process] = []
        for infos in node.all_processes.values():
            for info in infos:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process = psutil.Process(info.process.pid)
                    found += [process, *process.children(recursive=True)]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._cluster.remove_node(node, allow_graceful=False)
        return [process.pid for process in found]

    def shutdown(self) -> None:
        """End every node."""
        self._cluster.shutdown()


@contextlib.contextmanager
def many_nodes(nodes: int = 2, cpus: int = 4) -> Iterator[ManyNodes]:
    """A cluster of so many nodes, to which this process is connected, for as long as the block lasts."""
    cluster.settings()
    cluster.quiet()
    try:
        found = ManyNodes(cpus)
    except Exception as error:  # Ray has no class of its own for a node that does not come up in time
        raise cluster.not_started(error) from error
    try:
        try:
            for _ in range(nodes - 1):
                found.add()
        except Exception as error:
            raise cluster.not_started(error) from error
        cluster.connect(found.address)
        yield found
    finally:
        cluster.stop()
        found.shutdown()
