"""A simulated cluster of which savepoints are made, while workers and the coordinator crash."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from rstream import Topology
from rstream.core.instructions import Close, Cut, Hold, Instruction, Resume, Save
from rstream.core.records import OVER
from rstream.core.savepoint import manifest_of
from rstream.errors import UsageError
from rstream.groupings import All
from rstream.lab.fault_cluster import SimWorker
from rstream.lab.fault_topologies import CountKeys, Number, Workload, check, key_of
from rstream.lab.faults import Schedule
from rstream.runtime.savepoints import SavepointFolder

POLL_S = 0.002
TUPLES = 150
EXPECTED = {(source, index) for source in ("s0", "s1") for index in range(TUPLES)}


def workload(counters: int = 3, sinks: int = 2, sources: int = 2, numbers: int = 2) -> Workload:
    """A merge whose output depends on the interleaving, a keyed count, and two observers."""
    topology = Topology("saved")
    left = topology.source("s0", [("s0", index) for index in range(TUPLES)], parallelism=sources)
    right = topology.source("s1", [("s1", index) for index in range(TUPLES)])
    numbered = topology.merge("merge", left, right).process("number", Number(), parallelism=numbers)
    numbered.key_by("key", key_of).process("count", CountKeys(), parallelism=counters).sink("counts", parallelism=sinks)
    numbered.grouped(All()).sink("left")
    numbered.grouped(All()).sink("right")
    return Workload(topology.build(), lambda results: check(results, EXPECTED))


class Saving(Schedule):
    """A schedule of faults during which savepoints are asked for all the time, up to a few."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.folder = folder
        self.made: list[str] = []
        """The savepoints that were completed."""
        self.draws = random.Random(f"savepoints/{seed}")
        super().__init__(seed, workload=workload())
        self.after(self.draws.uniform(0.0, 10 * self.delay_s), self._ask_for_one)

    def _ask_for_one(self) -> None:
        if self.record.state in OVER or len(self.made) == 3:
            return
        self.after(self.draws.uniform(0.0, 10 * self.delay_s), self._ask_for_one)
        if self.record.savepoint is None and self.record.state != "INACTIVE":
            uri = str(self.folder / f"{self.seed}-{self.record.savepoints}")
            SavepointFolder(uri).prepare()
            try:
                _, instructions = self.coordinator.savepoint(self.name, uri)
            except UsageError:
                return
            self._do(instructions)

    def _do_more(self, instruction: Instruction) -> None:
        match instruction:
            case Hold(_, worker, attempt, probe):
                self._to_worker(worker, lambda w: self._hold(w, attempt, probe))
            case Cut(_, worker, attempt):
                self._to_worker(worker, lambda w: self._cut_state(w, attempt))
            case Save(_, worker, attempt, uri):
                self._to_worker(worker, lambda w: self._save(w, attempt, uri))
            case Resume(_, worker, attempt, abandon):
                self._to_worker(worker, lambda w: self._resume(w, attempt, abandon))
            case Close(_, attempt, uri, files):
                manifest = manifest_of(self.record.outline, self.record.splits, files, self.now_s, "")
                SavepointFolder(uri).close(manifest)
                self.after(self._delay(), lambda: self._closed(attempt, uri))

    def _closed(self, attempt: int, uri: str) -> None:
        before = self.record.fall_back
        self._do(self.coordinator.closed(self.name, attempt))
        if self.record.fall_back is not before:
            self.made.append(uri)
            self.events["savepoint"] += 1

    def _hold(self, worker: SimWorker, attempt: int, probe: int) -> None:
        machine = worker.machine
        assert machine is not None, "asked after deployment"
        machine.hold(attempt)
        self._turn_soon(worker)
        self._wait_quiet(worker, attempt, probe)

    def _wait_quiet(self, worker: SimWorker, attempt: int, probe: int) -> None:
        machine = worker.machine
        if not worker.alive or machine is None or machine.attempt != attempt or not machine.still:
            return
        activity = machine.activity()
        if activity is None:
            self.after(POLL_S, lambda: self._wait_quiet(worker, attempt, probe))
        else:
            self._to_coordinator(
                worker, lambda: self.coordinator.quieted(self.name, worker.name, attempt, probe, activity)
            )

    def _cut_state(self, worker: SimWorker, attempt: int) -> None:
        assert worker.machine is not None, "asked after deployment"
        if worker.machine.cut_savepoint(attempt):
            self._turn_soon(worker)
            self._to_coordinator(worker, lambda: self.coordinator.cut(self.name, worker.name, attempt))

    def _save(self, worker: SimWorker, attempt: int, uri: str) -> None:
        machine = worker.machine
        if not worker.alive or machine is None or machine.attempt != attempt or not machine.files:
            return
        if not all(file.is_packed for file in machine.files):
            self._turn_soon(worker)
            self.after(POLL_S, lambda: self._save(worker, attempt, uri))
            return
        files: list[Any] = [SavepointFolder(uri).write(file, attempt, lambda: False) for file in machine.files]
        self._to_coordinator(worker, lambda: self.coordinator.saved(self.name, worker.name, attempt, files))

    def _resume(self, worker: SimWorker, attempt: int, abandon: bool) -> None:
        assert worker.machine is not None, "asked after deployment"
        worker.machine.resume(attempt, abandon)
        self._turn_soon(worker)
