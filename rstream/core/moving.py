"""Moves of tasks between workers while the stream runs, as the coordinator orders them (PROTOCOL.md section 8).

A move is a target ("this task is to be on that worker"), written down first. When no round is open the tasks' hosts are
told to park them: copy them, stop them, and say so. Then the placement changes, the tasks' incarnations grow, and a
round follows as after a crash, in which they are what is lost; their whole copies make it a short one. Whatever opens a
round before all have parked lets the tasks go on where they are, and the move begins anew afterwards; a task whose host
or target has died stays with ordinary recovery. A host that a move leaves without tasks retires: nobody gives it
anything to hold any more, and when everybody's state is safe without it, it ends.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from rstream.core.channel import TaskId
from rstream.core.checkpointing import check_can_change
from rstream.core.deployment import WorkerAddress
from rstream.core.instructions import Instruction, Park, Persist, StartWorker, StopWorker
from rstream.core.live_changes import LiveChanges
from rstream.core.records import Parking, TopologyRecord, WorkerRecord
from rstream.errors import UsageError

OTHERS_MIN = 2
"""A worker without tasks ends only where so many others are left; else it stays, as a spare that holds backups."""


class TaskMoves(LiveChanges):
    """The part of the coordinator machine that moves tasks."""

    @abstractmethod
    def _next_incarnation(self) -> int:
        """A number that no worker has had."""

    def move(self, name: str, targets: Mapping[TaskId, str]) -> list[Instruction]:
        """These tasks are to go on in these workers."""
        record = self._running(name, "move")
        check_can_move(record)
        for task, worker in targets.items():
            if task not in record.placement:
                raise UsageError(f"topology {name!r} has no task {task}")
            found = record.workers.get(worker)
            if found is None or found.is_spare:
                raise UsageError(f"topology {name!r} has no worker {worker!r} that tasks could move to")
        for task, worker in targets.items():
            record.moves.pop(task, None)
            if record.placement[task] != worker:
                record.moves[task] = worker
                if record.workers[worker].retiring:
                    record.workers[worker].retiring, record.workers[worker].reserved = False, True
        self._note_changing(record)
        return [Persist(name), *self._advance(record)]

    def cancel_moves(self, name: str) -> list[Instruction]:
        """Tasks that have not moved yet stay where they are."""
        record = self._find_running(name)
        if record is None or not record.moves:
            return []
        record.moves = {}
        self._note_changing(record)
        return self._tell_all(record)

    def add_worker(self, name: str, node: str, slot: int) -> tuple[str, list[Instruction]]:
        """Start another worker, for tasks to move to; gives its name."""
        record = self._running(name, "move")
        incarnation = self._next_incarnation()
        worker = f"{name}/w.{incarnation}"
        address = WorkerAddress(worker, node, incarnation)
        record.workers[worker] = WorkerRecord(address, spare=True, reserved=True, slot=slot)
        return worker, [Persist(name), StartWorker(name, worker, node, incarnation)]

    def release_workers(self, name: str) -> list[Instruction]:
        """Workers that were started for moves and have got no tasks are not needed any more."""
        record = self._find_running(name)
        unused = [] if record is None else [worker for worker in record.workers.values() if worker.reserved]
        wanted = set() if record is None else set(record.moves.values())
        unused = [worker for worker in unused if worker.address.worker not in wanted]
        if record is None or not unused:
            return []
        for worker in unused:
            worker.reserved, worker.retiring = False, True
        return self._tell_all(record)

    def _tell_all(self, record: TopologyRecord) -> list[Instruction]:
        record.version += 1
        return self._fence_all(record) if record.is_up else [Persist(record.name)]

    # One move after the other.

    def _advance(self, record: TopologyRecord) -> list[Instruction]:
        return super()._advance(record) or self._park(record) or self._retire(record)

    def _park(self, record: TopologyRecord) -> list[Instruction]:
        if not record.moves or record.parking is not None or record.round is not None or not record.is_up:
            return []
        due = {
            task: worker
            for task, worker in sorted(record.moves.items())
            if record.workers[worker].phase in ("ready", "running", "finished")
        }
        if not due:
            return []  # their workers are still being started
        record.parks += 1
        hosts = sorted({record.placement[task] for task in due})
        record.parking = Parking(record.parks, due, set(hosts))
        mine = {host: {task: due[task] for task in due if record.placement[task] == host} for host in hosts}
        parks = [Park(record.name, host, record.parks, record.version, mine[host]) for host in hosts]
        return [Persist(record.name), *parks]

    def parked(self, topology: str, worker: str, order: int, stopped_s: float) -> list[Instruction]:
        """A worker has stopped the tasks that leave it, and their copies are safe; when all have, the tasks move."""
        record = self._find_running(topology)
        parking = None if record is None else record.parking
        if record is None or parking is None or parking.number != order or record.round is not None:
            return []
        parking.waiting.discard(worker)
        parking.stopped_s = min(parking.stopped_s, stopped_s)
        if parking.waiting:
            return []
        record.stopped_s = parking.stopped_s
        left = {record.placement[task] for task in parking.targets}
        for task, target in parking.targets.items():
            record.placement[task] = target
            record.incarnations[task] = record.incarnations.get(task, 0) + 1
            if record.moves.get(task) == target:
                del record.moves[task]
            record.workers[target].host_tasks()
        for host in sorted(left - set(record.placement.values())):
            empty(record, host)
        record.version += 1
        return self._fence_all(record, list(parking.targets))

    # Workers that are not needed any more.

    def relieved(self, topology: str, worker: str, version: int) -> list[Instruction]:
        """By these tables everything of a worker is safe; when that is so for all, those who retire may end."""
        record = self._find_running(topology)
        if record is None or record.version != version or worker not in record.workers:
            return []
        record.relieved.add(worker)
        return self._retire(record)

    def _retire(self, record: TopologyRecord) -> list[Instruction]:
        going = sorted(name for name, each in record.workers.items() if each.retiring and each.phase == "ready")
        up = {name for name, each in record.workers.items() if each.phase in ("ready", "running", "finished")}
        busy = record.round is not None or record.parking is not None or not record.is_up
        if not going or busy or not up - set(going) <= record.relieved:
            return []
        for name in going:
            del record.workers[name]
        return [*self._tell_all(record), *(StopWorker(record.name, name) for name in going)]


def empty(record: TopologyRecord, host: str) -> None:
    """A worker has lost its last task: it retires, unless too few others would be left to hold backups."""
    others = [each for name, each in record.workers.items() if name != host and not each.retiring]
    found = record.workers[host]
    found.spare, found.phase, found.slot = True, "ready", None
    found.retiring = sum(each.phase in ("ready", "running", "finished") for each in others) >= OTHERS_MIN


def check_can_move(record: TopologyRecord) -> None:
    """One line says why tasks of a topology cannot move, if so."""
    check_can_change(record)
    if not record.recovers:
        raise UsageError(
            f"topology {record.name!r} has delivery: at_most_once, which keeps nothing that a task could move with; "
            "use delivery: exactly_once"
        )
