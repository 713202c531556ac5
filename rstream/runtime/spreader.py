"""The coordinator's thread for nodes: tells the machine now and then which ones there are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import ray

from rstream.clock import sleep
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import Instruction
from rstream.core.records import OVER, TopologyRecord

EVERY_S = 2.0
_LOG = logging.getLogger(__name__)


class Spreader(threading.Thread):
    """Keeps topologies on two nodes where there are two."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        lock: threading.RLock,
        nodes_of: Callable[[TopologyRecord], list[str]],
        execute: Callable[[list[Instruction]], None],
    ) -> None:
        super().__init__(name="rstream-nodes", daemon=True)
        self._machine, self._lock, self._nodes_of, self._execute = machine, lock, nodes_of, execute

    def run(self) -> None:
        while True:
            sleep(EVERY_S)
            with self._lock:
                try:
                    for name, record in list(self._machine.topologies.items()):
                        if record.state not in OVER:
                            self._execute(self._machine.spread(name, self._nodes_of(record)))
                except ray.exceptions.RayError:
                    _LOG.warning("the cluster's nodes could not be listed", exc_info=True)
