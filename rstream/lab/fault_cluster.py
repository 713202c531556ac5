"""A cluster on virtual time: workers, links with delays, and a coordinator with its journal. It has no faults itself.

It is the host of the real core: it does what the coordinator machine instructs, carries frames between the worker
machines, and gives each its turn. `rstream.lab.faults` breaks it.
"""

from __future__ import annotations

import copy
import heapq
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rstream.core import messages
from rstream.core.coordinator import CoordinatorMachine
from rstream.core.deployment import WorkerAddress
from rstream.core.instructions import (
    Checkpoint,
    Collect,
    Committed,
    Deploy,
    Drain,
    Empty,
    Fence,
    Go,
    Instruction,
    Park,
    Pause,
    Persist,
    Start,
    StartWorker,
    StopWorker,
)
from rstream.core.messages import Frame, Greet
from rstream.core.placement import deploy
from rstream.core.records import TopologyRecord
from rstream.core.task import Limits
from rstream.core.worker import WorkerMachine
from rstream.errors import ProtocolError, SinkFenced, StateLost
from rstream.graph import Operator
from rstream.lab.fault_bolts import SITUATIONS
from rstream.lab.fault_invariants import Invariants
from rstream.lab.fault_places import MIXED, STYLES, arrange, node_names, worker_count
from rstream.lab.fault_topologies import Linger, Workload, make_workload

VALIDATE_ALL = 8
"""What must hold between workers is checked so many times less often."""
REPORT_S = 0.25
TURN_S = 0.001


@dataclass(slots=True)
class Pipe:
    """One connection: frames in order, each way, with a delay; it can be cut."""

    dialler: str
    acceptor: str
    number: int
    open: bool = True
    due_s: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})


@dataclass(slots=True)
class SimWorker:
    """A worker process in the simulation."""

    name: str
    incarnation: int
    machine: WorkerMachine | None = None
    running: bool = False
    alive: bool = True
    cut_off: bool = False
    turn_at_s: float = -1.0
    told_finished: bool = False
    turns: int = 0
    dials: bool = False
    relieved: int = -1
    """The tables by which it has said that all that it has is safe."""


