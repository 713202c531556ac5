"""One step of virtual time: tuples flow through all queues of the cluster at once.

A hybrid (docs/decisions says why): queue lengths, throughput, back-pressure, pauses and drops follow the exact fluid
balance of every task's queue, step by step; the randomness within a step, which makes tuples wait at loads below 1,
is the stationary M/M/1 wait of each task's own queue, with service stretched by the contention on its node. A step
carries a tuple over at most one hop, so that the order of operators does not matter and all are computed together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rstream.lab.contention import slowdown
from rstream.lab.fifo import AgedQueues
from rstream.lab.spec import Tiers
from rstream.lab.sums import add_up
from rstream.lab.world import World
from rstream.schedulers.tables import Floats, Ints

SMOOTH_S = 1.0
BUSY_MAX = 0.98  # beyond this the stationary wait is meaningless and the fluid queue grows instead


@dataclass
class Totals:
    """What went in and came out of one topology since the start."""

    offered: float = 0.0
    admitted: float = 0.0
    dropped: float = 0.0
    timed_out: float = 0.0
    finished: float = 0.0
    latency_sum_s: float = 0.0
    backlog: float = 0.0  # offered and not admitted: what the source holds back under back-pressure


class Flow:
    """Steps a world; owns what follows from the placement (tier shares, slowdown) and is refreshed every second."""

    def __init__(self, world: World, tiers: Tiers, step_s: float) -> None:
        self.world, self.tiers, self.step_s = world, tiers, step_s
        self.totals = [Totals() for _ in world.topologies]
        self.service: Floats = np.zeros(0)
        self.cpu_per_tuple: Floats = np.zeros(0)
        self.io_per_tuple: Floats = np.zeros(0)
        self.edge_latency_s: Floats = np.zeros(len(world.edges))
        self.edge_count: Floats = np.zeros(len(world.edges))
        self.node_slowdown: Floats = np.ones(world.cluster.nodes)
        self.aged = AgedQueues(world) if any(t.t_out_s is not None for t in world.topologies) else None
        self._roots_of = [[r for r in world.roots if world.op_topology[r] == at] for at in range(len(world.topologies))]
        self._first_of = [self._first_operators(roots) for roots in self._roots_of]
        self._balanced: list[int] = []
        # What receivers have lately left each operator of its capacity, halfway smoothed: all of it at first.
        self._leave: Floats = np.ones(len(world.operators))
        self.interval_s = 30.0
        self._version = -1
        self.regroup()

    def _first_operators(self, roots: list[int]) -> list[int]:
        """Where the source's queue stands: before the operators that do the first work."""
        world = self.world
        below = world.edge_target[np.isin(world.edge_source, [root for root in roots if world.is_source[root]])]
        return sorted({root for root in roots if not world.is_source[root]} | set(below.tolist()))

    def regroup(self) -> None:
        """Find the operators whose input is dealt out by load; a source deals as the edges of its topology do."""
        world = self.world
        balanced = {
            int(world.edge_target[e]) for e, grouping in enumerate(world.groupings) if grouping == "load_balanced"
        }
        loaded = {int(world.op_topology[op]) for op in balanced}
        self._balanced = sorted(balanced | {root for root in world.roots if int(world.op_topology[root]) in loaded})

    def step(self, now_s: float, offered: Floats) -> None:
        """Advance by one step; `offered` is what each topology's source would emit in it."""
        world, dt = self.world, self.step_s
        if self._version != world.version:
            self.refresh()
        values, ops = world.values, len(world.operators)
        room = self._room(now_s)
        self._admit(now_s, offered, room)
        queue, arriving = values["queue"], values["arriving"]
        values["received"] += arriving
        if self.aged is not None:
            self.aged.push(now_s, arriving)
        queue += arriving
        arriving[:] = 0.0
        working = values["ready_s"] <= now_s + 1e-9
        capacity = np.where(working, dt / self.service, 0.0)
        leave = np.minimum(1.0, self._throttle(room, np.minimum(queue, capacity)))
        self._leave = 0.5 * (self._leave + leave)
        capacity *= leave[world.op]
        if self.aged is not None:
            done = self.aged.pop(now_s, capacity, self.totals)
        else:
            done = np.minimum(queue, capacity)
            queue -= done
        self._account(done, dt)
        self._send(done, ops, now_s)

    def refresh(self) -> None:
        """Recompute what follows from placement and load: tier shares, thread time per tuple, node contention."""
        world, cluster = self.world, self.world.cluster
        self._version = world.version
        self._contend()
        tasks, processes = len(world.op), cluster.nodes * cluster.processes
        extra, io = np.zeros(tasks), np.zeros(tasks)
        slot = world.node * cluster.processes + world.process
        sent = np.maximum(world.values["flow"], 1e-9) * (world.active | (world.values["queue"] > 0.0))
        by_op = add_up(world.op, sent, len(world.operators))
        share = sent / np.maximum(by_op, 1e-12)[world.op]
        incoming = self._edge_shares(by_op)
        bounds = np.searchsorted(world.op, np.arange(len(world.operators) + 1))
        tier = self.tiers
        for e, (source, target) in enumerate(zip(world.edge_source.tolist(), world.edge_target.tolist(), strict=True)):
            up, down = slice(bounds[source], bounds[source + 1]), slice(bounds[target], bounds[target + 1])
            weight, selectivity = world.weight[down], float(world.edge_selectivity[e])
            on_node_out = add_up(world.node[down], weight, cluster.nodes)[world.node[up]]
            on_slot_out = add_up(slot[down], weight, processes)[slot[up]]
            on_node_in = add_up(world.node[up], share[up], cluster.nodes)[world.node[down]]
            on_slot_in = add_up(slot[up], share[up], processes)[slot[down]]
            extra[up] += selectivity * _mix(
                on_slot_out, on_node_out, tier.thread.cpu_s, tier.process.cpu_s, tier.node.cpu_s
            )
            extra[down] += incoming[e] * _mix(
                on_slot_in, on_node_in, tier.thread.cpu_s, tier.process.cpu_s, tier.node.cpu_s
            )
            wire_s = float(world.edge_bytes[e]) / cluster.bandwidth_bytes_s
            io[up] += selectivity * (1.0 - on_node_out) * wire_s
            io[down] += incoming[e] * (1.0 - on_node_in) * wire_s
            hop = _mix(
                on_slot_out, on_node_out, tier.thread.latency_s, tier.process.latency_s, tier.node.latency_s + wire_s
            )
            self.edge_latency_s[e] = float((hop * share[up]).sum()) if hop.size else 0.0
        cpu_share = world.op_cpu_share[world.op]
        base = world.op_service[world.op]
        self.cpu_per_tuple = base * cpu_share + extra
        self.io_per_tuple = io
        self.service = base * (1.0 - cpu_share) + self.cpu_per_tuple * self.node_slowdown[world.node]

    def _edge_shares(self, by_op: Floats) -> Floats:
        """Of the input of each edge's target, the part that comes over this edge."""
        world = self.world
        sent = by_op[world.edge_source] * world.edge_selectivity if len(world.edges) else np.zeros(0)
        total = add_up(world.edge_target, sent, len(world.operators))
        return np.asarray(sent / np.maximum(total, 1e-12)[world.edge_target])

    def _contend(self) -> None:
        world, cluster = self.world, self.world.cluster
        working = world.active | (world.values["queue"] > 1e-9)
        on = world.node[working]
        threads = np.bincount(on, minlength=cluster.nodes)
        # A thread competes for a core only during the CPU part of its busy time.
        base, cpu = world.op_service[world.op], world.op_service[world.op] * world.op_cpu_share[world.op]
        part = cpu / base
        if len(self.service) == len(world.op) and len(self.cpu_per_tuple) == len(world.op):
            part = self.cpu_per_tuple * self.node_slowdown[world.node] / np.maximum(self.service, 1e-12)
        want = np.minimum(1.0, world.values["busy"] * part)
        busy = add_up(on, want[working], cluster.nodes) / np.maximum(threads, 1)
        cores = np.full(cluster.nodes, cluster.cores * (1.0 - cluster.baseline_cpu))
        # Half the way per second: slowdown and busy share depend on each other, and overshoot otherwise.
        self.node_slowdown = 0.5 * self.node_slowdown + 0.5 * slowdown(threads, busy, cores)

    def _room(self, now_s: float) -> Floats:
        """Per operator: how many tuples its tasks can take in this step, given how they are dealt out.

        Credit comes back as a task works, many times within a step: what it will serve in this one and in the next, in
        which the tuples arrive, is room too. Otherwise a fast task could never take more than a full queue per step.
        """
        world, values = self.world, self.world.values
        room = np.full(len(world.operators), np.inf)
        if np.isinf(world.op_limit).all():
            return room
        waiting = values["queue"] + values["arriving"]
        able = np.where(values["ready_s"] <= now_s + 1e-9, self.step_s / self.service, 0.0) * self._leave[world.op]
        free = np.maximum(0.0, world.op_limit[world.op] - waiting + np.minimum(waiting, able) + able)
        ready = world.active & (world.weight > 0.0)
        np.minimum.at(room, world.op[ready], free[ready] / world.weight[ready])
        return room

    def _throttle(self, room: Floats, able: Floats) -> Floats:
        """Per operator: the part of what its tasks are able to process that its receivers leave it."""
        world = self.world
        factor = np.full(len(world.operators), np.inf)
        if np.isinf(room).all():
            return factor
        per_op = add_up(world.op, able, len(world.operators))
        sent = np.maximum(per_op[world.edge_source] * world.edge_selectivity, 1e-12)
        shares = self._edge_shares(add_up(world.op, world.values["flow"], len(world.operators)))
        np.minimum.at(factor, world.edge_source, room[world.edge_target] * np.maximum(shares, 1e-3) / sent)
        return factor

    def _admit(self, now_s: float, offered: Floats, room: Floats) -> None:
        world = self.world
        inflow = np.zeros(len(world.operators))
        for at, topology in enumerate(world.topologies):
            totals, roots = self.totals[at], self._roots_of[at]
            totals.offered += float(offered[at])
            wanted = float(offered[at]) + totals.backlog
            taken = wanted
            if topology.q_size is not None:
                rows = np.flatnonzero(np.isin(world.op, self._first_of[at]))
                free = topology.q_size - float(world.values["queue"][rows].sum()) + self._served(rows, now_s)
                taken = min(wanted, max(0.0, free))
                totals.dropped += wanted - taken
            elif topology.queue_limit is not None:
                taken = min(wanted, min(float(room[root]) for root in roots) * len(roots))
                totals.backlog = wanted - taken
            totals.admitted += taken
            for root in roots:
                inflow[root] += taken / len(roots)
        self._deal(inflow)

    def _served(self, rows: Ints, now_s: float) -> float:
        """What these tasks work off in this step anyway: that much never waits."""
        world = self.world
        able = rows[(world.values["ready_s"][rows] <= now_s + 1e-9) & world.active[rows]]
        return float((self.step_s / self.service[able]).sum())

    def _deal(self, inflow: Floats) -> None:
        """Add each operator's inflow to its tasks' `arriving`."""
        world = self.world
        shares = world.weight
        for op in self._balanced:
            if inflow[op] > 0.0:
                shares = self._balanced_shares(op, float(inflow[op]), shares)
        world.values["arriving"] += inflow[world.op] * shares

    def _balanced_shares(self, op: int, amount: float, shares: Floats) -> Floats:
        """PSPS's grouping (`schedulers.balancing`) as a fluid: fill the least used up to level 1, the rest evenly."""
        world = self.world
        rows = np.flatnonzero((world.op == op) & world.active)
        level = world.values["credit"]
        used, unit = level[rows], world.op_service[op] / self.interval_s
        order = np.argsort(used, kind="stable")
        heights = np.minimum(used[order], 1.0)
        volume = np.cumsum(np.arange(len(rows)) * np.diff(heights, prepend=heights[0]))
        poured = min(amount * unit, float((1.0 - heights).sum()))
        reach = int(np.searchsorted(volume, poured, side="right"))
        surface = heights[reach - 1] + (poured - volume[reach - 1]) / reach
        gain = np.maximum(0.0, surface - heights)
        rest = (amount * unit - poured) / len(rows)
        out = shares.copy()
        out[rows[order]] = (gain + rest) / max(amount * unit, 1e-300)
        level[rows[order]] += gain
        return out

    def start_interval(self, interval_s: float) -> None:
        """Start the load-balancing grouping's U as the live router does: from what waits, or 0 after a change."""
        world = self.world
        self.interval_s = interval_s
        level = world.values["credit"]
        level[:] = np.where(
            world.resized[world.op], 0.0, world.values["queue"] * world.op_service[world.op] / interval_s
        )

    def _account(self, done: Floats, dt: float) -> None:
        values, keep = self.world.values, float(np.exp(-dt / SMOOTH_S))
        busy = done * self.service
        values["processed"] += done
        values["busy_s"] += done * (self.service + (1.0 - self.node_slowdown[self.world.node]) * self.cpu_per_tuple)
        values["cpu_s"] += done * self.cpu_per_tuple
        values["io_s"] += done * self.io_per_tuple
        values["busy"] += (1.0 - keep) * (np.minimum(1.0, busy / dt) - values["busy"])
        values["flow"] += (1.0 - keep) * (done / dt - values["flow"])

    def _send(self, done: Floats, ops: int, now_s: float) -> None:
        world = self.world
        by_op = add_up(world.op, done, ops)
        sent = by_op[world.edge_source] * world.edge_selectivity
        self.edge_count += sent
        self._deal(add_up(world.edge_target, sent, ops))
        if self.aged is not None:
            self.aged.send(self.step_s)
            self.aged.finish(now_s, self.totals)
        else:
            finished = add_up(world.op_topology, by_op * world.is_sink, len(self.totals))
            for at, totals in enumerate(self.totals):
                totals.finished += float(finished[at])


def _mix(same_slot: Floats, same_node: Floats, thread: float, process: float, node: float) -> Floats:
    return same_slot * thread + (same_node - same_slot) * process + (1.0 - same_node) * node
