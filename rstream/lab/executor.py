"""Carries a Plan out on the modelled cluster, in virtual time, at the cost that each kind of change has.

The moves come from the same `diff` that the live controller uses. Live changes take a start time or pause the tasks
that move, batch after batch; `restart` stops the whole topology; `restart-drop` empties its queues as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from rstream.lab.flow import Flow
from rstream.lab.spec import ChangeCosts
from rstream.schedulers import base
from rstream.schedulers.base import Plan, Slot, TaskId, View


@dataclass
class Executor:
    """A queue of changes that happen at their time."""

    flow: Flow
    costs: ChangeCosts
    restarts: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)

    def run_until(self, now_s: float) -> None:
        """Make every change that is due."""
        while self._events and self._events[0][0] <= now_s + 1e-9:
            heapq.heappop(self._events)[2]()

    def _at(self, time_s: float, change: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), change))

    def apply(self, view: View, plan: Plan, now_s: float) -> int:
        """Schedule a plan; returns how many moves it takes."""
        moves = base.diff(view, plan)
        for name, topology_plan in plan.topologies.items():
            mine = [move for move in moves if getattr(move, "topology", None) == name]
            if mine:
                if topology_plan.execute == "live":
                    self._live(name, mine, now_s)
                else:
                    self._restart(name, mine, now_s, drop=topology_plan.execute == "restart-drop")
        self._nodes(plan)
        return len(moves)

    def _nodes(self, plan: Plan) -> None:
        world = self.flow.world
        for node in plan.nodes_taken:
            world.added_order.setdefault(world.node_at[node], len(world.added_order))
        for node in plan.nodes_released:
            world.added_order.pop(world.node_at[node], None)

    def _live(self, name: str, moves: list[base.Move], now_s: float) -> None:
        adds = [move for move in moves if isinstance(move, base.AddTask)]
        self._load(name, adds)
        new = {add.task for add in adds}
        ready_s = now_s + (self.costs.start_s if adds else 0.0)
        ready_s = self._relocate(name, [move for move in moves if isinstance(move, base.MoveTask)], ready_s)
        wake = [move.task for move in moves if isinstance(move, base.Activate)]
        waits = any(task in new for task in wake)
        switch_s = ready_s if waits else now_s
        self._at(now_s, self._switch(name, [task for task in wake if task not in new], True))
        self._at(switch_s, self._switch(name, [task for task in wake if task in new], True))
        for move in moves:
            if isinstance(move, base.Rescale):
                self._at(switch_s, self._hand_over(name, move, switch_s))
            elif isinstance(move, base.SetGrouping):
                self._at(now_s, self._regroup(name, move))
        stop = [move.task for move in moves if isinstance(move, base.Deactivate)]
        self._at(switch_s, self._switch(name, stop, False))
        self._at(switch_s, self._remove(name, [move.task for move in moves if isinstance(move, base.RemoveTask)]))

    def _restart(self, name: str, moves: list[base.Move], now_s: float, *, drop: bool) -> None:
        world = self.flow.world
        at = [topology.name for topology in world.topologies].index(name)
        self.restarts += 1
        if drop:
            self.flow.totals[at].dropped += world.drop_queues(at)
        self._load(name, [move for move in moves if isinstance(move, base.AddTask)])
        moved = [move for move in moves if isinstance(move, base.MoveTask)]
        world.move_tasks(world.rows(name, [move.task for move in moved]), [move.target for move in moved], now_s)
        for kind, on in ((base.Activate, True), (base.Deactivate, False)):
            self._switch(name, [move.task for move in moves if isinstance(move, kind)], on)()
        for move in moves:
            if isinstance(move, base.SetGrouping):
                self._regroup(name, move)()
        self._remove(name, [move.task for move in moves if isinstance(move, base.RemoveTask)])()
        world.pause(world.topology_rows(at), now_s + self.costs.restart_s)

    def _relocate(self, name: str, moves: list[base.MoveTask], start_s: float) -> float:
        """Batch after batch: each waits for the slowest of the one before, and its pause."""
        world = self.flow.world
        for batch in sorted({move.batch for move in moves}):
            mine = [move for move in moves if move.batch == batch]
            longest_s = self.costs.move_s + max(self._state_s(name, move.task.operator) for move in mine)

            def change(mine: list[base.MoveTask] = mine, until_s: float = start_s + longest_s) -> None:
                here = [move for move in mine if world.rows(name, [move.task])]
                rows = world.rows(name, [move.task for move in here])
                world.move_tasks(rows, [move.target for move in here], until_s)

            self._at(start_s, change)
            start_s += longest_s + max(move.pause_s for move in mine)
        return start_s

    def _state_s(self, name: str, operator: str) -> float:
        world = self.flow.world
        op = world.op_at[name, operator]
        state_bytes = world.operators[op][1].state_bytes
        if not state_bytes:
            return 0.0
        tasks = max(1, int((world.active & (world.op == op)).sum()))
        return state_bytes / tasks / world.cluster.bandwidth_bytes_s

    def _load(self, name: str, adds: list[base.AddTask]) -> None:
        world = self.flow.world
        placed: list[tuple[TaskId, Slot]] = []
        for add in adds:
            if not world.rows(name, [add.task]):  # a second plan may ask again for what the first has loaded
                if add.slot is None:  # the next open place is chosen with the ones before it in their places
                    world.add_tasks(name, placed)
                    placed = []
                placed.append((add.task, add.slot or self._any_slot()))
        world.add_tasks(name, placed)

    def _any_slot(self) -> Slot:
        """The slot with the fewest tasks, on the node with the fewest: where a plan left the place open."""
        world, held = self.flow.world, self.flow.world.slot_tasks()
        per_node: dict[str, int] = {}
        for slot, tasks in held.items():
            per_node[slot.node] = per_node.get(slot.node, 0) + tasks
        slots = [Slot(node, process) for node in world.node_ids for process in range(world.cluster.processes)]
        return min(slots, key=lambda slot: (per_node.get(slot.node, 0), held.get(slot, 0), slot))

    def _switch(self, name: str, tasks: list[TaskId], on: bool) -> Callable[[], None]:
        return lambda: self.flow.world.activate(self.flow.world.rows(name, tasks), on)

    def _remove(self, name: str, tasks: list[TaskId]) -> Callable[[], None]:
        return lambda: self.flow.world.remove_tasks(self.flow.world.rows(name, tasks))

    def _hand_over(self, name: str, move: base.Rescale, now_s: float) -> Callable[[], None]:
        """Only the moved ranges pause: the new owners wait for their part of the state."""

        def change() -> None:
            world = self.flow.world
            op = world.op_at[name, move.operator]
            part = world.operators[op][1].state_bytes / max(1, len(move.owners_new))
            fresh = sorted(set(move.owners_new) - set(move.owners_old))
            rows = world.rows(name, [TaskId(move.operator, index) for index in fresh])
            if rows:
                world.pause(rows, now_s + self.costs.move_s + part / world.cluster.bandwidth_bytes_s)

        return change

    def _regroup(self, name: str, move: base.SetGrouping) -> Callable[[], None]:
        def change() -> None:
            world = self.flow.world
            ends = (world.op_at[name, move.source], world.op_at[name, move.target])
            for e, pair in enumerate(zip(world.edge_source.tolist(), world.edge_target.tolist(), strict=True)):
                if pair == ends:
                    world.groupings[e] = "load_balanced" if move.grouping == "load_balanced" else "shuffle"
            self.flow.regroup()

        return change
