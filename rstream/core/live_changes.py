"""Changes of a running topology, as the coordinator orders them: more or fewer tasks of an operator, without a stop.

A request is a target ("these tasks of this operator are active"), never a step, so it may be given again at any time
and while another change is under way. It is written down first. Two rounds follow (PROTOCOL.md section 8): in the first
everybody learns of new tasks, and these start; in the second the senders get the new version. What then happens in the
channels needs no coordinator. A change waits for an open recovery, and a recovery in the middle only delays it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from rstream import groupings
from rstream.core.channel import TaskId
from rstream.core.checkpointing import check_can_change
from rstream.core.instructions import Instruction, Persist
from rstream.core.records import OVER, TopologyRecord
from rstream.errors import UsageError
from rstream.graph import PARALLELISM_MAX

Progress = Mapping[tuple[TaskId, str], int]
"""For each task, and each operator whose versions it follows as sender or owner, how far it has come."""


class LiveChanges(ABC):
    """The part of the coordinator machine that changes topologies while they run."""

    @abstractmethod
    def _running(self, name: str, verb: str) -> TopologyRecord:
        """The topology, or an error if it is over."""

    @abstractmethod
    def _fence_all(self, record: TopologyRecord, lost: Sequence[TaskId] = ()) -> list[Instruction]:
        """Give everybody new tables, and start what is lost or new."""

    @abstractmethod
    def _find_running(self, topology: str) -> TopologyRecord | None:
        """The topology, if it runs."""

    def rescale(self, name: str, parallelism: Mapping[str, int]) -> list[Instruction]:
        """So many tasks of each of these operators are to be active; new ones are started where there are too few."""
        record = self._running(name, "rebalance")
        wanted = {step: tuple(range(tasks)) for step, tasks in checked(record, parallelism).items()}
        return self._order(record, wanted)

    def set_active(self, name: str, step: str, tasks: Iterable[int]) -> list[Instruction]:
        """Exactly these tasks of an operator are to be active: Storm has no word for it, PSPS calls it the pool."""
        record = self._running(name, "rebalance")
        active = tuple(sorted(set(tasks)))
        checked(record, {step: len(active)})
        if active[0] < 0 or active[-1] >= PARALLELISM_MAX:
            raise UsageError(f"step {step!r}: tasks are numbered from 0 to {PARALLELISM_MAX - 1}, got {list(active)}")
        return self._order(record, {step: active})

    def load(
        self, name: str, sizes: Mapping[str, int], places: Mapping[TaskId, str] | None = None
    ) -> list[Instruction]:
        """So many tasks of each of these operators are to be loaded; new ones idle, on the workers named for them."""
        record = self._running(name, "rebalance")
        for step, tasks in checked(record, sizes).items():
            if tasks > record.instances[step]:
                record.loads[step] = max(tasks, record.loads.get(step, 0))
        record.wishes.update(places or {})
        self._note_changing(record)
        return [Persist(record.name), *self._advance(record)]

    def balance(self, name: str, step: str, use: Sequence[float], use_step: float) -> list[Instruction]:
        """Give the senders of a load-balanced operator the measured use of each active task, for the next interval."""
        record = self._running(name, "rebalance")
        known = record.versions[step]
        if len(use) != len(known[-1].active) or record.targets or record.round is not None:
            return []  # figures of before a change say nothing of after it
        record.versions[step] = [*known, known[-1].weighed(use, use_step)]
        record.version += 1
        return self._fence_all(record)

    def _order(self, record: TopologyRecord, wanted: Mapping[str, tuple[int, ...]]) -> list[Instruction]:
        for step, active in wanted.items():
            record.targets.pop(step, None)
            if active != record.active(step):
                record.targets[step] = active
            record.parallelism[step] = len(active)
        self._note_changing(record)
        return [Persist(record.name), *self._advance(record)]

    def _advance(self, record: TopologyRecord) -> list[Instruction]:
        """Take the next step of what was ordered, unless a round is open: its end leads here again."""
        starting = any(worker.phase in ("starting", "started", "ready") for worker in record.hosts().values())
        if record.state in OVER or record.round is not None or starting:
            return []
        self._note_changing(record)
        new: list[TaskId] = []
        grown = False
        for step in dict.fromkeys([*record.targets, *record.loads]):
            present = record.instances[step]
            size = max(record.loads.get(step, 0), *(number + 1 for number in record.targets.get(step, ())), present)
            if size > present and not self._can_grow(record, step):
                continue
            record.loads.pop(step, None)
            if step not in record.elastic:
                record.elastic.add(step)
                grown = True
            if size > present:
                new += place_new(record, step, range(present, size))
                record.instances[step] = size
        if grown or new:
            record.version += 1
            return self._fence_all(record, new)
        ordered = False
        for step, active in list(record.targets.items()):
            if any(task.operator == step for task in record.ended):
                # Its input is over for some of its tasks, so for all of them nothing more will come to share out.
                del record.targets[step]
            elif active[-1] < record.instances[step]:
                versions = record.versions[step]
                record.versions[step] = [
                    *versions,
                    versions[-1].shared_by(active, len(versions), record.instances[step]),
                ]
                del record.targets[step]
                ordered = True
        if not ordered:
            return []
        record.version += 1
        return self._fence_all(record)

    def _can_grow(self, record: TopologyRecord, step: str) -> bool:
        """New senders come in where their receivers are settled: they begin with a version that all of these know."""
        return all(
            record.settled.get(target, 0) >= len(record.versions[target]) - 1
            for target in {record.outline.edges[number].target for number in record.outline.out_edges[step]}
        )

    def progressed(self, topology: str, progress: Progress) -> list[Instruction]:
        """Some worker's tasks have come further."""
        record = self._find_running(topology)
        if record is None:
            return []
        for key, version in progress.items():
            record.reached[key] = max(version, record.reached.get(key, 0))
        before = dict(record.settled)
        for step, versions in record.versions.items():
            followers = followers_of(record, step)
            record.settled[step] = min(
                (record.reached.get((task, step), 0) for task in followers), default=len(versions) - 1
            )
        if record.settled == before:
            return []
        self._note_changing(record)
        return [Persist(topology), *self._advance(record)]

    def _note_changing(self, record: TopologyRecord) -> None:
        """The state that `status` shows."""
        if record.changing and record.state == "ACTIVE":
            record.state = "REBALANCING"
        elif not record.changing and record.state == "REBALANCING":
            record.state = "INACTIVE" if record.paused else "ACTIVE"