class SimulatedCluster:
    """The workers of one topology and their coordinator, drawn from a seed."""

    exact = True
    """What is lost comes back exactly; else it is processed again, at least once."""
    checkpointed = False
    """State is kept by checkpoints in a store, instead of on other workers."""
    batches: Sequence[int] = (2, 5, 16)
    """So many tuples travel together at most, one of these."""
    windows: Sequence[int] = (4, 10, 40)
    """So many tuples are sent ahead at most, one of these."""
    stripes_bytes: Sequence[int] = (64, 500, 1 << 18, 1 << 18)
    """In pieces of how many bytes snapshots travel, one of these."""
    varied = False
    """Topologies have more kinds of groupings and of state."""
    validate_every = 16
    """Invariants are checked at every so many turns of a worker; at each one the check would be most of the work. With
    0 they never are."""

    def __init__(
        self,
        seed: int,
        trace: Callable[[str], None] | None = None,
        workload: Workload | None = None,
        style: str | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self._extras = extras = random.Random(f"extras/{seed}")
        self.seed, self.trace = seed, trace
        self.now_s = 0.0
        self.events: Counter[str] = Counter()
        self.harmed_tasks: set[str] = set()
        """Tasks of which fragments were lost or spoiled."""
        self._invariants = Invariants()
        self._turns = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._pushed = 0
        windows, variety = random.Random(f"windows/{seed}"), random.Random(f"variety/{seed}") if self.varied else None
        self.workload: Workload = workload or make_workload(self.random, extras, windows, variety)
        self.workers: dict[str, SimWorker] = {}
        self.pipes: dict[tuple[str, str], Pipe] = {}
        self._pipe_number = 0
        self.coordinator = CoordinatorMachine()
        self.journal: dict[str, bytes] = {}
        self.results: dict[str, list[Any]] = {}
        self.interval_s = self.random.choice([0.05, 0.2, 1.0])
        self.limits = Limits(
            self.random.choice(self.batches),
            self.random.choice(self.windows),
            slice_s=0.0,  # one piece of work a turn, so that much happens while a snapshot is packed or loaded
            slice_items=self.random.choice([1, 8, 64, 64]),
            stripe_bytes=self.random.choice(self.stripes_bytes),
        )
        if extras.random() < 0.25:
            self.limits.retained_bytes = extras.choice([800, 4000])
            self.events["little may be retained"] += 1
        if any(isinstance(operator.logic, Linger) for operator in self.workload.graph.operators):
            self.events["timers"] += 1
        for operator in self.workload.graph.operators:
            if operator.name in SITUATIONS:
                self.events[SITUATIONS[operator.name]] += 1
        self.delay_s = self.random.choice([0.001, 0.01, 0.05])
        self.style = style or self.random.choices(list(STYLES), list(STYLES.values()))[0]
        if self.style != MIXED:
            self.events[self.style] += 1
            self.interval_s = 1.0  # snapshots are rare, so that much depends on records
        nodes = node_names(self.style, self.random)
        first = deploy(self.workload.graph, ["first"])
        record = TopologyRecord(
            name=self.workload.graph.name,
            outline=self.workload.graph.outline(),
            splits=first.splits,
            parallelism=dict(first.parallelism),
            policy="static",
            worker_count=worker_count(self.style, len(self.workload.graph.operators), self.random),
            spare_count=self.random.randint(1, 2),
            pool={"count": seed % 3, "number": seed // 3 % 2},
            token="",
            code="",
            config=b"",
            checkpointed=self.checkpointed,
            exact=self.exact,
        )
        self.name = record.name
        first_steps = self.coordinator.submit(record, nodes)
        arrange(record, self.style, self.random)
        self._do(first_steps)

    # Time.

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self.at(self.now_s + delay_s, action)

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Do something at a time; what is due at the same time is done in the order in which it was asked for."""
        self._pushed += 1
        heapq.heappush(self._queue, (at_s, self._pushed, action))

    @property
    def record(self) -> TopologyRecord:
        """The coordinator's record of the topology."""
        return self.coordinator.topologies[self.name]

    def _say(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now_s:9.4f} {text}")

    def _delay(self) -> float:
        return self.random.uniform(0.0, self.delay_s)

    # The coordinator's instructions.

    def _do(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if self._coordinator_ends():
                return
            match instruction:
                case Persist(topology):
                    self.journal[topology] = pickle.dumps(self.coordinator.topologies[topology])
                case StartWorker(_, worker, _, incarnation):
                    if worker not in self.workers:
                        self.workers[worker] = SimWorker(worker, incarnation)
                    self.after(self._delay() + 0.01, lambda w=worker: self._started(w))  # type: ignore[misc]
                case Deploy(_, worker):
                    self._to_worker(worker, self._deploy)
                case Go(_, worker):
                    self._to_worker(worker, self._go)
                case Fence(_, worker, number):
                    table = self.record.deployment()
                    lost = list(self.record.round.lost) if self.record.round is not None else []
                    self._to_worker(worker, lambda w, n=number, t=table, x=lost: self._fence(w, n, t, x))  # type: ignore[misc]
                case Start(_, worker, number, restores):
                    self._to_worker(worker, lambda w, n=number, r=restores: self._start(w, n, r))  # type: ignore[misc]
                case Park(_, worker):
                    self._to_worker(worker, lambda w, park=instruction: self._park(w, park))  # type: ignore[misc]
                case Checkpoint(_, worker, number):
                    self._to_worker(worker, lambda w, n=number: self._tell(w, lambda m: m.checkpoint(n)))  # type: ignore[misc]
                case Committed(_, worker, number):
                    self._to_worker(worker, lambda w, n=number: self._tell(w, lambda m: m.committed(n)))  # type: ignore[misc]
                case Collect(_, worker):
                    self._collect(self.workers[worker])
                case Empty(_, worker):
                    self._to_worker(worker, self._empty)
                case StopWorker(_, worker):
                    if worker not in self.record.workers and self.workers[worker].alive:
                        self.end_process(self.workers[worker])  # it retired; at the end of a run nobody minds
                case Pause() | Drain():
                    pass
                case _:
                    self._do_more(instruction)

    def _do_more(self, instruction: Instruction) -> None:
        """What only some clusters are told: checkpoints, savepoints."""

    def _coordinator_ends(self) -> bool:
        """Whether the coordinator ends here, between two of its steps; a cluster without faults never does that."""
        return False

    def _to_worker(self, worker: str, action: Callable[[SimWorker], None]) -> None:
        target = self.workers[worker]

        def arrive() -> None:
            if target.alive and not target.cut_off:
                action(target)

        self.after(self._delay(), arrive)

    def _to_coordinator(self, worker: SimWorker, event: Callable[[], list[Instruction]]) -> None:
        def arrive() -> None:
            if not worker.cut_off:
                self._do(event())

        self.after(self._delay(), arrive)

    def _started(self, worker: str) -> None:
        found = self.workers[worker]
        node = self.record.workers[worker].address.node if worker in self.record.workers else ""
        if found.alive and node:
            address = WorkerAddress(worker, node, found.incarnation)
            self._to_coordinator(found, lambda: self.coordinator.started(self.name, worker, address, 0))

    def _deploy(self, worker: SimWorker) -> None:
        if worker.machine is None:
            deployment = self.record.deployment(worker.name)
            deployment = type(deployment)(**{**deployment.__dict__, "graph": self.workload.graph})
            worker.machine = WorkerMachine(
                worker.name,
                deployment,
                _copy,
                lambda: self.now_s,
                self.limits,
                incarnation=worker.incarnation,
                backup_interval_s=None if self.checkpointed else self.interval_s,
                seed=self.seed,
                checkpointed=self.checkpointed,
                exact=self.exact,
            )
            worker.machine.open(self.now_s)
            self._dial_later(worker)
        self._to_coordinator(worker, lambda: self.coordinator.deployed(self.name, worker.name))

    def _empty(self, worker: SimWorker) -> None:
        if worker.machine is not None:
            worker.machine.empty()

    def _go(self, worker: SimWorker) -> None:
        worker.running = True
        self._turn_soon(worker)

    def _fence(self, worker: SimWorker, number: int, table: Any, lost: list[Any]) -> None:
        assert worker.machine is not None, "fenced after deployment"
        table = type(table)(**{**table.__dict__, "graph": self.workload.graph})
        answer = worker.machine.fence(table, lost)
        worker.relieved = -1
        for pipe in list(self.pipes.values()):
            gone = {pipe.dialler, pipe.acceptor} - set(worker.machine.deployment.workers)
            if worker.name in (pipe.dialler, pipe.acceptor) and gone:
                self._cut(pipe)
        self._dial_later(worker)
        self._turn_soon(worker)
        ended = worker.machine.ended_tasks
        self._to_coordinator(worker, lambda: self.coordinator.fenced(self.name, worker.name, number, answer, ended))

    def _start(self, worker: SimWorker, number: int, restores: list[Any]) -> None:
        assert worker.machine is not None, "started after deployment"
        worker.running = True
        worker.machine.start([each for each in restores if each.task not in worker.machine.by_id])
        worker.told_finished = False
        self._dial_later(worker)
        self._turn_soon(worker)
        self._wait_restored(worker, number)

    def _wait_restored(self, worker: SimWorker, number: int) -> None:
        if not worker.alive or worker.machine is None:
            return
        if worker.machine.restoring:
            self.after(0.01, lambda: self._wait_restored(worker, number))
            return
        self._to_coordinator(worker, lambda: self.coordinator.restored(self.name, worker.name, number))

    def _park(self, worker: SimWorker, park: Park) -> None:
        if worker.machine is not None:
            worker.machine.park(park.order, park.version, park.targets)
            self._turn_soon(worker)
            self._wait_parked(worker, park.order)

    def _wait_parked(self, worker: SimWorker, order: int) -> None:
        if not worker.alive or worker.machine is None:
            return
        has_parked = worker.machine.has_parked(order)
        if has_parked:
            since_s = worker.machine.parked_since(order)
            self._to_coordinator(worker, lambda: self._parked(worker, order, since_s))
        elif has_parked is not None:
            self.after(0.003, lambda: self._wait_parked(worker, order))

    def _parked(self, worker: SimWorker, order: int, since_s: float) -> list[Instruction]:
        instructions = self.coordinator.parked(self.name, worker.name, order, since_s)
        self.events["moved"] += bool(instructions)
        return instructions

    def _tell(self, worker: SimWorker, what: Callable[[WorkerMachine], None]) -> None:
        machine = worker.machine
        assert machine is not None, "told after deployment"
        self._as_process(worker, lambda: what(machine))
        self._turn_soon(worker)

    def _exchange_with_store(self, worker: SimWorker) -> None:
        """Write and read checkpoints, which a cluster that has none never asks for."""

    def _collect(self, worker: SimWorker) -> None:
        assert worker.machine is not None, "results come from a machine"
        for task in worker.machine.bolts:
            if hasattr(task.bolt, "results"):
                self.results.setdefault(task.id.operator, []).extend(task.bolt.results())

    # Links.

    def _dial_later(self, worker: SimWorker) -> None:
        if not worker.dials:
            worker.dials = True
            self.after(self._delay() + 0.001, lambda: self._dial(worker))

    def _dial(self, worker: SimWorker) -> None:
        worker.dials = False
        if not worker.alive or worker.machine is None:
            return
        for peer in list(worker.machine.out_links):
            pipe = self.pipes.get((worker.name, peer))
            other = self.workers.get(peer)
            if (pipe is None or not pipe.open) and other is not None and other.alive:
                if other.machine is None:
                    self._dial_later(worker)
                    continue
                self._pipe_number += 1
                pipe = Pipe(worker.name, peer, self._pipe_number)
                self.pipes[worker.name, peer] = pipe
                self._send(pipe, True, worker.machine.greet())

    def _send(self, pipe: Pipe, forward: bool, frame: Frame) -> None:
        due_s = max(pipe.due_s[forward], self.now_s + self._delay())
        pipe.due_s[forward] = due_s
        self.at(due_s, lambda: self._arrive(pipe, forward, frame))

    def _send_soon(self, pipe: Pipe, forward: bool, frame: Frame) -> None:
        """Send a frame of a turn; another cluster may let those of one turn travel together."""
        self._send(pipe, forward, frame)

    def _flush(self) -> None:
        """Everything of a turn is on its way."""

    def _arrive(self, pipe: Pipe, forward: bool, frame: Frame) -> None:
        source, target = (pipe.dialler, pipe.acceptor) if forward else (pipe.acceptor, pipe.dialler)
        worker = self.workers[target]
        if not pipe.open or not worker.alive or worker.machine is None:
            return
        message = messages.decode(frame.header)
        if isinstance(message, Greet):
            if not worker.machine.on_greet(message):
                self._cut(pipe)
        else:
            machine = worker.machine
            self._as_process(worker, lambda: machine.handle(source, message, frame.body))
        self._turn_soon(worker)

    def _as_process(self, worker: SimWorker, call: Callable[[], Any]) -> Any:
        """Run something of a worker: one that was refused a commit ends, and what a cut-off one meets is its own."""
        try:
            return call()
        except (SinkFenced, ProtocolError, StateLost):
            if not worker.cut_off:
                raise
            self.end_process(worker)
            return False

    def end_process(self, worker: SimWorker) -> None:
        """The process is gone; its connections end, some after what was on its way has arrived."""
        worker.alive = False
        for pipe in list(self.pipes.values()):
            if pipe.open and worker.name in (pipe.dialler, pipe.acceptor):
                due_s = pipe.due_s[pipe.dialler == worker.name]
                if due_s > self.now_s and self._arrives_anyway(pipe):
                    self.at(due_s, lambda pipe=pipe: self._cut(pipe))  # type: ignore[misc]
                else:
                    self._cut(pipe)

    def _arrives_anyway(self, pipe: Pipe) -> bool:
        """Whether what was on its way when its sender ended arrives."""
        return self._extras.random() < 0.5

    def _cut(self, pipe: Pipe) -> None:
        if not pipe.open:
            return
        pipe.open = False
        dialler = self.workers[pipe.dialler]
        if dialler.alive and dialler.machine is not None:
            dialler.machine.on_lost(pipe.acceptor)
            self._dial_later(dialler)

    # Workers at work.

    def _turn_soon(self, worker: SimWorker) -> None:
        if worker.turn_at_s < 0.0 or worker.turn_at_s > self.now_s + TURN_S:
            self._turn_at(worker, self.now_s + self.random.uniform(0.0, TURN_S))

    def _turn_at(self, worker: SimWorker, at_s: float) -> None:
        if worker.turn_at_s < 0.0 or at_s < worker.turn_at_s:
            worker.turn_at_s = at_s
            self.at(at_s, lambda: self._turn(worker))

    def _turn(self, worker: SimWorker) -> None:
        machine = worker.machine
        if not worker.alive or machine is None or worker.turn_at_s != self.now_s:
            return  # dead, or an earlier turn took this one's place
        worker.turn_at_s = -1.0
        worked = bool(self._as_process(worker, machine.run_pass)) if worker.running else False
        if not worker.alive:
            return
        leaving = list(machine.outgoing())
        worker.turns += 1
        if self.validate_every and worker.turns % self.validate_every == 0:
            machine.validate()
            for peer in {peer for peer, ours, frame in leaving if ours and frame.body}:
                machine.validate_sent(peer)
        for peer, ours, frame in leaving:
            pipe = self.pipes.get((worker.name, peer) if ours else (peer, worker.name))
            if pipe is not None and pipe.open:
                self._send_soon(pipe, ours, frame)
                worked = True
        self._flush()
        self._exchange_with_store(worker)
        progress = machine.take_progress()
        if progress:
            self._to_coordinator(worker, lambda: self.coordinator.progressed(self.name, progress))
        self._tell_relieved(worker, machine)
        self._turns += 1
        if self.validate_every and self._turns % (VALIDATE_ALL * self.validate_every) == 0:
            self.validate()
        if any((worker.name, peer) not in self.pipes for peer in machine.out_links):
            self._dial_later(worker)
        if worked:
            self._turn_soon(worker)
        else:
            wake_s = machine.next_wake_s()
            if wake_s is not None and worker.running:
                self._turn_at(worker, max(wake_s, self.now_s + 0.001))
        if worker.running and not worked and not worker.told_finished and machine.finished:
            worker.told_finished = True
            version = machine.deployment.version
            self._to_coordinator(worker, lambda: self.coordinator.finished(self.name, worker.name, version))
            self.after(REPORT_S, lambda: self._tell_again(worker))

    def is_well(self) -> bool:
        """Nothing is being recovered from; a cluster without faults always is."""
        return True

    def validate(self) -> None:
        """Check what must hold between workers, and in the coordinator."""
        self.coordinator.validate()
        machines = {
            worker.name: worker.machine
            for worker in self.workers.values()
            if worker.machine is not None and worker.alive and not worker.cut_off and worker.name in self.record.workers
        }

        def idle(source: str, target: str) -> bool:
            pipe = self.pipes.get((source, target))
            return pipe is not None and pipe.open and pipe.due_s[True] < self.now_s

        self._invariants.check(self.record, machines, self.is_well(), self.harmed_tasks, idle)

    def _tell_relieved(self, worker: SimWorker, machine: WorkerMachine) -> None:
        version = machine.deployment.version
        if machine.deployment.retiring and worker.relieved != version and machine.healed:
            worker.relieved = version
            self._to_coordinator(worker, lambda: self.coordinator.relieved(self.name, worker.name, version))

    def _tell_again(self, worker: SimWorker) -> None:
        """Every report of a worker that has finished says so."""
        if worker.alive:
            worker.told_finished = False
            self._turn_soon(worker)


def _copy(operator: Operator) -> Any:
    return copy.deepcopy(operator.logic)
