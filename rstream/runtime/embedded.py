"""The embedded host: a topology in this process, with no Ray. For first steps, tests, and `run --local`.

It can hold several worker machines, which then speak to each other in frames as on a cluster, only in memory.
"""

from __future__ import annotations

import copy
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from rstream.clock import Clock, ManualClock, SystemClock, fresh_id, sleep
from rstream.config import Config
from rstream.core import messages
from rstream.core.bolt_task import BoltTask
from rstream.core.deployment import WorkerAddress
from rstream.core.intake import ingest_steps
from rstream.core.messages import Frame, Greet
from rstream.core.placement import deploy
from rstream.core.records import TopologyRecord, WorkerRecord
from rstream.core.report import report_of
from rstream.core.savepoint import Manifest, manifest_of, splits_of
from rstream.core.status import ReportBook, status_of
from rstream.core.task import Complaint, Limits
from rstream.core.worker import WorkerMachine
from rstream.errors import OperatorError, UsageError
from rstream.graph import Graph, Operator
from rstream.runtime.follow import Interruption
from rstream.runtime.savepoints import SavepointFolder, full_uri, made_by, open_savepoint

NODE = "embedded"
IDLE_MAX_S = 0.05


class Embedded:
    """A topology running in this process.

    >>> from rstream import Topology
    >>> topology = Topology("shout")
    >>> _ = topology.source("words", ["a", "b"]).map("upper", str.upper).sink("out")
    >>> host = Embedded(topology.build())
    >>> host.run()
    >>> host.results()
    ['A', 'B']
    """

    def __init__(
        self,
        graph: Graph,
        config: Config | None = None,
        workers: int = 1,
        clock: Clock | None = None,
        start_from: str = "",
    ) -> None:
        self.graph, self.config = graph, config or Config()
        self.clock = clock or SystemClock()
        names = [f"{graph.name}/w{number}" for number in range(workers)]
        deployment = deploy(graph, names).with_workers({name: WorkerAddress(name, NODE) for name in names})
        savepoint = open_savepoint(start_from, graph)
        if savepoint is not None:
            deployment = replace(deployment, splits=splits_of(savepoint.manifest, graph, deployment.splits))
        deployment = replace(deployment, run=fresh_id())
        self.gate: Any = None
        """Where senders come in, if the topology has an ingest source."""
        if ingest_steps(graph):
            from rstream.runtime.ingest_gate import IngestGate

            self.gate = IngestGate(self.config)
            deployment = deployment.with_workers(
                {name: WorkerAddress(name, NODE, endpoint=self.gate.endpoint) for name in names}
            )
        limits = limits_of(self.config)
        self.deployment = deployment
        self.machines = {
            name: WorkerMachine(
                name,
                deployment,
                _copy,
                self.clock.now,
                limits,
                self.config.on_error,
                self.config.seed,
                savepoint=savepoint,
            )
            for name in names
        }
        self._savepoints = 0
        self.complaints: deque[Complaint] = deque(maxlen=self.config.errors_max)
        self._done: queue.SimpleQueue[tuple[WorkerMachine, BoltTask, OperatorError | None]] = queue.SimpleQueue()
        self._threads_busy = 0
        self._book = ReportBook()
        self.drained = False
        self._interruption = Interruption()

    def start(self) -> None:
        """Open every task and connect the workers."""
        for machine in self.machines.values():
            machine.open(self.clock.now())
        if self.gate is not None:
            self.gate.open(list(self.machines.values()))
            hint = "" if self.config.ingest.token_file else "; set ingest.token_file, so that others know the token"
            print(f"rstream: records are taken at {self.gate.endpoint}{hint}", file=sys.stderr, flush=True)
        for machine in self.machines.values():
            for peer in machine.out_links:
                self._carry(machine, peer, True, machine.greet())

    def run(self, until: Callable[[], bool] | None = None, duration_s: float | None = None) -> None:
        """Run to the end of all sources, or until a condition or a time; then drain."""
        end_s = None if duration_s is None else self.clock.monotonic() + duration_s
        try:
            with self._interruption.watched():
                self.start()
                while not self.finished:
                    worked = self.turn()
                    over = self.interrupted or (end_s is not None and self.clock.monotonic() >= end_s)
                    if not self.drained and (over or (until is not None and until())):
                        self.drain()
                    elif not worked:
                        self.idle()
        finally:
            self.close()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._interruption.pressed

    def turn(self) -> bool:
        """One pass of every machine, and the frames that come of it; True if anything was done."""
        worked = self._finish_threads(block_s=None)
        if self.gate is not None:
            worked |= self.gate.turn()
        for machine in self.machines.values():
            worked |= machine.run_pass()
            for task, work in machine.thread_work:
                self._start_thread(machine, task, work)
            machine.thread_work.clear()
            for peer, ours, frame in machine.outgoing():
                self._carry(machine, peer, ours, frame)
                worked = True
            self.complaints.extend(machine.take_complaints())
        if self.gate is not None:
            self.gate.answer(not worked)
        return worked

    def idle(self) -> None:
        """Nothing to do now: wait for a thread or the next point in time at which there will be."""
        wakes = [at for at in (machine.next_wake_s() for machine in self.machines.values()) if at is not None]
        now_s = self.clock.now()
        wait_s = max(0.0, min(wakes, default=now_s + IDLE_MAX_S) - now_s)
        if self._threads_busy:
            self._finish_threads(block_s=min(wait_s, IDLE_MAX_S))
        elif isinstance(self.clock, ManualClock):
            self.clock.advance(max(wait_s, 1e-6))
        elif self.gate is not None:
            self.gate.wait(min(wait_s, IDLE_MAX_S))
        else:
            sleep(min(wait_s, IDLE_MAX_S))

    @property
    def finished(self) -> bool:
        """All tasks have ended and everything was consumed."""
        return all(machine.finished for machine in self.machines.values())

    def drain(self) -> None:
        """Read no more; what is on its way is still processed."""
        self.drained = True
        for machine in self.machines.values():
            machine.drain()

    def savepoint(self, uri: str) -> Manifest:
        """Write everything to a place that any later run can start from; what was read is processed first.

        Sources are read again as soon as nothing is on its way and all state is cut.
        """
        folder = SavepointFolder(full_uri(uri))
        folder.prepare()
        self._savepoints += 1
        machines = list(self.machines.values())
        for machine in machines:
            machine.hold(self._savepoints)
        try:
            while (worked := self.turn()) or any(machine.activity() is None for machine in machines):
                if not worked:
                    self.idle()
            if self.finished:
                raise UsageError(f"topology {self.graph.name!r} is finished: there is nothing to save")
            for machine in machines:
                machine.cut_savepoint(self._savepoints)
        finally:
            for machine in machines:
                machine.resume(self._savepoints)
        return self._write_savepoint(folder, machines)

    def _write_savepoint(self, folder: SavepointFolder, machines: list[WorkerMachine]) -> Manifest:
        files = []
        for machine in machines:
            for state in machine.files:
                file = folder.write(state, self._savepoints, partial(_packs, machine))
                assert file is not None, "nobody gives it up"
                files.append(file)
            machine.abandon_savepoint()
        outline = self.graph.outline()
        manifest = manifest_of(outline, self.deployment.splits, files, self.clock.now(), made_by())
        folder.close(manifest)
        return manifest

    def close(self) -> None:
        """Close what has not ended by itself."""
        if self.gate is not None:
            self.gate.close()
        for machine in self.machines.values():
            machine.close()

    def validate(self) -> None:
        """Check all invariants of all machines."""
        for machine in self.machines.values():
            machine.validate()

    def results(self, step: str | None = None) -> list[Any]:
        """What the collecting sinks hold, of one step or all."""
        return [
            value
            for machine in self.machines.values()
            for task in machine.bolts
            if step in (None, task.id.operator) and task.operator.kind == "sink" and hasattr(task.bolt, "results")
            for value in task.bolt.results()
        ]

    def status(self) -> dict[str, Any]:
        """The same object as a cluster's `status`."""
        now_s = self.clock.now()
        for name, machine in self.machines.items():
            self._book.add(name, report_of(machine, now_s))
        record = TopologyRecord(
            name=self.graph.name,
            outline=self.graph.outline(),
            splits=self.deployment.splits,
            parallelism=dict(self.deployment.parallelism),
            policy=self.config.policy,
            worker_count=len(self.machines),
            spare_count=0,
            token="",
            code="",
            config=b"",
            recovers=False,
            state=("KILLED" if self.drained else "FINISHED") if self.finished else "ACTIVE",
            placement=dict(self.deployment.placement),
            workers={
                name: WorkerRecord(address, "running", os.getpid()) for name, address in self.deployment.workers.items()
            },
        )
        return status_of(record, self._book)

    def errors(self) -> list[dict[str, Any]]:
        """What went wrong in user code, newest last."""
        return [
            {
                "step": complaint.task.operator,
                "task": complaint.task.number,
                "node": NODE,
                "error": complaint.cause,
                "value": complaint.value,
                "traceback": complaint.traceback,
            }
            for complaint in self.complaints
        ]

    def _carry(self, machine: WorkerMachine, peer: str, ours: bool, frame: Frame) -> None:
        message = messages.decode(frame.header)
        other = self.machines[peer]
        if isinstance(message, Greet):
            assert other.on_greet(message), "embedded workers have one incarnation"
        else:
            other.handle(machine.worker, message, frame.body)

    def _start_thread(self, machine: WorkerMachine, task: BoltTask, work: Callable[[], None]) -> None:
        self._threads_busy += 1
        start_thread(work, lambda error: self._done.put((machine, task, error)), str(task.id))

    def _finish_threads(self, block_s: float | None) -> bool:
        worked = False
        while self._threads_busy:
            try:
                machine, task, error = (
                    self._done.get_nowait() if block_s is None or worked else self._done.get(timeout=block_s)
                )
            except queue.Empty:
                break
            self._threads_busy -= 1
            worked = True
            if error is not None:
                raise error
            machine.thread_done(task)
        return worked


def start_thread(work: Callable[[], None], done: Callable[[OperatorError | None], None], name: str) -> None:
    """Run a blocking operator's work on a thread of its own; one step at a time, so order is kept."""

    def run() -> None:
        try:
            work()
        except OperatorError as error:
            done(error)
        else:
            done(None)

    threading.Thread(target=run, name=f"rstream {name}", daemon=True).start()


def limits_of(config: Config) -> Limits:
    """The bounds of a task, from the configuration."""
    return Limits(
        config.batch.max_tuples,
        config.batch.window,
        config.batch.window_bytes,
        config.backup.retained_bytes,
        config.slow_call_ms,
        t_out_s=config.t_out_s,
        q_size=config.q_size,
    )


def _packs(machine: WorkerMachine) -> bool:
    """Pack more of what is waited for."""
    machine.pack_savepoint()
    return True


def _copy(operator: Operator) -> Any:
    return copy.deepcopy(operator.logic)
