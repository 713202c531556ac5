"""The one ledger of slots: which process of which node serves which topology, and how many tasks it holds.

Every policy that places tasks books them here, so that a slot is never given to two topologies and no process or node
gets more tasks than it takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import View


class Ledger:
    """Bookings of one planning pass; made from a view, changed while a plan takes shape.

    >>> from rstream.schedulers.view import NodeView
    >>> ledger = Ledger(View(0, 1, (NodeView("n1", processes=1, tasks_per_process=2),), ()))
    >>> ledger.book("wc", TaskId("split", 0), "n1"), ledger.room("wc", "n1")
    (Slot(node='n1', process=0), 1)
    """

    def __init__(self, view: View, *, without: Iterable[str] = ()) -> None:
        """Start from what runs now; the topologies of `without` count as not placed."""
        self._limit = {node.id: (node.processes, node.tasks_per_process) for node in view.nodes if node.alive}
        self._owner: dict[Slot, str] = {}
        self._held: Counter[Slot] = Counter()
        self._where: dict[tuple[str, TaskId], Slot] = {}
        self._slots: list[tuple[Slot, int]] = []
        skipped = set(without)
        for topology in view.topologies:
            if topology.name in skipped:
                continue
            for task, slot in topology.placement.items():
                if slot.node in self._limit:
                    self._put(topology.name, task, slot)

    def _put(self, topology: str, task: TaskId, slot: Slot) -> None:
        self._owner.setdefault(slot, topology)
        self._held[slot] += 1
        self._where[topology, task] = slot

    def knows(self, node: str) -> bool:
        """Whether the node is there and alive."""
        return node in self._limit

    def owner(self, slot: Slot) -> str | None:
        """The topology that the slot serves."""
        return self._owner.get(slot)

    def held(self, slot: Slot) -> int:
        """How many tasks the slot holds."""
        return self._held[slot]

    def room_in(self, topology: str, slot: Slot) -> int:
        """How many more tasks of a topology the slot takes."""
        processes, per_process = self._limit.get(slot.node, (0, 0))
        if slot.process >= processes or self._owner.get(slot, topology) != topology:
            return 0
        return max(0, per_process - self._held[slot])

    def room(self, topology: str, node: str) -> int:
        """How many more tasks of a topology the node takes."""
        processes, _ = self._limit.get(node, (0, 0))
        return sum(self.room_in(topology, Slot(node, process)) for process in range(processes))

    def open(self, topology: str) -> dict[Slot, int]:
        """Every slot that takes more tasks of a topology, with how many, in order of nodes and processes."""
        owner, held = self._owner, self._held
        if not self._slots:
            self._slots = [
                (Slot(node, process), self._limit[node][1])
                for node in sorted(self._limit)
                for process in range(self._limit[node][0])
            ]
        return {
            slot: width - held.get(slot, 0)
            for slot, width in self._slots
            if owner.get(slot, topology) == topology and held.get(slot, 0) < width
        }

    def rooms(self, topology: str) -> Counter[str]:
        """`room` of all nodes at once."""
        rooms: Counter[str] = Counter()
        for slot, more in self.open(topology).items():
            rooms[slot.node] += more
        return rooms

    def narrow(self, tasks_per_process: int) -> None:
        """Lower the number of tasks that any process takes."""
        self._limit = {node: (count, min(width, tasks_per_process)) for node, (count, width) in self._limit.items()}
        self._slots = []

    def free_slots(self, node: str) -> list[int]:
        """The processes of a node that serve nobody, ascending."""
        processes, _ = self._limit.get(node, (0, 0))
        return [process for process in range(processes) if Slot(node, process) not in self._owner]

    def book(self, topology: str, task: TaskId, node: str) -> Slot | None:
        """Give the task a place on the node: a process of its topology is filled before the next is opened."""
        processes, _ = self._limit.get(node, (0, 0))
        slots = [Slot(node, process) for process in range(processes)]
        open_first = sorted(slots, key=lambda slot: (slot not in self._owner, slot.process))
        for slot in open_first:
            if self.room_in(topology, slot):
                self._put(topology, task, slot)
                return slot
        return None

    def book_slot(self, topology: str, task: TaskId, slot: Slot) -> bool:
        """Give the task this very slot, if it has room."""
        if not self.room_in(topology, slot):
            return False
        self._put(topology, task, slot)
        return True

    def release(self, topology: str, task: TaskId) -> None:
        """Take the task off its slot; a slot without tasks is free for any topology."""
        slot = self._where.pop((topology, task), None)
        if slot is None:
            return
        self._held[slot] -= 1
        if not self._held[slot]:
            del self._owner[slot], self._held[slot]
