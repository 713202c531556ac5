"""What must hold between the workers of a topology at any moment: invariants that no worker can check alone.

They have the numbers of PROTOCOL.md section 11. Each worker's own are in `WorkerMachine.validate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rstream import values as codec
from rstream.core.backup import Backups, domains_of
from rstream.core.bolt_task import BoltTask
from rstream.core.channel import ChannelId, InChannel, OutChannel, TaskId
from rstream.core.keyed_task import KeyedBoltTask
from rstream.core.order import OrderLog
from rstream.core.records import TopologyRecord
from rstream.core.sink_task import SinkTask
from rstream.core.task import Task
from rstream.core.versions import Version
from rstream.core.worker import WorkerMachine
from rstream.keys import SLOTS
from rstream.lab.fault_topologies import StoreSink
from rstream.state.fragments import newest_chain


@dataclass
class Invariants:
    """Checks a cluster again and again, and remembers what may only grow."""

    committed: dict[TaskId, dict[ChannelId, int]] = field(default_factory=dict)

    def check(
        self,
        record: TopologyRecord,
        machines: Mapping[str, WorkerMachine],
        healed: bool,
        harmed: set[str],
        idle: Callable[[str, str], bool],
    ) -> None:
        """All of it, on the machines of workers that the coordinator counts on.

        `healed`: nothing is being recovered from. `harmed`: tasks some of whose fragments were harmed on purpose.
        `idle(a, b)`: nothing is on its way from one worker to another.
        """
        placed = {task.id: (machine, task) for machine in machines.values() for task in machine.tasks}
        _one_place(machines.values())
        if record.checkpointed or not record.exact:
            return
        for _, task in placed.values():
            for channel in task.out_channels:
                _one_channel(task, channel, placed, record)
        for machine in machines.values():
            for id, held in machine.backups.held.items():
                if id in placed:
                    _same_records(id, placed[id][1].log, held)
            for peer in machine.out_links.keys() & machines.keys():
                if idle(machine.worker, peer):
                    _records_arrived(machine, machines[peer])
        for step, versions in record.versions.items():
            _whole_maps(step, versions)
            _one_owner(step, versions, [task for _, task in placed.values() if task.id.operator == step])
        if healed:
            for machine in machines.values():
                for task in machine.tasks:
                    if not task.commits and str(task.id) not in harmed:
                        _decodable(machine, task, machines)
        for _, task in placed.values():
            if isinstance(task, SinkTask):
                self._committed(task)

    def _committed(self, task: SinkTask) -> None:
        """I9: what a sink has committed has no gap and never shrinks, and is what it says is covered."""
        store = getattr(task.sink, "store", None) if isinstance(task.sink, StoreSink) else None
        token, progress = store.places.get(task.id.number, (0, None)) if store is not None else (0, None)
        if token != task.token or progress is None:
            return
        committed = {ChannelId(*part[:3]): part[3] for part in codec.decode_one(progress)}
        for id, offset in self.committed.get(task.id, {}).items():
            assert committed.get(id, 0) >= offset, f"I9 {task.id}: {id} was committed up to {offset}"
        for id, offset in committed.items():
            assert task.in_channels[id].cov == offset, f"I9 {task.id}: {id} is covered elsewhere than committed"
        self.committed[task.id] = committed


def _one_place(machines: Iterable[WorkerMachine]) -> None:
    """I8: at most one worker lets a task take steps."""
    running: dict[TaskId, str] = {}
    for machine in machines:
        for task in machine.tasks:
            if not task.parked:
                before = running.setdefault(task.id, machine.worker)
                assert before == machine.worker, f"I8 {task.id} runs in {before} and in {machine.worker}"


def _one_channel(
    task: Task, out: OutChannel, placed: Mapping[TaskId, tuple[WorkerMachine, Task]], record: TopologyRecord
) -> None:
    """I1 and I2 over both ends: nothing is forgotten that the receiver has not covered, nothing invented."""
    found = _receiver(out.id, placed, record)
    if found is None:
        return
    machine, receiver, channel = found
    name = f"{task.id} to {receiver.id}, {out.id}"
    if receiver.id in machine.backups.secured or receiver.commits:
        assert out.base <= machine.covered(channel, receiver), f"I1 {name}: {out.base} is forgotten, not covered"
    assert machine.covered(channel, receiver) <= channel.cons <= channel.recv, f"I1 {name}: covered, consumed, received"
    if task.opened and not task.replay:
        made = out.next + len(out.pending)
        assert channel.recv <= made, f"I2 {name}: {channel.recv} were received, {made} were made"


def _receiver(
    id: ChannelId, placed: Mapping[TaskId, tuple[WorkerMachine, Task]], record: TopologyRecord
) -> tuple[WorkerMachine, Task, InChannel] | None:
    edges, operators = record.outline.edges, record.outline.operators
    step = edges[id.edge].target if id.edge < len(edges) else operators[id.edge - len(edges)].name
    machine, receiver = placed.get(TaskId(step, id.target), (None, None))
    if machine is None or not isinstance(receiver, BoltTask) or id not in receiver.in_channels:
        return None
    return machine, receiver, receiver.in_channels[id]


def _same_records(id: TaskId, own: OrderLog, held: OrderLog) -> None:
    """I3: what is held of a task's order is a part of it."""
    assert held.end <= max(own.end, held.base), f"I3 {id}: records up to {held.end} are held, it has made {own.end}"
    low, high = max(own.base, held.base), min(own.end, held.end)
    same = own.records[low - own.base : high - own.base] == held.records[low - held.base : high - held.base]
    assert same or low >= high, f"I3 {id}: the records from {low} to {high} that are held are not its own"


