"""The run loops of several workers in this process, over real sockets and gRPC streams, without Ray."""

from __future__ import annotations

import copy
import gc
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rstream import Topology
from rstream.clock import SystemClock, fresh_id
from rstream.config import Config, LinkConfig
from rstream.core.deployment import WorkerAddress
from rstream.core.placement import deploy
from rstream.core.worker import WorkerMachine
from rstream.errors import RStreamError
from rstream.graph import Operator
from rstream.runtime.embedded import limits_of
from rstream.runtime.loop import WorkerLoop


class Workers:
    """As many workers as nodes are named, worker i on node i; each has a token and, if asked for, certificates."""

    def __init__(
        self, topology: Topology, folder: Path, nodes: Sequence[str], tokens: Sequence[str], links: LinkConfig
    ) -> None:
        graph = topology.build()
        names = [f"{graph.name}/w{number}" for number in range(len(nodes))]
        self.failures: list[RStreamError] = []
        self.over = [threading.Event() for _ in nodes]
        self.loops = [
            _Loop(str(folder / "sockets" / f"{number}.sock"), node, token, links, self.failures, over)
            for number, (node, token, over) in enumerate(zip(nodes, tokens, self.over, strict=True))
        ]
        addresses = {
            name: WorkerAddress(name, loop.node, 0, loop._socket_path, loop.endpoint)
            for name, loop in zip(names, self.loops, strict=True)
        }
        deployment = replace(deploy(graph, names).with_workers(addresses), run=fresh_id())
        limits = limits_of(Config())
        self.machines = [
            WorkerMachine(name, deployment, _copy, SystemClock().now, limits, token=token)
            for name, token in zip(names, tokens, strict=True)
        ]
        for loop in self.loops:
            loop.start()

    def begin(self) -> None:
        """Give every worker its tasks."""
        for loop, machine in zip(self.loops, self.machines, strict=True):
            loop.post(partial(_begin, loop, machine))

    @property
    def finished(self) -> bool:
        """All tasks of all workers have ended."""
        return all(over.is_set() for over in self.over)

    def results(self) -> list[Any]:
        """What the collecting sinks hold."""
        bolts = [task.bolt for machine in self.machines for task in machine.bolts]
        return [value for bolt in bolts if hasattr(bolt, "results") for value in bolt.results()]


class _Loop(WorkerLoop):
    """A loop that counts the links it lost."""

    def __init__(
        self, socket: str, node: str, token: str, links: LinkConfig, failures: list[RStreamError], over: threading.Event
    ) -> None:
        self.lost = 0
        super().__init__(
            socket,
            "127.0.0.1",
            node,
            token,
            links,
            failures.append,
            over.set,
            lambda progress: None,
            lambda jobs: None,
            lambda worker: None,
        )

    def _lost(self, connection: Any) -> None:
        self.lost += 1
        super()._lost(connection)


def _begin(loop: WorkerLoop, machine: WorkerMachine) -> None:
    loop.deploy(machine)
    loop.running = True


def _copy(operator: Operator) -> Any:
    return copy.deepcopy(operator.logic)


@contextmanager
def workers(
    topology: Topology, folder: Path, nodes: Sequence[str], tokens: Sequence[str] = (), links: LinkConfig | None = None
) -> Iterator[Workers]:
    """Workers that listen for as long as the block lasts, and work from `begin()` on."""
    thresholds, interval_s = gc.get_threshold(), sys.getswitchinterval()
    found = Workers(topology, folder, nodes, tokens or ["token"] * len(nodes), links or LinkConfig())
    try:
        yield found
    finally:
        for loop in found.loops:
            loop.stop()
        for loop in found.loops:
            loop.join(60)
        # A loop has its process to itself and sets it up accordingly; this one has other tests to run.
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval_s)
