"""The coordinator actor: executes and journals what the coordinator machine decides. One for each cluster.

It is a detached, named actor that Ray restarts; it comes back from its journal, finds its workers by their names, and
knows everything again. Nothing of a topology's data passes through it.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from functools import partial
from typing import Any

import cloudpickle
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rstream.clock import SystemClock
from rstream.config import ControlConfig
from rstream.core.backup import LostTask
from rstream.core.channel import TaskId
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.instructions import (
    Checkpoint,
    Close,
    Collect,
    Committed,
    Cut,
    Deploy,
    Drain,
    Empty,
    Fence,
    Go,
    Hold,
    Instruction,
    Park,
    Pause,
    Persist,
    Resume,
    Save,
    Start,
    StartOver,
    StartWorker,
    StopWorker,
)
from rstream.core.live_changes import Progress
from rstream.core.recording import recording_of
from rstream.core.records import OVER, TopologyRecord
from rstream.core.report import WorkerReport
from rstream.core.restoring import Restore
from rstream.core.stalls import Stall
from rstream.core.status import ReportBook, node_load, status_of
from rstream.core.task import Complaint
from rstream.errors import ProtocolError, RStreamError, RunError, StateLost, UnknownTopology, UsageError
from rstream.runtime import cluster
from rstream.runtime.answers import Answers
from rstream.runtime.checkpointer import Checkpointer
from rstream.runtime.controller import Controller
from rstream.runtime.error_book import ErrorBook
from rstream.runtime.ingest_door import ingest_token
from rstream.runtime.journal import Store, open_store
from rstream.runtime.logs import LogBook, LogLine
from rstream.runtime.lost_watch import LostWatch
from rstream.runtime.monitor import node_facts
from rstream.runtime.mover import Mover
from rstream.runtime.poison_watch import PoisonWatch
from rstream.runtime.saver import Saver
from rstream.runtime.spreader import Spreader
from rstream.runtime.worker import worker_actor

_LOG = logging.getLogger(__name__)
RESULT_BYTES_MAX = 256 << 20


class Coordinator:
    """What runs in the coordinator's process."""

    def __init__(self, store: str) -> None:
        self._store: Store = open_store(store)
        self._clock = SystemClock()
        self._errors = ErrorBook(self._clock)
        self._machine = CoordinatorMachine()
        self._lock = threading.RLock()
        self._answers = Answers(self._lock)
        self._handles: dict[str, Any] = {}
        self._books: dict[str, ReportBook] = {}
        self._results: dict[str, list[tuple[str, bytes]]] = {}
        self._logs: dict[str, LogBook] = {}
        self._pending_results: dict[str, int] = {}
        self._collecting: dict[str, bool] = {}
        """Workers whose results are on their way, and whether to stop them afterwards."""
        self._ending: set[str] = set()
        """Workers that were told to stop and have not answered yet."""
        is_ending, put = self._ending.__contains__, self._answers.put
        self._lost = LostWatch(self._machine, self._lock, put, self._died, is_ending, cluster.is_up, self._clock)
        lost = self._lost.failed_to_answer
        self._saver = Saver(self._machine, self._handles, self._answers.when, self._execute, put, lost)
        self._mover = Mover(self._machine, self._handles, self._answers.when, self._execute, lost)
        self._poison = PoisonWatch(self._machine, self._answers.when, self._execute, self._errors.note)
        self._cpus: dict[str, float] = {}
        self._worker_class = worker_actor()
        for name in self._store.names("topology/"):
            content = self._store.get(name)
            if content is not None:
                self._adopt(pickle.loads(content))
        self._controller = Controller(self._machine, self._books, self._lock, self._store, self._clock, self._execute)
        threading.Thread(target=self._controller.run, name="rstream-control", daemon=True).start()
        self._answers.start()
        self._lost.start()
        Spreader(self._machine, self._lock, self._nodes, self._execute).start()
        Checkpointer(self._machine, self._lock, self._clock, self._execute).start()

    def _adopt(self, record: TopologyRecord) -> None:
        """Take over a topology after a restart: find its workers, and finish what was under way."""
        self._machine.adopt(record)
        self._books[record.name] = ReportBook()
        for worker, found in record.workers.items():
            self._lost.follow(record, worker)
            try:
                self._handles[worker] = ray.get_actor(worker, namespace=cluster.NAMESPACE)
            except ValueError:
                if found.phase != "starting" and record.state not in OVER:
                    missing = partial(self._lost.missing, record.name, cause="Ray knows nobody of that name")
                    self._answers.put(missing, worker)
                continue
            self._watch(record.name, worker)
        self._execute([each for each in self._machine.resume(record.name) if self._can(each)])

    def _can(self, instruction: Instruction) -> bool:
        """A worker that is to be told something has been found, or is still to be started."""
        return isinstance(instruction, Persist | StartWorker | Close | StartOver) or instruction.worker in self._handles

    # Requests of users.

    def submit(self, record: TopologyRecord, errors_max: int) -> None:
        """Start a topology whose graph and code are in the store."""
        with self._lock:
            nodes = self._nodes(record)
            instructions = self._machine.submit(record, nodes, self._controller.first_places(record, nodes))
            self._books[record.name] = ReportBook()
            self._errors.open(record.name, errors_max)
            for why in self._lost.doubtful.why():
                self._errors.note(record.name, "", RunError(why))
            self._results.pop(record.name, None)
            self._logs.pop(record.name, None)
            self._execute(instructions)

    def overview(self) -> list[dict[str, Any]]:
        """A line for each topology."""
        with self._lock:
            return [
                {
                    "name": record.name,
                    "state": record.state,
                    "policy": record.policy,
                    "workers": len(record.hosts()),
                    "tasks": len(record.placement),
                }
                for record in self._machine.topologies.values()
            ]

    def status(self, name: str) -> dict[str, Any]:
        """All that is known of a topology."""
        with self._lock:
            record = self._machine.find(name)
            return status_of(record, self._books[name], self._controller.slots(record))

    def ingest(self, name: str) -> dict[str, Any]:
        """What a sender needs to find the workers of a topology and to be let in."""
        with self._lock:
            record = self._machine.find(name)
            if record.state in OVER:
                raise UsageError(f"topology {name!r} is {record.state.lower()}: it takes no records any more")
            config = cloudpickle.loads(record.config)
            workers = [worker.address.endpoint for worker in record.workers.values()]
            return {
                "workers": [endpoint for endpoint in workers if endpoint],
                "starting": record.state == "INACTIVE" and not record.paused,
                "token": ingest_token(config, record.token),
                "tls": config.links,
            }

    def state(self, name: str) -> tuple[str, bytes]:
        """(state, pickled error); what `wait` asks for."""
        with self._lock:
            record = self._machine.find(name)
            done = record.state in OVER and not self._pending_results.get(name)
            return (record.state if done or record.state not in OVER else "ACTIVE"), record.error

    def ended(self, name: str) -> bool:
        """Whether every worker of the topology that was told to stop has done so."""
        with self._lock:
            return not any(worker.startswith(f"{name}/") for worker in (*self._ending, *self._collecting))

    def errors(self, name: str) -> list[dict[str, Any]]:
        """What went wrong in user code, newest last."""
        with self._lock:
            self._machine.find(name)
            return self._errors.of(name)

    def logs(self, name: str, number: int) -> tuple[int, list[LogLine]]:
        """(the number to ask for next, the lines from `number` on that are still kept)."""
        with self._lock:
            self._machine.find(name)
            return self._logs.setdefault(name, LogBook()).since(number)

    def results(self, name: str) -> list[tuple[str, bytes]]:
        """What the collecting sinks hold: kept from the end of the topology, or asked of the workers now."""
        with self._lock:
            record = self._machine.find(name)
            if record.state in OVER:
                return self._results.get(name, [])
            handles = [self._handles[worker] for worker in record.hosts() if worker in self._handles]
        return [pair for pairs in ray.get([handle.results.remote() for handle in handles]) for pair in pairs]

    def pause(self, name: str, paused: bool) -> None:
        """Deactivate or activate."""
        with self._lock:
            self._execute(self._machine.pause(name, paused))

    def kill(self, name: str, drain: bool) -> None:
        """End a topology."""
        with self._lock:
            self._execute(self._machine.kill(name, drain))

    def rebalance(self, name: str, parallelism: dict[str, int], workers: int | None) -> None:
        """Change parallelism while it runs; the number of workers, by a restart."""
        with self._lock:
            record = self._machine.find(name)
            if workers is None:
                instructions = self._machine.rescale(name, parallelism)
                self._controller.changed_by_hand(name)
                self._execute(instructions)
                return
            instructions = self._machine.rebalance(name, parallelism, workers, self._nodes(record))
            self._controller.changed_by_hand(name)
            self._books[name] = ReportBook()
            self._execute(instructions)

    def move(self, name: str, targets: dict[TaskId, str]) -> None:
        """Bring tasks to other workers while it runs."""
        with self._lock:
            instructions = self._machine.move(name, targets)
            self._controller.changed_by_hand(name)
            self._execute(instructions)

    def restart(self, name: str, parallelism: dict[str, int]) -> None:
        """Change parallelism by a restart from a savepoint."""
        with self._lock:
            uri = self._controller.restart_uri(self._machine.find(name))
            instructions = self._machine.restart(name, uri, parallelism)
            self._controller.changed_by_hand(name)
            self._execute(instructions)

    def savepoint(self, name: str, uri: str, stop: bool) -> int:
        """Begin a savepoint; gives its number, to ask for it with."""
        return self._saver.begin(self._lock, name, uri, stop)

    def cancel_savepoint(self, name: str, number: int, why: str) -> None:
        """Give up a savepoint that is still under way."""
        with self._lock:
            self._execute(self._machine.cancel_savepoint(name, number, why))

    def savepoint_result(self, name: str, number: int) -> dict[str, Any] | None:
        """How a savepoint ended; None while it is under way."""
        with self._lock:
            return self._saver.result(name, number)

    def set_policy(self, name: str, policy: str, control: ControlConfig) -> None:
        """Change which policy steers a topology."""
        with self._lock:
            instructions = self._machine.set_policy(name, policy, control)
            self._controller.changed_by_hand(name)
            self._execute([*instructions, *self._controller.fill_pool(name)])

    def explain(self, name: str) -> list[dict[str, Any]]:
        """What the topology's policies decided, oldest first."""
        with self._lock:
            self._machine.find(name)
            return self._controller.decisions(name)

    def history(self, name: str) -> list[dict[str, Any]]:
        """What the monitor knows of the past, a line for each second."""
        with self._lock:
            self._machine.find(name)
            return self._books[name].meter.history()

    def stalls(self, name: str) -> list[Stall]:
        """When the topology's sinks heard nothing of a sender for a while, as far as their workers remember."""
        with self._lock:
            self._machine.find(name)
            return [stall for report in self._books[name].newest.values() for stall in report.stalls]

    def recording(self, name: str) -> dict[str, Any]:
        """The load and the costs that were measured, for the lab."""
        with self._lock:
            return recording_of(self._machine.find(name), self._books[name].meter, node_facts())

    def ping(self) -> int:
        """The process id; answers as soon as the coordinator is up."""
        return os.getpid()

    # From workers.

    def report(
        self,
        topology: str,
        worker: str,
        report: WorkerReport | None,
        complaints: list[Complaint],
        finished: bool,
    ) -> float | None:
        """A worker's counters; the answer is the load of its node, or None if the worker is not wanted any more."""
        with self._lock:
            try:
                record = self._machine.find(topology)
            except UnknownTopology:
                return None
            if not self._lost.heard(worker):
                return None  # its tasks are, or will be, somebody else's
            self._poison.look(topology)
            if report is not None and worker in record.workers:
                self._books[topology].add(worker, report)
                if report.healed:
                    self._execute(self._machine.relieved(topology, worker, report.version))
            for complaint in complaints:
                found = record.workers.get(worker)
                node = found.address.node if found is not None else ""
                self._errors.complain(topology, worker, node, complaint)
            if finished and report is not None:
                self._execute(self._machine.finished(topology, worker, report.version))
            known = record.workers.get(worker)
            if known is None:
                return None
            return node_load(
                known.address.node, self._cpus_of(known.address.node), self._machine.topologies, self._books
            )

    def logged(self, topology: str, lines: list[LogLine]) -> None:
        """What a worker's code has logged and printed."""
        with self._lock:
            if topology in self._machine.topologies:
                self._logs.setdefault(topology, LogBook()).add(lines)

    def failed(self, topology: str, worker: str, error: bytes) -> None:
        """A worker's loop has stopped with an error."""
        with self._lock:
            cause = cloudpickle.loads(error)
            if isinstance(cause, StateLost):
                instructions = self._machine.state_lost(topology, worker, error, str(cause))
            else:
                instructions = self._machine.failed(topology, worker, error)
            if instructions:
                self._errors.note(topology, worker, cause)
            self._execute(instructions)

    def progressed(self, topology: str, progress: Progress) -> None:
        """Tasks of a worker have come to other versions."""
        with self._lock:
            self._execute(self._machine.progressed(topology, progress))

    def gone(self, topology: str, worker: str) -> None:
        """A neighbour has found a worker's process gone."""
        self._lost.gone(topology, worker)

    def prepared(self, topology: str, number: int, tasks: list[TaskId]) -> None:
        """The states of some tasks at a checkpoint are in the store."""
        with self._lock:
            self._execute(self._machine.prepared(topology, number, tasks))

    def finished(self, topology: str, worker: str, version: int) -> None:
        """All tasks of a worker have ended."""
        with self._lock:
            self._execute(self._machine.finished(topology, worker, version))

    # Doing what the machine says.

    def _execute(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Persist(topology):
                    record = self._machine.topologies[topology]
                    self._store.put(f"topology/{topology}", pickle.dumps(record))
                case StartWorker(topology, worker, node, incarnation):
                    self._start_worker(topology, worker, node, incarnation)
                case Deploy(topology, worker):
                    self._deploy(topology, worker)
                case Go(_, worker):
                    self._handles[worker].go.remote()
                case Pause(_, worker, paused):
                    self._handles[worker].pause.remote(paused)
                case Empty(_, worker):
                    self._handles[worker].empty.remote()
                case Drain(_, worker):
                    self._handles[worker].drain.remote()
                case Collect(topology, worker):
                    self._collect(topology, worker)
                case StopWorker(_, worker):
                    self._stop_worker(worker)
                case Fence(topology, worker, number):
                    self._fence(topology, worker, number)
                case Start(topology, worker, number, restores):
                    self._restore(topology, worker, number, restores)
                case Park():
                    self._mover.park(instruction)
                case Checkpoint(_, worker, number):
                    self._handles[worker].checkpoint.remote(number)
                case Committed(_, worker, number):
                    self._handles[worker].committed.remote(number)
                case StartOver(topology, why, asked):
                    self._start_over(topology, why, asked)
                case Hold() | Cut() | Save() | Resume() | Close():
                    self._saver.do(instruction)

    def _start_over(self, topology: str, why: str, asked: bool) -> None:
        """Say loudly that the topology goes back, and let it; the machine waits, so that a restart finds it waiting.

        One that was asked for loses nothing: it goes on where it stopped, and its counters go on too.
        """
        record = self._machine.topologies[topology]
        if not asked:
            place = record.fall_back.uri if record.fall_back is not None else ""
            said = f"{why}: starting again from savepoint {place}; what was processed since is processed again"
            _LOG.error("topology %s: %s", topology, said)
            self._errors.note(topology, "", RunError(said))
            self._books[topology] = ReportBook()
        self._books[topology].restarted()
        self._execute(self._machine.start_over(topology, self._nodes(record)))

    def _start_worker(self, topology: str, worker: str, node: str, incarnation: int) -> None:
        record = self._machine.topologies[topology]
        self._handles[worker] = self._worker_class.options(
            name=worker,
            namespace=cluster.NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
            runtime_env=cluster.worker_environment(),
        ).remote(topology, worker, incarnation, record.token, record.config)
        self._lost.follow(record, worker)
        self._watch(topology, worker)
        self._ask_start(topology, worker)

    def _watch(self, topology: str, worker: str) -> None:
        """Learn of the end of a worker's process from a call that only ends with it."""
        if worker not in self._handles:
            return  # it was told to stop
        self._answers.when(
            self._handles[worker].live.remote(),
            lambda _: None,
            lambda error: self._lost.failed_to_answer(topology, worker, error, partial(self._watch, topology, worker)),
        )

    def _ask_start(self, topology: str, worker: str) -> None:
        def started(answer: Any) -> None:
            address, pid = answer
            known = self._machine.topologies[topology].workers.get(worker)
            if known is not None and known.address.node != address.node:
                planned = RunError(f"worker {worker} is on node {address.node}, not on {known.address.node} as planned")
                self._errors.note(topology, worker, planned)
            if worker not in self._handles:
                return  # it was told to stop before it was up
            self._lost.heard(worker)
            self._execute(self._machine.started(topology, worker, address, pid))

        self._answers.when(
            self._handles[worker].start.remote(),
            started,
            lambda error: self._lost.failed_to_answer(
                topology, worker, error, partial(self._ask_start, topology, worker)
            ),
        )

    def _deploy(self, topology: str, worker: str) -> None:
        record = self._machine.topologies[topology]
        reference = self._handles[worker].deploy.remote(record.code, record.deployment(worker))

        def refused(error: BaseException) -> None:
            if isinstance(error, ray.exceptions.RayActorError):
                # A spare may end while it is being set up; told again, it does only what it has not done.
                self._lost.failed_to_answer(topology, worker, error, partial(self._deploy, topology, worker))
                return
            cause = getattr(error, "cause", error)
            failure = cause if isinstance(cause, RStreamError) else RunError(f"worker {worker}: {cause}")
            self.failed(topology, worker, cloudpickle.dumps(failure))

        self._answers.when(reference, lambda _: self._execute(self._machine.deployed(topology, worker)), refused)

    def _fence(self, topology: str, worker: str, number: int) -> None:
        record = self._machine.topologies[topology]
        lost = record.round.lost if record.round is not None else []

        def again() -> None:
            if record.round is not None and record.round.number == number:
                self._fence(topology, worker, number)

        def answered(answer: tuple[dict[TaskId, LostTask], list[TaskId]]) -> None:
            try:
                instructions = self._machine.fenced(topology, worker, number, *answer)
            except (ProtocolError, StateLost) as error:
                self.failed(topology, worker, cloudpickle.dumps(error))
            else:
                self._execute(instructions)

        self._answers.when(
            self._handles[worker].fence.remote(record.deployment(), lost),
            answered,
            lambda error: self._lost.failed_to_answer(topology, worker, error, again),
        )

    def _restore(self, topology: str, worker: str, number: int, restores: list[Restore]) -> None:
        self._answers.when(
            self._handles[worker].restore.remote(restores),
            lambda _: self._execute(self._machine.restored(topology, worker, number)),
            lambda error: self._lost.failed_to_answer(topology, worker, error),
        )

    def _collect(self, topology: str, worker: str) -> None:
        self._pending_results[topology] = self._pending_results.get(topology, 0) + 1
        kept = self._results.setdefault(topology, [])
        self._collecting[worker] = False

        def collected(pairs: list[tuple[str, bytes]]) -> None:
            done()
            if sum(len(content) for _, content in (*kept, *pairs)) <= RESULT_BYTES_MAX:
                kept.extend(pairs)

        def done() -> None:
            self._pending_results[topology] -= 1
            if self._collecting.pop(worker):
                self._stop_worker(worker)

        self._answers.when(self._handles[worker].results.remote(), collected, lambda _: done())

    def _stop_worker(self, worker: str) -> None:
        if worker in self._collecting:
            self._collecting[worker] = True
            return
        self._lost.forget(worker)
        handle = self._handles.pop(worker, None)
        if handle is None:
            return
        self._ending.add(worker)

        def stopped(_: Any) -> None:
            self._ending.discard(worker)
            ray.kill(handle)

        self._answers.when(handle.stop.remote(), stopped, stopped)

    def _died(self, topology: str, worker: str, cause: str) -> None:
        self._poison.crashed(topology, worker)
        error = RunError(
            f"worker {worker} died ({cause.strip().splitlines()[0] if cause.strip() else 'no cause given'})"
        )
        noticed_s, known = self._clock.now(), self._machine.topologies.get(topology)
        tasks = [] if known is None else [str(task) for task, host in known.placement.items() if host == worker]
        nodes = [] if known is None else self._nodes(known)
        self._lost.forget(worker)
        instructions = self._machine.died(topology, worker, cloudpickle.dumps(error), nodes, self._lost.doubted)
        if instructions:
            self._errors.note(topology, worker, error)
            # Only then is it a death: a worker that was told to stop ends too, and its last report is kept.
            self._books[topology].died(worker, noticed_s, tasks)
        handle = self._handles.pop(worker, None)
        if handle is not None:
            ray.kill(handle)  # it may only be cut off; nobody speaks to it any more, but it should not linger
        self._execute(instructions)

    def _nodes(self, record: TopologyRecord) -> list[str]:
        return cluster.nodes_for_work(self._lost.doubtful)[: cloudpickle.loads(record.config).nodes]

    def _cpus_of(self, node: str) -> float:
        if node not in self._cpus:
            self._cpus.update({each.id: each.cpus for each in cluster.nodes()})
        return self._cpus.setdefault(node, 0.0)
