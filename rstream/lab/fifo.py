"""Queues that know how old each tuple is, for experiments in which tuples time out.

The fluid model needs no ages: a queue's length over its service rate is the wait. A timeout does, because it drops by
age. Here every task has a FIFO of cohorts (time of birth, amount). Passing a hop takes the model one step, which is
no time of the tuple's own, so a cohort is made younger by one step when it is sent on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from rstream.lab.world import World
from rstream.schedulers.tables import Floats

if TYPE_CHECKING:
    from rstream.lab.flow import Totals

GRAIN_S = 0.25  # births closer than this are one cohort: it bounds the number of cohorts


class AgedQueues:
    """One FIFO of cohorts per task; `world.values["queue"]` stays the sum of each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._fifos: dict[tuple[int, int], deque[tuple[float, float]]] = {}
        self._rows: list[deque[tuple[float, float]]] = []
        self._version = -1
        self._born: list[dict[float, float]] = [
            {} for _ in world.operators
        ]  # births of what arrives next, per operator
        self._out: list[dict[float, float]] = [{} for _ in world.operators]  # births of what was processed in this step
        self._t_out = [
            t_out if (t_out := world.topologies[at].t_out_s) is not None else np.inf for at, _ in world.operators
        ]

    def push(self, now_s: float, arriving: Floats) -> None:
        """Append what arrives, with the births it was sent with; what no one sent was born now."""
        self._follow(now_s)
        ops = self.world.op.tolist()
        for row, amount in enumerate(arriving.tolist()):
            if amount <= 0.0:
                continue
            born = self._born[ops[row]]
            total = sum(born.values())
            fifo = self._rows[row]
            if total <= 0.0:
                fifo.append((now_s, amount))
                continue
            for birth, part in born.items():
                fifo.append((birth, amount * part / total))
        for births in self._born:
            births.clear()

    def pop(self, now_s: float, capacity: Floats, totals: list[Totals]) -> Floats:
        """Take up to `capacity` from each task, oldest arrival first; what is too old is dropped at no cost."""
        world, queue = self.world, self.world.values["queue"]
        ops, topology_of = world.op.tolist(), world.op_topology.tolist()
        for births in self._out:
            births.clear()
        done = np.zeros(len(queue))
        for row, room in enumerate(capacity.tolist()):
            fifo = self._rows[row]
            if not fifo:
                continue
            op, taken, late = ops[row], 0.0, 0.0
            limit, births = now_s - self._t_out[op], self._out[op]
            while fifo:
                birth, amount = fifo[0]
                if birth < limit:
                    late += amount
                    fifo.popleft()
                    continue
                if room <= 1e-12:
                    break
                part = min(amount, room)
                room -= part
                taken += part
                births[birth] = births.get(birth, 0.0) + part
                if part < amount:
                    fifo[0] = (birth, amount - part)
                else:
                    fifo.popleft()
            done[row] = taken
            queue[row] = max(0.0, queue[row] - taken - late) if fifo else 0.0
            totals[topology_of[op]].timed_out += late
        return done

    def send(self, step_s: float) -> None:
        """Hand the births of what was processed on to the operators below."""
        world = self.world
        for e, (source, target) in enumerate(zip(world.edge_source.tolist(), world.edge_target.tolist(), strict=True)):
            weight, births = float(world.edge_selectivity[e]), self._born[target]
            for birth, amount in self._out[source].items():
                later = round((birth + step_s) / GRAIN_S) * GRAIN_S
                births[later] = births.get(later, 0.0) + amount * weight

    def finish(self, now_s: float, totals: list[Totals]) -> None:
        """Count what left a sink, with its age."""
        world = self.world
        for op in np.flatnonzero(world.is_sink).tolist():
            total = totals[int(world.op_topology[op])]
            for birth, amount in self._out[op].items():
                total.finished += amount
                total.latency_sum_s += amount * max(0.0, now_s - birth)

    def _follow(self, now_s: float) -> None:
        """After tasks came, went or lost their queues: keep the cohorts equal to the queue lengths."""
        if self._version == self.world.version:
            return
        self._version = self.world.version
        old, self._fifos, self._rows = self._fifos, {}, []
        queue = self.world.values["queue"].tolist()
        for row, key in enumerate(zip(self.world.op.tolist(), self.world.index.tolist(), strict=True)):
            fifo = old.get(key, deque())
            there = sum(amount for _, amount in fifo)
            if queue[row] <= 1e-9:
                fifo.clear()
            elif there > queue[row] + 1e-6:
                fifo = deque((birth, amount * queue[row] / there) for birth, amount in fifo)
            elif there < queue[row] - 1e-6:
                fifo.append((now_s, queue[row] - there))
            self._fifos[key] = fifo
            self._rows.append(fifo)
