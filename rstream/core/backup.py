"""Backups of a worker's tasks: snapshots cut into fragments, on their way to holders, safe when all have answered.

Also the other side: the fragments and order records that this worker holds for others. One snapshot of a task is in
flight at a time; what its input offsets cover is acknowledged upstream only once it is safe. A snapshot is a base, or
a delta on the one before; the holders keep the whole chain until a new base is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rstream.core.channel import ChannelId, TaskId
from rstream.core.deployment import Deployment
from rstream.core.order import OrderLog, Record
from rstream.core.packing import Packer
from rstream.core.task import Task
from rstream.errors import ProtocolError
from rstream.state.erasure import Epoch, Fragment, FragmentReader, FragmentWriter, Label
from rstream.state.fragments import FragmentStore, Held
from rstream.state.holders import Layout, choose_holders, domains, survival
from rstream.state.interval import FORCE_SHARE, wait_s

DELTA_SHARE = 0.5
"""When the deltas of a chain are more than this share of its base, the next snapshot is a new base."""
PATIENCE = 0.5
"""A task waits so much of its interval longer for its receivers' snapshots, which spare its own most of its output."""
CHAIN_MAX = 16
"""So many snapshots make a chain at most: a restore has to read them all."""


@dataclass(slots=True)
class Chain:
    """The safe snapshots of a task that the next delta builds on."""

    base: Epoch
    last: Epoch
    length: int
    base_bytes: int
    delta_bytes: int
    output: dict[ChannelId, int]
    """For each out-channel up to where the chain holds its output."""

    @property
    def is_long(self) -> bool:
        """A new base is worth more than another delta."""
        return self.length >= CHAIN_MAX or self.delta_bytes > self.base_bytes * DELTA_SHARE


@dataclass(slots=True)
class Way:
    """One fragment on its way to its holder, piece by piece."""

    sent: int = 0
    held: int = 0
    bytes_unheld: int = 0
    closed: bool = False
    """All pieces are sent, and what makes them whole."""

    def restart(self) -> None:
        """Send everything again."""
        self.sent = self.held = self.bytes_unheld = 0
        self.closed = False


@dataclass(slots=True)
class InFlight:
    """A snapshot that is being packed and sent."""

    label: Label
    position: int
    own: Any
    covers_bytes: int
    output: dict[ChannelId, int]
    packer: Packer[FragmentWriter]
    ways: dict[tuple[str, int], Way]
    """By holder and index of the fragment, those that are not held yet."""

    @property
    def epoch(self) -> Epoch:
        """Which snapshot it is."""
        return self.label.epoch


@dataclass(frozen=True, slots=True)
class LostTask:
    """What one worker knows of a lost task: its answer to a fence."""

    base: int
    records: list[Record]
    stable: int
    inventory: list[Held]
    positions: dict[Epoch, int]
    """At which step each snapshot was cut."""


