"""The fault simulation of `state.backend: checkpoint`: the same topologies and faults, with a store in virtual time."""

from __future__ import annotations

from typing import Any

from rstream.core.channel import TaskId
from rstream.core.worker_checkpoints import Reading, Saving
from rstream.lab.fault_cluster import SimWorker
from rstream.lab.faults import Schedule

EARLIER = 0.1
"""Checkpoints come more often than snapshots do in other schedules: these are short, and few faults would meet one."""


class CheckpointSchedule(Schedule):
    """One seeded run with checkpoints. No loss of workers is too much, for nothing but the store is needed."""

    checkpointed = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.store: dict[tuple[int, TaskId], tuple[bytes, ...]] = {}
        super().__init__(*arguments, **options)
        self._order()

    def _order(self) -> None:
        self._do(self.coordinator.checkpoint_due(self.name))
        self.after(self.interval_s * EARLIER, self._order)

    def _exchange_with_store(self, worker: SimWorker) -> None:
        machine = worker.machine
        assert machine is not None, "a worker that has its turn has a machine"
        for saving in machine.savings:
            self.after(self._delay(), lambda s=saving: self._write(worker, s))  # type: ignore[misc]
        for reading in machine.readings:
            self.after(self._delay(), lambda r=reading: self._read(worker, r))  # type: ignore[misc]
        machine.savings.clear()
        machine.readings.clear()

    def _write(self, worker: SimWorker, saving: Saving) -> None:
        if worker.alive:
            self.store[saving.number, saving.task] = saving.whole.pieces
            tasks = [saving.task]
            self._to_coordinator(worker, lambda: self.coordinator.prepared(self.name, saving.number, tasks))

    def _read(self, worker: SimWorker, reading: Reading) -> None:
        if worker.alive and worker.machine is not None:
            for piece in (*self.store[reading.number, reading.task], None):
                worker.machine.feed(reading, piece)
            self._turn_soon(worker)

    def _survivable(self, victims: list[SimWorker]) -> bool:
        return True

    def _harm_fragment(self, lost: bool) -> bool:
        return False
