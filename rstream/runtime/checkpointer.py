"""The coordinator's thread for checkpoints: orders them when they are due, and removes those that nobody needs."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

import cloudpickle

from rstream.clock import Clock, sleep
from rstream.config import Config
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import Instruction
from rstream.core.records import OVER, TopologyRecord
from rstream.errors import ConfigError
from rstream.runtime.checkpoint_store import CheckpointStore

TICK_S = 0.05
_LOG = logging.getLogger(__name__)


class Checkpointer(threading.Thread):
    """Looks after the topologies of a cluster that are checkpointed."""

    def __init__(
        self,
        machine: CoordinatorMachine,
        lock: threading.RLock,
        clock: Clock,
        execute: Callable[[list[Instruction]], None],
    ) -> None:
        super().__init__(name="rstream-checkpointer", daemon=True)
        self._machine, self._lock, self._clock, self._execute = machine, lock, clock, execute
        self._ordered_s: dict[str, float] = {}
        self._kept: dict[str, int] = {}
        """By run, the checkpoint before which all were removed."""

    def run(self) -> None:
        while True:
            sleep(TICK_S)
            for record in list(self._machine.topologies.values()):
                if record.checkpointed:
                    try:
                        self._look_after(record)
                    except (OSError, ConfigError):
                        # What cannot be removed now is removed with the next one, and the topology does not suffer.
                        _LOG.warning("old checkpoints of %s could not be removed", record.name, exc_info=True)

    def _look_after(self, record: TopologyRecord) -> None:
        config: Config = cloudpickle.loads(record.config)
        now_s = self._clock.monotonic()
        if record.state not in OVER and now_s - self._ordered_s.get(record.run, -math.inf) >= config.backup.interval_s:
            with self._lock:
                instructions = self._machine.checkpoint_due(record.name)
                self._execute(instructions)
            if instructions:
                self._ordered_s[record.run] = now_s
        needed = record.checkpoints.committed if record.state not in OVER else record.checkpoints.number + 1
        if needed > self._kept.get(record.run, 1) and record.state != "FAILED":
            assert config.state.store is not None, "submit refuses checkpoints without a store"
            CheckpointStore(config.state.store, f"{record.name}/{record.run}").drop_before(needed)
            self._kept[record.run] = needed
