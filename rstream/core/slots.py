"""Which slot each worker has: one book for all topologies of a cluster, so that no slot is ever given to two.

A slot is a place for one worker process on a node, by number. A policy sees only the slots that are free or belong to
topologies it plans for, numbered from zero without gaps; `Numbering` leads from those numbers back to the book's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from rstream.core.records import OVER, TopologyRecord
from rstream.schedulers.base import Slot


@dataclass(frozen=True, slots=True)
class Numbering:
    """For each node the slots that a view shows, in order."""

    shown: Mapping[str, tuple[int, ...]]

    def processes(self, node: str) -> int:
        """How many slots of the node the view shows."""
        return len(self.shown.get(node, ()))

    def local(self, slot: Slot) -> Slot:
        """A slot as the view numbers it."""
        return Slot(slot.node, self.shown[slot.node].index(slot.process))

    def real(self, slot: Slot) -> Slot:
        """A slot of a plan as the book numbers it."""
        return Slot(slot.node, self.shown[slot.node][slot.process])


class SlotBook:
    """The slots of all workers.

    >>> book = SlotBook()
    >>> book.give("wc/w0.1", "wc", "n1"), book.give("dns/w0.2", "dns", "n1")
    (Slot(node='n1', process=0), Slot(node='n1', process=1))
    >>> book.numbering(["dns"], {"n1": 3}).shown
    {'n1': (1, 2)}
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, Slot]] = {}
        """For each worker its topology and its slot."""
        self._booked: dict[Slot, str] = {}
        """Slots that a plan under way will need, and the topology that it is for."""

    def give(self, worker: str, topology: str, node: str, process: int | None = None) -> Slot:
        """A worker's slot: the one it has, the one asked for if that is free, or the lowest free one of the node."""
        if worker in self._held:
            return self._held[worker][1]
        booked = [slot for slot, holder in self._booked.items() if holder != topology]
        taken = {slot.process for slot in (*(slot for _, slot in self._held.values()), *booked) if slot.node == node}
        if process is None or process in taken:
            process = next(number for number in count() if number not in taken)
        slot = Slot(node, process)
        self._held[worker] = topology, slot
        return slot

    def sync(self, records: Iterable[TopologyRecord]) -> None:
        """Take slots back from workers that are gone, and give one to every worker that has none."""
        records = [record for record in records if record.state not in OVER]
        alive = {
            worker: (record, found)
            for record in records
            for worker, found in record.workers.items()
            if not found.spare or found.reserved
        }
        self._held = {
            worker: (topology, slot)
            for worker, (topology, slot) in self._held.items()
            if worker in alive and alive[worker][1].address.node == slot.node
        }
        names = {record.name for record in records}
        self._booked = {slot: topology for slot, topology in self._booked.items() if topology in names}
        # Those that know their slot come first: the book may be new, after a restart of the coordinator.
        for worker, (record, found) in sorted(alive.items(), key=lambda item: item[1][1].slot is None):
            found.slot = self.give(worker, record.name, found.address.node, found.slot).process

    def book(self, topology: str, slots: Iterable[Slot]) -> None:
        """A plan for a topology will need these slots, which are free."""
        self._booked.update(dict.fromkeys(slots, topology))

    def release(self, topology: str) -> None:
        """The plan for a topology is over."""
        self._booked = {slot: holder for slot, holder in self._booked.items() if holder != topology}

    def slot(self, worker: str) -> Slot | None:
        """The slot of a worker."""
        held = self._held.get(worker)
        return held[1] if held is not None else None

    def worker(self, slot: Slot) -> str | None:
        """Who has a slot."""
        return next((worker for worker, (_, held) in self._held.items() if held == slot), None)

    def numbering(self, topologies: Iterable[str], slots: Mapping[str, int]) -> Numbering:
        """What a view for these topologies shows: their own slots and the free ones of each node."""
        mine = set(topologies)
        owner = {**self._booked, **{slot: topology for topology, slot in self._held.values()}}
        shown: dict[str, tuple[int, ...]] = {}
        for node, size in slots.items():
            highest = max((slot.process + 1 for slot in owner if slot.node == node), default=0)
            shown[node] = tuple(
                process
                for process in range(max(size, highest))
                if (holder := owner.get(Slot(node, process))) in mine or (holder is None and process < size)
            )
        return Numbering(shown)
