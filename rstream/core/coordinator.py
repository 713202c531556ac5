"""The coordinator machine: which topologies there are, on which workers, in which state. Events in, instructions out.

It never carries data and never loads user code: it knows graphs by their outline. Every change of a topology begins
with `Persist`, so that a coordinator that comes back from its journal knows what was under way; instructions are
idempotent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from rstream.config import ControlConfig
from rstream.core.backup import LostTask
from rstream.core.channel import TaskId
from rstream.core.checkpointing import lose_all, plan_reload
from rstream.core.deployment import WorkerAddress
from rstream.core.instructions import (
    Collect,
    Deploy,
    Drain,
    Empty,
    Fence,
    Go,
    Instruction,
    Pause,
    Persist,
    Start,
    StartOver,
    StartWorker,
    StopWorker,
)
from rstream.core.live_changes import can_change
from rstream.core.placement import aligned
from rstream.core.poison import Evidence, count_evidence
from rstream.core.records import OVER, Checkpoints, Round, State, TopologyRecord, WorkerRecord
from rstream.core.recovery import plan_restore
from rstream.core.restoring import Restore
from rstream.core.savepoints import Savepoints
from rstream.core.versions import Version
from rstream.errors import ClusterError, UnknownTopology, UsageError
from rstream.graph import PARALLELISM_MAX
from rstream.schedulers.tables import Slot


class CoordinatorMachine(Savepoints):
    """All topologies of a cluster."""

    def __init__(self) -> None:
        self.topologies: dict[str, TopologyRecord] = {}
        self.incarnation = 0

    def adopt(self, record: TopologyRecord) -> None:
        """Take over a topology from the journal."""
        self.topologies[record.name] = record
        newest = max((worker.address.incarnation for worker in record.workers.values()), default=0)
        self.incarnation = max(self.incarnation, newest)

    def find(self, name: str) -> TopologyRecord:
        """The topology of that name, or an error that lists those there are."""
        if name not in self.topologies:
            known = ", ".join(sorted(self.topologies)) or "none"
            raise UnknownTopology(f"no topology {name!r} on this cluster; there are: {known}")
        return self.topologies[name]

    # Requests of users.

    def submit(
        self, record: TopologyRecord, nodes: Sequence[str], places: Mapping[TaskId, Slot] | None = None
    ) -> list[Instruction]:
        """Start a topology on these nodes, its tasks in these slots if any are named."""
        before = self.topologies.get(record.name)
        if before is not None and before.state not in OVER:
            raise ClusterError(
                f"a topology named {record.name!r} is already {before.state.lower()} on this cluster; "
                f"kill it first (rstream kill {record.name}) or give this one another name"
            )
        self.topologies[record.name] = record
        return self._start(record, nodes, places=places)

    def pause(self, name: str, paused: bool) -> list[Instruction]:
        """Storm's deactivate and activate: sources stop being read, or go on."""
        record = self._running(name, "deactivate" if paused else "activate")
        record.paused = paused
        if any(worker.phase in ("starting", "started", "ready") for worker in record.hosts().values()):
            return [Persist(name)]  # it takes effect when the workers run
        record.state = "INACTIVE" if paused else "ACTIVE"
        self._note_changing(record)
        pauses = [Pause(name, worker, paused) for worker in record.hosts()]
        return [Persist(name), *pauses, *(self._advance(record) if not paused else [])]

    def empty(self, name: str) -> list[Instruction]:
        """Drop what is queued at all bolts, as systems do that restart without a memory of it."""
        record = self._running(name, "empty")
        if record.recovers:
            raise UsageError(
                f"topology {name!r}: restart-drop loses what is queued, which is for delivery: at_most_once alone"
            )
        return [Empty(name, worker) for worker in record.hosts()]

    def kill(self, name: str, drain: bool) -> list[Instruction]:
        """End a topology, after what is on its way has been processed if `drain`."""
        record = self._running(name, "kill")
        if drain and all(worker.phase in ("running", "finished") for worker in record.hosts().values()):
            record.draining = "KILLED"
            order = record.savepoint
            ends = self.cancel_savepoint(name, order.number, "the topology was killed") if order is not None else []
            return [Persist(name), *ends, *self._drains(record)]
        return self._over(record, "KILLED")

    def _drains(self, record: TopologyRecord) -> list[Instruction]:
        return [Drain(record.name, worker) for worker in record.hosts()] if record.draining else []

    def rebalance(
        self, name: str, parallelism: Mapping[str, int], workers: int | None, nodes: Sequence[str]
    ) -> list[Instruction]:
        """Change parallelism or worker count by starting the topology anew."""
        record = self._running(name, "rebalance")
        for step, tasks in parallelism.items():
            if step not in record.parallelism:
                known = ", ".join(record.parallelism)
                raise UsageError(f"topology {name!r} has no step {step!r}; its steps: {known}")
            if not 1 <= tasks <= PARALLELISM_MAX:
                raise UsageError(f"step {step!r}: parallelism must be between 1 and {PARALLELISM_MAX}, got {tasks}")
        stops: list[Instruction] = [StopWorker(name, worker) for worker in record.workers]
        record.parallelism = {**record.parallelism, **parallelism}
        record.worker_count = workers or record.worker_count
        record.restarts += 1
        record.version += 1
        return [*stops, *self._start(record, nodes, "REBALANCING")]

    def set_policy(self, name: str, policy: str, control: ControlConfig) -> list[Instruction]:
        """Change which policy steers a topology, and within what limits."""
        record = self._running(name, "rebalance")
        record.policy, record.control = policy, control
        return [Persist(name)]

    def _running(self, name: str, verb: str) -> TopologyRecord:
        record = self.find(name)
        if record.state in OVER:
            raise UsageError(f"topology {name!r} is {record.state.lower()}: there is nothing to {verb}")
        return record

    def _start(
        self,
        record: TopologyRecord,
        nodes: Sequence[str],
        state: State = "INACTIVE",
        places: Mapping[TaskId, Slot] | None = None,
    ) -> list[Instruction]:
        if not nodes:
            raise ClusterError("the cluster has no node that is alive")
        record.state = state
        self._give_up_savepoint(record, "the topology was started anew")
        record.starts += 1
        record.draining = None
        record.workers = {}
        slots = sorted(set(places.values())) if places else []
        if slots:
            record.worker_count = len(slots)
        for number in range(record.worker_count + record.spare_count):
            self.incarnation += 1
            spare = number >= record.worker_count
            node = slots[number].node if number < len(slots) else nodes[number % len(nodes)]
            worker = f"{record.name}/{'s' if spare else 'w'}{number}.{self.incarnation}"
            slot = slots[number].process if number < len(slots) else None
            record.workers[worker] = WorkerRecord(WorkerAddress(worker, node, self.incarnation), spare=spare, slot=slot)
        hosts = list(record.hosts())
        pools = {step: record.pool.get(step, 0) for step in record.parallelism if can_change(record, step)}
        record.instances = {step: tasks + pools.get(step, 0) for step, tasks in record.parallelism.items()}
        record.placement = aligned(record.outline, record.instances, hosts)
        if places:
            record.placement.update({task: hosts[slots.index(slot)] for task, slot in places.items()})
        record.origin = dict(record.placement)
        record.incarnations = {}
        record.versions = {
            step: [Version.first(tasks, record.instances[step])] for step, tasks in record.parallelism.items()
        }
        record.elastic = {step for step, tasks in pools.items() if tasks}
        record.born, record.ended = {}, set()
        record.targets, record.reached, record.settled = {}, {}, {}
        record.loads, record.wishes = {}, {}
        record.moves, record.parking, record.relieved = {}, None, set()
        record.checkpoints = Checkpoints(record.checkpoints.number)
        record.round = None
        return [
            Persist(record.name),
            *(
                StartWorker(record.name, name, worker.address.node, worker.address.incarnation)
                for name, worker in record.workers.items()
            ),
        ]

    # What happens to workers.

    def started(self, topology: str, worker: str, address: WorkerAddress, pid: int) -> list[Instruction]:
        """A worker process is up and listens; when all are, they get their tasks."""
        record, found = self._of(topology, worker)
        if record is None or found is None or found.phase != "starting":
            return []
        found.address, found.pid, found.phase = address, pid, "started"
        if found.spare:
            deploy = [Deploy(topology, worker)] if record.state in ("ACTIVE", "REBALANCING") else []
            return [Persist(topology), *deploy]
        if any(each.phase == "starting" for each in record.hosts().values()):
            return [Persist(topology)]
        return [Persist(topology), *(Deploy(topology, name) for name in record.hosts())]

    def deployed(self, topology: str, worker: str) -> list[Instruction]:
        """A worker's tasks are open; when all are, they run."""
        record, found = self._of(topology, worker)
        if record is None or found is None or found.phase != "started":
            return []
        if found.spare and record.round is not None and record.round.lost:
            return []  # new tables would make those who are being brought back start over; they follow afterwards
        found.phase = "ready"
        if found.spare:
            record.version += 1
            return self._fence_all(record) if record.state in ("ACTIVE", "REBALANCING") else []
        if any(each.phase != "ready" for each in record.hosts().values()):
            return []
        for each in record.hosts().values():
            each.phase = "running"
        record.state = "INACTIVE" if record.paused else "ACTIVE"
        self._note_changing(record)
        pauses = [Pause(topology, name, True) for name in record.hosts()] if record.paused else []
        spares = [Deploy(topology, name) for name, each in record.workers.items() if each.phase == "started"]
        goes = [Go(topology, name) for name in record.hosts()]
        return [Persist(topology), *pauses, *goes, *spares, *self._advance(record)]

    def finished(self, topology: str, worker: str, version: int) -> list[Instruction]:
        """All tasks that a worker had by these tables have ended; when all workers are there, the topology is over."""
        record, found = self._of(topology, worker)
        if record is None or found is None or found.phase != "running" or record.state in OVER:
            return []
        if version < record.placed:
            return []  # it may have more tasks by now, and will say so again
        if record.round is not None and worker in {record.placement[task] for task in record.round.lost}:
            return []  # it has nothing to do yet: its tasks are still to come, and it will say so again
        found.phase = "finished"
        return [Persist(topology), *self._end_if_finished(record)]

    def _end_if_finished(self, record: TopologyRecord) -> list[Instruction]:
        topology = record.name
        if record.round is not None or any(each.phase != "finished" for each in record.hosts().values()):
            return []
        collects: list[Instruction] = [Collect(topology, name) for name in record.hosts()]
        return [*collects, *self._over(record, record.draining or "FINISHED")]

    def failed(self, topology: str, worker: str, error: bytes) -> list[Instruction]:
        """User code or the worker's loop failed: the topology stops, with the first cause kept."""
        record, found = self._of(topology, worker)
        if record is None or found is None or record.state in OVER:
            return []
        record.error = error
        return self._over(record, "FAILED")

    def state_lost(self, topology: str, worker: str, error: bytes, why: str) -> list[Instruction]:
        """More of a task is lost than its backups cover: its last savepoint is what there is left, if there is one."""
        record, found = self._of(topology, worker)
        if record is None or found is None or record.state in OVER:
            return []
        record.error = error
        return self._lost_for_good(record, why)

    def _lost_for_good(self, record: TopologyRecord, why: str) -> list[Instruction]:
        if record.fall_back is None or record.restarts >= record.crashes_max:
            return self._over(record, "FAILED")
        return self._start_again(record, why)

    def _start_again(self, record: TopologyRecord, why: str, asked: bool = False) -> list[Instruction]:
        stops = [StopWorker(record.name, worker) for worker in record.workers]
        record.error, record.starts_over, record.round = b"", why, None
        record.workers, record.placement = {}, {}
        return [Persist(record.name), *stops, StartOver(record.name, why, asked)]

    def start_over(self, name: str, nodes: Sequence[str]) -> list[Instruction]:
        """Start a topology, of which too much was lost, again from its savepoint."""
        record = self._find_running(name)
        if record is None or not record.starts_over or record.fall_back is None:
            return []
        record.starts_over, record.start_from = "", record.fall_back.uri
        record.parallelism = dict(record.fall_back.parallelism)
        record.restarts += 1
        record.version += 1
        places, record.start_places = record.start_places, {}
        there = {slot.node for slot in places.values()} <= set(nodes)
        return self._start(record, nodes, "REBALANCING", places if there else None)

    def died(
        self, topology: str, worker: str, error: bytes, nodes: Sequence[str] = (), doubted: Container[str] = ()
    ) -> list[Instruction]:
        """A worker's process is gone, or its lease is; `nodes` are those that a new spare can be started on, and
        `doubted` workers may be lost too."""
        record, found = self._of(topology, worker)
        if record is None or found is None or found.phase == "gone" or record.state in OVER:
            return []
        found.phase = "gone"
        running = all(each.phase not in ("starting", "started", "ready") for each in record.hosts().values())
        if found.spare or (record.recovers and running and record.restarts < record.crashes_max):
            return self._recover(record, worker, nodes, doubted)
        return self.failed(topology, worker, error)

    def beside(self, topology: str, worker: str) -> dict[str, str]:
        """Where the other workers listen that are on the node of this one, those without tasks first."""
        node = self.topologies[topology].workers[worker].address.node
        running = [record for record in self.topologies.values() if record.state not in OVER]
        found = [
            (not each.spare, name, each.address.endpoint)
            for record in running
            for name, each in record.workers.items()
            if name != worker and each.address.node == node and each.address.endpoint
        ]
        return {name: endpoint for _, name, endpoint in sorted(found)}

    def waits_for_spare(self, topology: str, worker: str) -> bool:
        """A task of this worker, which is gone, was lost just before: rather wait for a spare that is being started
        than let it take others with it."""
        record, found = self._of(topology, worker)
        if record is None or found is None or record.state in OVER:
            return False
        again = any(record.losses.get(task, 0) for task, host in record.placement.items() if host == worker)
        spares = [each.phase for each in record.workers.values() if each.is_spare]
        return again and "ready" not in spares and bool(spares)

    def found_at(self, topology: str, evidence: Evidence) -> tuple[bool, list[Instruction]]:
        """A worker ended at this tuple; whether that has happened too often in a row."""
        record = self._find_running(topology)
        if record is None:
            return False, []
        record.evidence = count_evidence(record.evidence, evidence)
        return len(record.evidence) >= record.poison_max, [Persist(topology)]

    def give_up(self, topology: str, error: bytes) -> list[Instruction]:
        """The topology stops, for a reason that no worker has told."""
        record = self._find_running(topology)
        if record is None:
            return []
        record.error = error
        return self._over(record, "FAILED")

    def calm(self, topology: str) -> None:
        """There was no crash for long: the next one has nothing to do with those before."""
        record = self._find_running(topology)
        if record is not None:
            record.losses, record.evidence = {}, []

    # Recovery (PROTOCOL.md section 9).

    def _recover(
        self, record: TopologyRecord, worker: str, nodes: Sequence[str], doubted: Container[str]
    ) -> list[Instruction]:
        """Give the dead worker's tasks a new host and open a round, which covers what an open one covered (R1, R3)."""
        home = record.workers[worker].address.node
        was_spare = record.workers[worker].is_spare
        del record.workers[worker]
        lost = [task for task, host in record.placement.items() if host == worker]
        record.moves = {task: to for task, to in record.moves.items() if to != worker and task not in lost}
        record.version += 1
        if lost:
            self._disturb(record)
            record.restarts += 1
            for task in lost:
                record.losses[task] = record.losses.get(task, 0) + 1
            target = self._new_host(record, doubted)
            if target is None:
                return self._lost_for_good(record, f"worker {worker} died and no other is left to take its tasks over")
            record.workers[target].host_tasks()
            for task in lost:
                record.placement[task] = target
                if not record.checkpointed:
                    record.incarnations[task] = record.incarnations.get(task, 0) + 1
            if record.checkpointed:
                lost = lose_all(record)
        spares = sum(each.is_spare for each in record.workers.values())
        missing = (lost or was_spare) and spares < record.spare_count
        replacement = self._add_spare(record, _emptiest(record, nodes or [home])) if missing else []
        return [*self._fence_all(record, lost), *replacement]

    def _new_host(self, record: TopologyRecord, doubted: Container[str]) -> str | None:
        """A spare that is ready, else the worker with the fewest tasks; those that may be lost too only if need be."""
        trusted = {name: each for name, each in record.workers.items() if name not in doubted}
        spares = [name for name, each in trusted.items() if each.is_spare and each.phase == "ready"]
        if spares:
            return spares[0]
        load = Counter(record.placement.values())
        for found in (trusted, record.workers):
            hosts = [name for name, each in found.items() if not each.spare and each.phase in ("running", "finished")]
            hosts = hosts or [name for name, each in found.items() if each.phase == "ready"]
            if hosts:
                return min(hosts, key=lambda name: (load[name], name))
        return None

    def spread(self, topology: str, nodes: Sequence[str]) -> list[Instruction]:
        """These nodes are alive. A topology that has come to be on one node alone gets a spare on another (P7).

        The spare holds backups and witnesses commits, so that the loss of the one node can be survived again.
        """
        record = self._find_running(topology)
        if record is None or not record.spare_count or not record.recovers:
            return []
        used = {worker.address.node for worker in record.workers.values() if not worker.retiring}
        others = [node for node in nodes if node not in used]
        if len(used) != 1 or not others or record.state == "INACTIVE":
            return []
        added = self._add_spare(record, others[0])
        return [Persist(topology), *added]

    def _add_spare(self, record: TopologyRecord, node: str) -> list[Instruction]:
        worker = f"{record.name}/s.{self._next_incarnation()}"
        record.workers[worker] = WorkerRecord(WorkerAddress(worker, node, self.incarnation), spare=True)
        return [StartWorker(record.name, worker, node, self.incarnation)]

    def _next_incarnation(self) -> int:
        self.incarnation += 1
        return self.incarnation

    def _fence_all(self, record: TopologyRecord, lost: Sequence[TaskId] = ()) -> list[Instruction]:
        """Give everybody new tables and ask for all that is lost; answers to an earlier round are worthless."""
        before = record.round.lost if record.round is not None else []
        asked = {name for name, each in record.workers.items() if each.phase in ("ready", "running", "finished")}
        record.rounds += 1
        record.round = Round(record.rounds, sorted({*before, *lost}), asked)
        record.placed = record.version if lost else record.placed
        record.parking, record.relieved = None, set()  # whoever takes new tables lets the tasks it has go on
        return [
            Persist(record.name),
            *(Fence(record.name, name, record.round.number) for name in sorted(asked)),
        ]

    def fenced(
        self,
        topology: str,
        worker: str,
        number: int,
        answer: dict[TaskId, LostTask],
        ended: Iterable[TaskId] = (),
    ) -> list[Instruction]:
        """A worker has taken the new tables and said what it knows; when all have, the lost tasks start (R4)."""
        record = self.topologies.get(topology)
        if record is None or record.state in OVER or record.round is None or record.round.number != number:
            return []
        round = record.round
        round.answers[worker] = answer
        record.ended.update(ended)
        if set(round.answers) != round.asked or round.started:
            return []
        if not round.lost:
            return self._close_round(record)
        round.started = True
        restores: dict[str, list[Restore]] = {}
        for task in round.lost:
            plan = plan_reload(record, task) if record.checkpointed else plan_restore(task, round.answers)
            restores.setdefault(record.placement[task], []).append(plan)
        return [Start(topology, host, number, each) for host, each in sorted(restores.items())]

    def restored(self, topology: str, worker: str, number: int) -> list[Instruction]:
        """A worker has brought its lost tasks back."""
        record = self.topologies.get(topology)
        if record is None or record.round is None or record.round.number != number:
            return []
        record.round.restored.add(worker)
        if {record.placement[task] for task in record.round.lost} <= record.round.restored:
            return self._close_round(record)
        return []

    def _close_round(self, record: TopologyRecord) -> list[Instruction]:
        lost = record.round.lost if record.round is not None else []
        record.round = None
        late = [name for name, each in record.workers.items() if each.spare and each.phase == "started"]
        # Tasks that came back were not there when the others were told to end, or not to read.
        pauses = [Pause(record.name, host, True) for host in sorted({record.placement[task] for task in lost})]
        return [
            Persist(record.name),
            *(Deploy(record.name, name) for name in late),
            *(pauses if record.paused else []),
            *self._drains(record),
            *self._end_if_finished(record),
            *self._advance(record),
        ]

    def topologies_by_name(self, name: str) -> TopologyRecord | None:
        return self.topologies.get(name)

    def _find_running(self, topology: str) -> TopologyRecord | None:
        record = self.topologies.get(topology)
        return None if record is None or record.state in OVER else record

    def resume(self, name: str) -> list[Instruction]:
        """What to do again after a restart of the coordinator: everything here may have been done already."""
        record = self.topologies[name]
        if record.state in OVER:
            # What the collecting sinks held may not have been fetched yet; those of workers that are gone were.
            hosts = record.hosts() if record.state != "FAILED" else {}
            return [*(Collect(name, worker) for worker in hosts), *(StopWorker(name, each) for each in record.workers)]
        record.checkpoints.open = False  # who has prepared it is not known any more
        if record.starts_over:
            return [StartOver(name, record.starts_over)]
        again: list[Instruction] = []
        for worker, each in record.workers.items():
            if each.phase == "starting":
                again.append(StartWorker(name, worker, each.address.node, each.address.incarnation))
            elif each.phase == "started":
                again.append(Deploy(name, worker))
            elif each.phase == "running" and not each.spare:
                again.append(Go(name, worker))
        # Tables may not have reached everybody, and what they lead to may not have been heard: say them again.
        up = all(worker.phase in ("running", "finished") for worker in record.hosts().values())
        self._disturb(record)
        record.parking = None
        retiring = any(worker.retiring for worker in record.workers.values())
        if record.round is not None or ((record.changing or retiring) and up):
            return [*again, *self._fence_all(record)]
        return [*again, *self._begin_savepoint(record)]

    def _over(self, record: TopologyRecord, state: State) -> list[Instruction]:
        record.state = state
        self._give_up_savepoint(record, f"the topology is {state.lower()}")
        return [Persist(record.name), *(StopWorker(record.name, worker) for worker in record.workers)]

    def _of(self, topology: str, worker: str) -> tuple[TopologyRecord | None, WorkerRecord | None]:
        record = self.topologies.get(topology)
        return record, record.workers.get(worker) if record is not None else None

    def validate(self) -> None:
        """Check what must hold between any two events; for tests."""
        incarnations = [
            worker.address.incarnation for record in self.topologies.values() for worker in record.workers.values()
        ]
        assert len(incarnations) == len(set(incarnations)), "no incarnation is used twice"
        assert max(incarnations, default=0) <= self.incarnation, "incarnations never go back"
        for record in self.topologies.values():
            hosts = record.hosts()
            assert set(record.placement.values()) <= set(hosts), "tasks are on workers of their topology"
            if record.state in ("ACTIVE", "REBALANCING"):
                assert all(worker.phase in ("running", "finished") for worker in hosts.values()), record.name


def _emptiest(record: TopologyRecord, nodes: Sequence[str]) -> str:
    """The node with the fewest workers of a topology."""
    load = Counter(worker.address.node for worker in record.workers.values())
    return min(nodes, key=lambda node: (load[node], node))