class Backups:
    """Snapshots of own tasks, and what is held for others."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.store = FragmentStore()
        self.held: dict[TaskId, OrderLog] = {}
        self.stable: dict[TaskId, int] = {}
        self.in_flight: dict[TaskId, InFlight] = {}
        self.chains: dict[TaskId, Chain] = {}
        self.cut_s: dict[TaskId, float] = {}
        self.every_s: dict[TaskId, float] = {}
        """How long the last interval between two cuts of a task was."""
        self.node_load = 0.0
        self.load_max = 1.0
        """From this load of the node on, snapshots are cut less often."""
        self.safe_s: dict[TaskId, float] = {}
        """When the newest safe snapshot of each own task was cut."""
        self.numbers: dict[TaskId, int] = {}
        self.layouts: dict[TaskId, Layout] = {}
        self.former: dict[TaskId, set[str]] = {}
        """Who held snapshots of an own task before: they are told when they need not any more."""
        self.secured: set[TaskId] = set()
        """Own tasks with a safe snapshot on their present holders."""
        self.saving: set[TaskId] = set()
        """Own tasks whose state is being packed for a savepoint: it can be cut once at a time."""
        self.positions: dict[TaskId, dict[Epoch, int]] = {}
        self.arriving: dict[tuple[TaskId, int], FragmentReader] = {}
        """Fragments that are being received, by task and index."""

    # Own tasks.

    def place(self, deployment: Deployment, tasks: Mapping[TaskId, Task]) -> None:
        """Choose holders anew; a task whose holders changed needs a new snapshot soon."""
        for task in tasks:
            self.lay_out(task, holders_of(deployment, task))
        for task in set(self.layouts) - set(tasks):
            self.forget_own(task)

    def lay_out(self, task: TaskId, layout: Layout) -> None:
        """These are a task's holders from now on."""
        before = self.layouts.get(task)
        if before == layout:
            return
        self._abandon(task)
        self.layouts[task] = layout
        if before is not None:
            self.former.setdefault(task, set()).update(before.holders)

    def renew(self) -> None:
        """Somebody leaves: what every task has done so far must be safe without anything that was told to them."""
        for task in self.layouts:
            if task in self.in_flight:
                self._abandon(task)
            self.secured.discard(task)
            self.cut_s.pop(task, None)

    def forget_own(self, task: TaskId) -> None:
        """The task is no longer here."""
        self._abandon(task)
        self.layouts.pop(task, None)
        self.former.pop(task, None)
        self.numbers.pop(task, None)
        self.every_s.pop(task, None)
        self.safe_s.pop(task, None)

    def _abandon(self, task: TaskId) -> None:
        """Nothing that was cut before helps any more: the next snapshot is a base, and soon."""
        self.rebase(task)
        self.secured.discard(task)
        self.cut_s.pop(task, None)

    def rebase(self, task: TaskId) -> None:
        """State is cut for something else: a delta could not build on what is safe, so the next snapshot is a base."""
        flying = self.in_flight.pop(task, None)
        if flying is not None:
            flying.packer.abandon()
        self.chains.pop(task, None)

    def is_protected(self, task: TaskId) -> bool:
        """Some other worker can hold this task's state."""
        return bool(self.layouts[task].holders)

    def is_due(self, task: Task, now_s: float, interval_s: float) -> bool:
        """A snapshot should be cut now."""
        due_s = self.next_cut_s(task, interval_s)
        return due_s is not None and now_s >= due_s and not task.held

    def next_cut_s(self, task: Task, interval_s: float) -> float | None:
        """When the next snapshot of a task is due; None while one is in flight or nothing has happened since."""
        id = task.id
        if id in self.in_flight or id in self.saving or task.parked or not self.is_protected(id):
            return None
        if id not in self.cut_s:
            return 0.0
        if task.uncovered_bytes > task.limits.retained_bytes * FORCE_SHARE:
            return 0.0
        if task.position <= self.stable.get(id, 0):
            return None
        due_s = self.cut_s[id] + wait_s(interval_s, self.node_load, self.load_max)
        return due_s + PATIENCE * interval_s if self._awaits_cover(task) else due_s

    def _awaits_cover(self, task: Task) -> bool:
        """Some receiver has covered nothing of what it was sent since the last cut: all of that would be packed.

        So sinks cut first and sources last, each soon after its receivers.
        """
        chain = self.chains.get(task.id)
        if chain is None:
            return False
        return any(channel.base <= chain.output.get(channel.id, 0) < channel.next for channel in task.bounded)

    def cut(self, task: Task, incarnation: int, now_s: float) -> InFlight:
        """Cut a snapshot; it is then packed in slices and its fragments sent as they are made."""
        id, layout, limits = task.id, self.layouts[task.id], task.limits
        chain = self.chains.get(id)
        state = task.ctx.state.begin_snapshot(full=chain is None or chain.is_long)
        if state.full:
            chain = None
        content = task.snapshot(None if chain is None else chain.output)
        self.numbers[id] = self.numbers.get(id, 0) + 1
        previous, base = (None, None) if chain is None else (chain.last, chain.base)
        label = Label(str(id), (incarnation, self.numbers[id]), previous, base)
        writer = FragmentWriter(label, layout.r, layout.c, limits.stripe_bytes)
        flying = InFlight(
            label,
            content["position"],
            content["own"],
            task.coverable_bytes(),
            {channel.id: channel.next for channel in task.out_channels},
            Packer(content, state, writer, task.clock, limits.slice_items),
            {(holder, index): Way() for index, holder in enumerate(layout.holders) if holder != self.worker},
        )
        self.every_s[id] = now_s - self.cut_s.get(id, now_s)
        self.cut_s[id] = now_s
        self.in_flight[id] = flying
        return flying

    def acknowledged(self, holder: str, task: TaskId, epoch: Epoch, index: int) -> InFlight | None:
        """A holder has a whole fragment; gives the snapshot if that made it safe."""
        flying = self.in_flight.get(task)
        if flying is None or flying.epoch != epoch:
            return None
        flying.ways.pop((holder, index), None)
        if flying.ways:
            return None
        del self.in_flight[task]
        holders = self.layouts[task].holders
        if self.worker in holders and flying.packer.fragments is not None:
            self.hold(task, flying.packer.fragments[holders.index(self.worker)], flying.position)
        self.secured.add(task)
        self.safe_s[task] = self.cut_s[task]  # one is in flight at a time, so the newest cut is this one
        self.stable[task] = max(flying.position, self.stable.get(task, 0))
        self._extend_chain(task, flying)
        return flying

    def _extend_chain(self, task: TaskId, flying: InFlight) -> None:
        size = flying.packer.writer.length
        chain = self.chains.get(task)
        if flying.label.previous is None or chain is None:
            self.chains[task] = Chain(flying.epoch, flying.epoch, 1, size, 0, flying.output)
        else:
            chain.last, chain.output = flying.epoch, flying.output
            chain.length += 1
            chain.delta_bytes += size

    # What is held for others.

    def take_records(self, task: TaskId, start: int, records: list[Record], stable: int) -> None:
        """Hold records of another worker's task."""
        log = self.held.setdefault(task, OrderLog(start))
        log.trim(stable)  # the sender has forgotten what a safe snapshot covers, so a range may begin there
        if not log.extend(start, records):
            raise ProtocolError(f"{task}: order records from {start} on came, {log.end} was to come next")
        self.note_stable(task, stable)

    def note_stable(self, task: TaskId, stable: int) -> None:
        """A snapshot of the task covers its records below a position."""
        if stable > self.stable.get(task, 0):
            self.stable[task] = stable
            if task in self.held:
                self.held[task].trim(stable)

    def fence(self, task: TaskId, incarnation: int) -> None:
        """A task is lost: what its former self still sends is refused."""
        self.store.fence(str(task), incarnation)
        for key, reader in list(self.arriving.items()):
            # A fence may be said again, after a restart of the coordinator: what the task's new self sends stays.
            if key[0] == task and reader.label.epoch[0] < incarnation:
                del self.arriving[key]

    def answer(self, task: TaskId) -> LostTask:
        """What is known here of a lost task."""
        log = self.held.get(task, OrderLog())
        self.store.drop_bad(str(task))
        inventory = self.store.inventory(str(task))
        held = {each.label.epoch for each in inventory}
        positions = {epoch: at for epoch, at in self.positions.get(task, {}).items() if epoch in held}
        return LostTask(log.base, list(log.records), self.stable.get(task, 0), inventory, positions)

    def hold(self, task: TaskId, fragment: Fragment, position: int) -> bool:
        """Hold a fragment of a snapshot that was cut at a position; False if it is refused."""
        if not self.store.put(fragment, checked=True):
            return False
        self.positions.setdefault(task, {})[fragment.label.epoch] = position
        return True

    def drop_before(self, task: TaskId, epoch: Epoch, base: Epoch) -> None:
        """A snapshot is safe: forget older ones that it does not build on."""
        self.store.safe(str(task), epoch, base)
        held = {each.label.epoch for each in self.store.inventory(str(task))}
        self.positions[task] = {old: at for old, at in self.positions.get(task, {}).items() if old in held}