def followers_of(record: TopologyRecord, step: str) -> list[TaskId]:
    """Who must have come to a version before it is complete: owners of keys, who wait for all senders; else senders."""
    outline = record.outline
    keyed = bool(outline.key_groupings(step))
    senders = [outline.edges[number].source for number in outline.in_edges[step]]
    return [
        TaskId(name, number)
        for name in dict.fromkeys([step] if keyed else senders)
        for number in range(record.instances[name])
    ]


def checked(record: TopologyRecord, parallelism: Mapping[str, int], live: bool = True) -> Mapping[str, int]:
    """The request, unless it cannot be done (`live`: while it runs); then one line says why, and nothing changes."""
    if live:
        check_can_change(record)
    for step, tasks in parallelism.items():
        if step not in record.parallelism:
            known = ", ".join(record.parallelism)
            raise UsageError(f"topology {record.name!r} has no step {step!r}; its steps: {known}")
        if not 1 <= tasks <= PARALLELISM_MAX:
            raise UsageError(f"step {step!r}: parallelism must be between 1 and {PARALLELISM_MAX}, got {tasks}")
        if tasks != record.parallelism[step]:
            _check_can_change(record, step)
    return parallelism


def can_change(record: TopologyRecord, step: str) -> bool:
    """Whether the number of an operator's active tasks can change while it runs."""
    try:
        check_can_change(record)
        _check_can_change(record, step)
    except UsageError:
        return False
    return True


def _check_can_change(record: TopologyRecord, step: str) -> None:
    operator = record.outline.by_name[step]
    if operator.kind == "source":
        raise UsageError(
            f"step {step!r}: a source keeps its tasks while it runs; its number of tasks cannot change live"
        )
    if operator.kind == "sink" and record.outline.key_groupings(step):
        raise UsageError(f"step {step!r}: a keyed sink keeps its tasks, so that what it writes of a key stays in order")
    for number in record.outline.in_edges[step]:
        grouping = record.outline.edges[number].grouping
        if isinstance(grouping, groupings.Global):
            raise UsageError(f"step {step!r}: the global grouping sends everything to one task; more would get nothing")
        if isinstance(grouping, groupings.Direct):
            raise UsageError(
                f"step {step!r}: its senders name its tasks themselves (direct grouping), so their number is fixed"
            )
        if isinstance(grouping, groupings.All) and operator.own_state:
            raise UsageError(
                f"step {step!r}: every task has seen every tuple (all grouping), and a new one would have missed "
                "those before it; start it with the parallelism that it needs"
            )
        if isinstance(grouping, groupings.Key) and operator.own_state:
            raise UsageError(
                f"step {step!r}: keeps state of its own beside ctx.state (its snapshot method), which cannot be "
                "divided by keys; keep it in ctx.state to change the parallelism while it runs"
            )


def place_new(record: TopologyRecord, step: str, numbers: Iterable[int]) -> list[TaskId]:
    """Give new tasks a worker each: the one with the fewest tasks of that operator, then with the fewest at all."""
    hosts = [name for name, worker in record.hosts().items() if worker.phase in ("running", "finished")]
    new = []
    for number in numbers:
        task = TaskId(step, number)
        here = {name: [each for each, host in record.placement.items() if host == name] for name in hosts}
        chosen = min(hosts, key=lambda name: (sum(t.operator == step for t in here[name]), len(here[name]), name))
        wish = record.wishes.pop(task, None)
        if wish is not None and wish in record.workers and record.workers[wish].reserved:
            hosts.append(wish)
        chosen = wish if wish in hosts else chosen
        record.placement[task] = chosen
        record.born[task] = {
            target: len(record.versions[target]) - 1
            for target in {record.outline.edges[edge].target for edge in record.outline.out_edges[step]}
        }
        record.workers[chosen].host_tasks()
        new.append(task)
    return new