def _records_arrived(sender: WorkerMachine, receiver: WorkerMachine) -> None:
    """I5: while nothing is on its way, the receiver holds all records that went before what it was sent (with I10)."""
    out, into = sender.out_links[receiver.worker], receiver.in_links.get(sender.worker)
    if out.session is None or into is None or out.session != into.session:
        return
    for task in sender.tasks:
        end, backups = out.cursor.get(task.id, 0), receiver.backups
        log = backups.held.get(task.id)
        reached = max(0 if log is None else log.end, backups.stable.get(task.id, 0))
        assert task.id in receiver.by_id or reached >= end, f"I5 {task.id}: {receiver.worker} has {reached} of {end}"


def _whole_maps(step: str, versions: Iterable[Version]) -> None:
    """I6: every version gives each slot to exactly one task."""
    for number, version in enumerate(versions):
        at = 0
        for span in version.spans:
            assert span.low == at, f"I6 {step}: version {number} at slot {at}: {span}"
            assert span.since <= number, f"I6 {step}: version {number} names a later one: {span}"
            at = span.high
        assert at in (0, SLOTS), f"I6 {step}: version {number} ends at slot {at}"


def _one_owner(step: str, versions: list[Version], tasks: Iterable[Task]) -> None:
    """I6: what is here, by which version, and what is held back for it."""
    keyed = [task for task in tasks if isinstance(task, KeyedBoltTask) and not task.replay and task.opened]
    taken: list[tuple[int, int, int]] = []
    for task in keyed:
        ownership = task.ownership
        for low, high, since in ownership.installed:
            taken.append((low, high, task.id.number))
            given = [each for each in versions[since].spans if each.low < high and low < each.high]
            mine = all((each.owner, each.since) == (task.id.number, since) for each in given)
            assert mine, f"I6 {task.id}: has slots {low} to {high} since {since}, which gave them to others"
        for since, by_slot in ownership.hold.items():
            for slot in by_slot:
                assert ownership.installed.get(slot) != since, f"I6 {task.id}: slot {slot} is here and held back"
    taken.sort()
    for (_, high, first), (low, _, second) in pairwise(taken):
        assert high <= low, f"I6 {step}: slot {low} is with tasks {first} and {second}"


def _decodable(machine: WorkerMachine, task: Task, machines: Mapping[str, WorkerMachine]) -> None:
    """I7: the newest safe snapshot can be rebuilt, also without the task's own domain where that is promised."""
    layout = machine.backups.layouts[task.id]
    domain_of = domains_of(machine.deployment)
    home = domain_of[machine.worker] if layout.survives.own_domain else None
    others = [
        each.backups
        for name, each in machines.items()
        if name != machine.worker and (home is None or domain_of.get(name) != home)
    ]
    stable = max(each.backups.stable.get(task.id, 0) for each in machines.values())
    if not layout.holders or not stable:
        return
    chain = newest_chain(held for each in others for held in each.store.inventory(str(task.id)))
    at = max(_positions(others, task.id, chain[-1]), default=0) if chain else 0
    assert at >= stable, f"I7 {task.id}: safe at step {stable}, the newest that can be rebuilt is at {at}"


def _positions(backups: Iterable[Backups], task: TaskId, epoch: Any) -> Iterator[int]:
    for each in backups:
        if epoch in each.positions.get(task, {}):
            yield each.positions[task][epoch]