def holders_of(deployment: Deployment, task: TaskId) -> Layout:
    """Who holds the snapshots of a task, by where everything is placed."""
    graph = deployment.graph
    order = [operator.name for operator in graph.operators]
    ring = [
        [deployment.placement[TaskId(name, number)] for number in range(deployment.parallelism[name])] for name in order
    ]
    nodes = {name: address.node for name, address in deployment.workers.items()}
    staying = {name: node for name, node in nodes.items() if name not in deployment.retiring}
    return choose_holders(deployment.placement[task], ring, order.index(task.operator), staying)


def copies_of(deployment: Deployment, task: TaskId, target: str) -> Layout:
    """Who has a whole copy of a task on the move: both hosts, and a third worker where these could be lost together."""
    worker, domain_of = deployment.placement[task], domains_of(deployment)
    holders = [target]
    if domain_of[target] == domain_of[worker]:
        others = [*holders_of(deployment, task).holders, *sorted(set(domain_of) - deployment.retiring)]
        holders += [each for each in others if domain_of[each] != domain_of[worker]][:1]
    holders.append(worker)
    return Layout(worker, tuple(holders), 1, len(holders) - 1, survival(worker, holders, 1, domain_of))


def domains_of(deployment: Deployment) -> dict[str, str]:
    """The failure domain of each worker. Workers that leave do not count when it is asked what the domains are."""
    nodes = {name: address.node for name, address in deployment.workers.items()}
    found = domains({name: node for name, node in nodes.items() if name not in deployment.retiring})
    several = len({nodes[name] for name in found}) > 1
    return {**{name: node if several else name for name, node in nodes.items()}, **found}
