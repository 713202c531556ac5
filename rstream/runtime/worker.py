"""The worker actor: one Ray actor, one process, one slot, serving one topology.

Data flows on the loop's thread and its links; the actor's methods are control calls. They run in a concurrency group of
their own and never wait for the loop, so that a bolt that blocks cannot silence its worker.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import cloudpickle
import ray

from rstream import values as codec
from rstream.clock import SystemClock, fresh_id, sleep
from rstream.config import Config
from rstream.core.backup import LostTask
from rstream.core.channel import TaskId
from rstream.core.deployment import Deployment, WorkerAddress
from rstream.core.live_changes import Progress
from rstream.core.report import report_of
from rstream.core.restoring import Restore
from rstream.core.savepoint import SavedTask
from rstream.core.suspects import reports_every_s
from rstream.core.worker import WorkerMachine
from rstream.core.worker_checkpoints import Reading, Saving
from rstream.errors import OperatorError, RStreamError, RunError, SinkFenced
from rstream.graph import Graph
from rstream.runtime import cluster
from rstream.runtime import code as user_code
from rstream.runtime.checkpoint_store import CheckpointIo, CheckpointStore
from rstream.runtime.embedded import limits_of
from rstream.runtime.ingest_door import ingest_token
from rstream.runtime.journal import open_store
from rstream.runtime.logs import LogRing, Outbox, capture
from rstream.runtime.loop import WorkerLoop
from rstream.runtime.monitor import own_usage
from rstream.runtime.notes import NoteBook
from rstream.runtime.savepoints import SavepointFolder, open_savepoint
from rstream.runtime.stuck import StuckCalls

FENCED_EXIT_S = 0.5
"""How long a fenced process stays for its last word to be sent."""
PROBE_EVERY_S = 5.0
STILL_POLL_S = 0.005
PARK_POLL_S = 0.002

T = TypeVar("T")


class Worker:
    """What runs in a worker's process."""

    def __init__(self, topology: str, worker: str, incarnation: int, token: str, config: bytes) -> None:
        self.topology, self.worker, self.incarnation = topology, worker, incarnation
        self.config: Config = cloudpickle.loads(config)
        # Not always the node that was asked for: where that one is gone or full, Ray takes another.
        self.node: str = ray.get_runtime_context().get_node_id()
        self._token = token
        self._graph: Graph
        self.clock = SystemClock()
        self._gone = threading.Event()
        self._stuck = StuckCalls(self.config.slow_call_ms)
        self._note = NoteBook(worker)
        self._claimed_s = self.clock.monotonic()
        self._probed_s = 0.0
        self._lease_until_s = 0.0
        """Only a report that was answered gives a lease: nobody else tells the coordinator that this worker has one."""
        self._coordinator: Any = None
        self._io: CheckpointIo | None = None
        ring = LogRing(worker, self.node)
        self._logs = Outbox(ring)
        capture(ring)
        folder = os.path.join(tempfile.gettempdir(), f"rstream-{os.getuid()}", "sockets")
        self._loop = WorkerLoop(
            os.path.join(folder, f"{fresh_id()}.sock"),
            ray.util.get_node_ip_address(),
            self.node,
            token,
            self.config.links,
            self._failed,
            self._finished,
            self._progressed,
            self._do_io,
            lambda dead: self._find_coordinator().gone.remote(self.topology, dead),
        )
        self._socket = self._loop._socket_path
        self._loop.start()
        threading.Thread(target=self._report_for_ever, name="rstream-report", daemon=True).start()

    def start(self) -> tuple[WorkerAddress, int]:
        """Where this worker listens, and its process id."""
        address = WorkerAddress(self.worker, self.node, self.incarnation, self._socket, self._loop.endpoint)
        return address, os.getpid()

    def deploy(self, code: str, tables: Deployment) -> None:
        """Load the topology and open this worker's tasks; raises what user code raised."""
        self._graph = self._load(code)
        exact = self.config.delivery == "exactly_once"
        interval_s = self.config.backup.interval_s if self.config.delivery != "at_most_once" else None
        savepoint = open_savepoint(tables.start_from, self._graph)

        def on_loop() -> None:
            if self._loop.machine is not None:
                return  # told again
            checkpointed = exact and self.config.state.backend == "checkpoint"
            if checkpointed:
                self._io = self._checkpoint_io(tables.run)
            machine = WorkerMachine(
                self.worker,
                replace(tables, graph=self._graph),
                lambda operator: cloudpickle.loads(cloudpickle.dumps(operator.logic)),
                self.clock.now,
                limits_of(self.config),
                self.config.on_error,
                self.config.seed,
                self.incarnation,
                None if checkpointed else interval_s,
                self._token,
                savepoint,
                exact,
                checkpointed=checkpointed,
            )
            machine.note = self._note
            machine.lease_until_s = self._lease_until_s
            machine.backups.load_max = self.config.backup.load_max
            self._loop.deploy(machine, ingest_token(self.config, self._token))

        self._on_loop(on_loop)

    def _checkpoint_io(self, run: str) -> CheckpointIo:
        assert self.config.state.store is not None, "submit refuses checkpoints without a store"
        store = CheckpointStore(
            self.config.state.store, f"{self.topology}/{run}", self.node, self.config.links.bytes_per_s
        )
        io = CheckpointIo(
            store,
            lambda saved: self._find_coordinator().prepared.remote(self.topology, saved.number, [saved.task]),
            lambda reading, piece: self._loop.post(lambda: self._machine().feed(reading, piece)),
            self._failed,
        )
        io.start()
        return io

    def _do_io(self, jobs: list[Saving] | list[Reading]) -> None:
        assert self._io is not None, "only checkpoints need it"
        self._io.do(jobs)

    def checkpoint(self, number: int) -> None:
        """Begin a checkpoint."""
        self._loop.post(lambda: self._machine().checkpoint(number))

    def committed(self, number: int) -> None:
        """A checkpoint is whole."""
        self._loop.post(lambda: self._machine().committed(number))

    def fence(self, tables: Deployment, lost: list[TaskId]) -> tuple[dict[TaskId, LostTask], list[TaskId]]:
        """Take new tables, and say what is known here of the lost tasks, and which tasks here have ended."""

        def on_loop() -> tuple[dict[TaskId, LostTask], list[TaskId]]:
            answer = self._machine().fence(replace(tables, graph=self._graph), lost)
            self._loop.retable()
            return answer, self._machine().ended_tasks

        return self._on_loop(on_loop)

    def restore(self, restores: list[Restore]) -> None:
        """Bring lost tasks back here; returns when they run."""

        def on_loop() -> None:
            machine = self._machine()
            machine.start([each for each in restores if each.task not in machine.by_id])
            self._loop.running = True
            self._loop.retable()

        self._on_loop(on_loop)
        while self._machine().restoring and self._loop.is_alive():
            sleep(0.002)

    def park(self, order: int, version: int, targets: dict[TaskId, str]) -> float | None:
        """Make tasks ready to move; gives, once all are, when the first stopped, or None if other tables have come."""
        machine = self._machine()
        self._on_loop(lambda: machine.park(order, version, targets))
        while (parked := machine.has_parked(order)) is False and self._loop.is_alive():
            sleep(PARK_POLL_S)
        return machine.parked_since(order) if parked else None

    def hold(self, attempt: int) -> int | None:
        """Be still for a savepoint; returns when nothing is on its way here, None if another attempt came meanwhile."""
        machine = self._machine()
        self._on_loop(lambda: machine.hold(attempt))
        while machine.attempt == attempt and machine.still and self._loop.is_alive():
            activity = self._on_loop(machine.activity)
            if activity is not None:
                return activity
            sleep(STILL_POLL_S)
        return None

    def cut(self, attempt: int) -> bool:
        """Cut all tasks for a savepoint; False if another attempt came meanwhile."""
        return self._on_loop(lambda: self._machine().cut_savepoint(attempt))

    def save(self, attempt: int, uri: str) -> list[SavedTask] | None:
        """Write what was cut; None if another attempt came meanwhile."""
        machine = self._machine()
        folder, files = SavepointFolder(uri), []

        def wait() -> bool:
            self._loop.post(_wake)
            sleep(STILL_POLL_S)
            return machine.attempt == attempt and bool(machine.files) and self._loop.is_alive()

        for state in list(machine.files):
            file = folder.write(state, attempt, wait)
            if file is None:
                return None
            files.append(file)
        return files

    def resume(self, attempt: int, abandon: bool) -> None:
        """Need not be still any more."""
        self._loop.post(lambda: self._machine().resume(attempt, abandon))

    def _on_loop(self, call: Callable[[], T]) -> T:
        """Run something on the loop and give what it gives, or raises."""
        done = threading.Event()
        answers: list[T] = []
        failures: list[RStreamError] = []

        def run() -> None:
            try:
                answers.append(call())
            except OperatorError as error:
                failures.append(error.on(self.node))
            except RStreamError as error:
                failures.append(error)
            finally:
                done.set()

        self._loop.post(run)
        done.wait()
        if failures:
            raise failures[0]
        return answers[0]

    def _load(self, code: str) -> Graph:
        store = open_store(self.config.coordinator.store)
        if code:
            archive = store.get(f"code/{code}")
            if archive is None:
                raise RunError(f"worker {self.worker}: the topology's code {code} is missing from the store")
            user_code.use(user_code.unpack(code, archive))
        blob = store.get(f"graph/{self.topology}")
        if blob is None:
            raise RunError(f"worker {self.worker}: the topology's graph is missing from the store")
        try:
            graph: Graph = cloudpickle.loads(blob)
        except Exception as error:
            raise RunError(f"worker {self.worker}: cannot load the topology: {type(error).__name__}: {error}") from None
        return graph

    def go(self) -> None:
        """Let the tasks run."""
        self._loop.post(self._go)

    def _go(self) -> None:
        self._loop.running = True

    def pause(self, paused: bool) -> None:
        """Stop reading sources, or go on."""
        self._loop.post(lambda: self._machine().pause(paused))

    def empty(self) -> None:
        """Drop what is queued."""
        self._loop.post(lambda: self._machine().empty())

    def drain(self) -> None:
        """End the sources."""
        self._loop.post(lambda: self._machine().drain())

    def results(self, step: str | None = None) -> list[tuple[str, bytes]]:
        """What the collecting sinks hold: (step, encoded values)."""
        machine = self._loop.machine
        if machine is None:
            return []
        return [
            (task.id.operator, codec.encode_one(list(task.bolt.results())))
            for task in machine.bolts
            if hasattr(task.bolt, "results") and step in (None, task.id.operator)
        ]

    def ping(self) -> float:
        """How long ago the loop last turned, in seconds."""
        return self.clock.monotonic() - self._loop.beat_s

    def live(self) -> None:
        """Returns when this worker ends; whoever waits for it sees the process die."""
        self._gone.wait()

    def stop(self) -> None:
        """End the tasks and this process."""
        self._loop.stop()
        self._loop.join(timeout=5.0)
        try:
            self._report()
        finally:
            self._remove_socket()
            self._gone.set()

    # Towards the coordinator.

    def _machine(self) -> WorkerMachine:
        assert self._loop.machine is not None, "control calls follow a deployment"
        return self._loop.machine

    def _remove_socket(self) -> None:
        self._note.remove()
        with contextlib.suppress(OSError):  # the loop removed it, unless user code still holds the loop
            os.unlink(self._socket)

    def _leave(self) -> None:
        self._remove_socket()
        os._exit(0)

    def _failed(self, error: RStreamError) -> None:
        with contextlib.suppress(Exception):  # what was said before the failure helps, but must not hide it
            self._hand_on_logs()
        self._tell("failed", cloudpickle.dumps(error))
        if isinstance(error, SinkFenced):
            # Another process has this worker's tasks. Nothing of this one may go on, not even to say goodbye.
            sleep(FENCED_EXIT_S)
            self._leave()

    def _finished(self) -> None:
        version = self._machine().deployment.version
        with contextlib.suppress(Exception):  # a coordinator that is away learns it from the reports that follow
            self._report()
            self._tell("finished", version)

    def _progressed(self, progress: Progress) -> None:
        with contextlib.suppress(Exception):  # a coordinator that is away asks again when it is back
            self._find_coordinator().progressed.remote(self.topology, progress)

    def _tell(self, what: str, *arguments: Any) -> None:
        getattr(self._find_coordinator(), what).remote(self.topology, self.worker, *arguments)

    def _find_coordinator(self) -> Any:
        from rstream.runtime.coordinator_actor import find_coordinator

        if self._coordinator is None:
            self._coordinator = find_coordinator()
        return self._coordinator

    def _hand_on_logs(self) -> None:
        self._logs.send(
            lambda lines: ray.get(self._find_coordinator().logged.remote(self.topology, lines), timeout=10.0)
        )

    def _report(self) -> None:
        self._hand_on_logs()
        machine = self._loop.machine
        if machine is None:
            report, complaints = None, []
        else:
            report = report_of(machine, self.clock.now(), own_usage())
            self._probe_now_and_then(machine)
            complaints = machine.take_complaints()
            stuck = self._stuck.look(self._loop.ident, self._loop.beat_s, self.clock.monotonic())
            complaints += [stuck] if stuck is not None else []
        finished, asked_s = self._loop.has_finished, self.clock.now()
        reference = self._find_coordinator().report.remote(self.topology, self.worker, report, complaints, finished)
        node_load = ray.get(reference, timeout=10.0)
        self._claimed_s = self.clock.monotonic()
        if node_load is None:
            self._leave()
        self._lease_until_s = asked_s + self.config.lease_s
        machine = self._loop.machine  # it may have come while the coordinator was asked
        if machine is not None:
            machine.backups.node_load = node_load
            machine.lease_until_s = self._lease_until_s

    def _probe_now_and_then(self, machine: WorkerMachine) -> None:
        if self.clock.monotonic() - self._probed_s >= PROBE_EVERY_S:
            self._probed_s = self.clock.monotonic()
            self._loop.post(machine.probe)

    def _report_for_ever(self) -> None:
        every_s = reports_every_s(self.config.stats_interval_s, self.config.lease_s)
        while not self._gone.is_set():
            sleep(every_s)
            try:
                self._report()
            except Exception:
                # The coordinator is away; data flows on, and it finds us again when it is back.
                self._coordinator = None
            if self.clock.monotonic() - self._claimed_s > self.config.coordinator.orphan_timeout_s:
                self._leave()


CONTROL_CALLS = (
    *("start", "deploy", "fence", "restore", "go", "pause", "drain", "results", "ping", "stop"),
    *("checkpoint", "committed", "hold", "cut", "save", "resume", "park"),
)


def _wake() -> None:
    """What is posted to a loop that has something to do."""


def worker_actor() -> Any:
    """The Ray actor class of workers."""
    for name in CONTROL_CALLS:
        setattr(Worker, name, ray.method(concurrency_group="control")(getattr(Worker, name)))
    Worker.live = ray.method(concurrency_group="life")(Worker.live)  # type: ignore[method-assign]
    return ray.remote(**cluster.PLACED, max_restarts=0, concurrency_groups={"control": 8, "life": 2})(Worker)
