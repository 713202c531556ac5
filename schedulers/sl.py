"""Sl-Stream: partition the task graph by a particle swarm, match subgraphs to nodes, move layer by layer.

A running topology moves only when the new cut is clearly cheaper on today's rates. Tasks move
in half layers, so that the blocks of state that the other half holds stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from rstream.schedulers.demands import Mode, node_use, task_needs, traffic_graph
from rstream.schedulers.ledger import Ledger
from rstream.schedulers.matching import deploy, deploy_costs
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.sl_moves import migration
from rstream.schedulers.swarm import Found, Problem, Swarm, costs, greedy, rate, search, worth_moving
from rstream.schedulers.tables import Floats, Ints, Slot, TaskId
from rstream.schedulers.view import NodeView, TopologyView, View


class SlParameters(Parameters):
    """Parameters of `sl`; the paper's values where it gives one."""

    interval_s: float = Field(default=60.0, gt=0, description="Window, check interval and cooldown.")
    nodes: int | None = Field(default=None, ge=1, description="k, nodes to use; None: those in use, or all at first.")
    xi: float = Field(default=0.7, gt=0, le=1, description="New cost over old cost below which tasks move [paper].")
    alpha: float = Field(default=0.5, ge=0, le=1, description="Weight of CPU in a task's resources, against memory.")
    mu: float = Field(default=0.5, ge=0, le=1, description="Weight of CPU in what a node has left, against memory.")
    rho: float | None = Field(default=None, gt=0, description="Weight of the balance; None: the total traffic (Sl-5).")
    particles: int = Field(default=30, ge=2, description="Particles of the swarm, M.")
    iterations: int = Field(default=200, ge=1, description="Iterations of the swarm.")
    sigma: float = Field(default=0.5, ge=0.5, le=1, description="How fast the swarm contracts (eq 21).")
    edge_visits_max: int = Field(
        default=200_000_000, ge=1, description="Work limit of a decision: many or large graphs get fewer iterations."
    )
    load_max: float = Field(default=0.8, gt=0, description="Most CPU and memory on a node.")
    checks: int = Field(default=3, ge=0, description="Check blocks c of a state [paper].")
    pause_s: float = Field(default=2.0, ge=0, description="Wait after a batch is live.")
    resources: Mode = Field(default="paper", description="Task resources by tuple share (`paper`) or as `measured`.")


@dataclass(frozen=True, eq=False)
class Situation:
    """One topology as Sl-Stream sees it; nodes are the live ones in order of their ids."""

    topology: TopologyView
    problem: Problem
    needs: Floats
    free: Floats
    nodes: Sequence[NodeView]
    running: Ints | None


class SlStream:
    """The policy `sl`."""

    name: ClassVar[str] = "sl"
    Parameters: ClassVar = SlParameters

    def __init__(self, parameters: SlParameters | None = None) -> None:
        self.parameters = parameters or SlParameters()

    @property
    def interval_s(self) -> float:
        """One look per check interval."""
        return self.parameters.interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Search a cheaper partition of every topology, and move to it where it is worth it."""
        needs = task_needs(view, self.parameters.resources)
        ledger = Ledger(view)
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        changed_s: dict[str, float] = {}
        for topology in view.topologies:
            last_s = memory.get("changed_s", {}).get(topology.name)
            if last_s is not None:
                changed_s[topology.name] = last_s
            here = self._situation(view, topology, needs)
            why_not = self._why_wait(view.end_s, here, last_s)
            if why_not or here is None:
                reasons.append(Reason(topology.name, why_not))
                continue
            plan, reason = self._one(here, ledger, rng, self.parameters.edge_visits_max // len(view.topologies))
            reasons.append(reason)
            if plan:
                plans[topology.name] = plan
                changed_s[topology.name] = view.end_s
        return Plan(plans, reasons=tuple(reasons)), {"changed_s": changed_s}

    def _why_wait(self, now_s: float, here: Situation | None, last_s: float | None) -> str:
        if here is None:
            return "there is nothing to place, or no node to place it on"
        if here.running is None:
            return ""
        if here.topology.source_count <= 0:
            return "nothing has been measured yet"
        if last_s is not None and now_s - last_s < self.parameters.interval_s - 1e-6:
            return "the cooldown has not passed"
        return ""

    def _situation(self, view: View, topology: TopologyView, needs: dict[str, Floats]) -> Situation | None:
        order = sorted((at for at, node in enumerate(view.nodes) if node.alive), key=lambda at: view.nodes[at].id)
        if not order or not len(topology.tasks):
            return None
        parameters, nodes = self.parameters, [view.nodes[at] for at in order]
        position = np.full(len(view.nodes) + 1, -1, dtype=np.int64)
        position[order] = np.arange(len(order))
        running = position[topology.tasks.node]
        whole = running if (running >= 0).all() else None
        mine = needs[topology.name]
        graph = traffic_graph(topology)
        parts = self._parts(whole, len(nodes), len(topology.tasks))
        width = min(node.capacity for node in nodes)
        loads = np.column_stack((mine[:, 0], mine[:, 1], np.ones(len(mine))))
        problem = Problem(
            graph,
            parts,
            mine[:, 0] * parameters.alpha + mine[:, 1] * (1.0 - parameters.alpha),
            parameters.rho or max(graph.total, 1e-9),
            np.full(parts, 1.0 / parts),
            loads,
            np.array([parameters.load_max, parameters.load_max, float(width)]),
        )
        others = node_use(view, needs, without=topology.name)[order].reshape(-1, 3)
        return Situation(topology, problem, mine[:, :2], 1.0 - others[:, :2], nodes, whole)

    def _parts(self, running: Ints | None, nodes: int, tasks: int) -> int:
        if self.parameters.nodes is not None:
            wanted = self.parameters.nodes
        else:
            wanted = nodes if running is None else len(np.unique(running))
        return max(1, min(wanted, nodes, tasks))

    def _one(
        self, here: Situation, ledger: Ledger, rng: np.random.Generator, edge_visits_max: int
    ) -> tuple[TopologyPlan, Reason]:
        topology, problem = here.topology, here.problem
        seeds = [greedy(problem)]
        old_cost: float | None = None
        if here.running is not None:
            names, running = np.unique(here.running, return_inverse=True)
            if len(names) <= problem.parts:
                seeds.insert(0, running.reshape(-1).astype(np.int64))
            old_cost = self._cost_now(here, running.reshape(-1), len(names))
        swarm = Swarm(
            self.parameters.particles,
            self.parameters.iterations,
            self.parameters.sigma,
            edge_visits_max,
        )
        found = search(problem, seeds, swarm, rng)
        inputs = {"traffic": problem.graph.total, "tasks": len(topology.tasks), "nodes": problem.parts}
        forecast = self._forecast(here, found, old_cost)
        if old_cost is not None and not worth_moving(old_cost, found.cost, self.parameters.xi):
            lost = Alternative(
                "move to the new partition", f"its cost is not below {self.parameters.xi} of the old", found.cost
            )
            return TopologyPlan(), Reason(topology.name, "the present placement stays", inputs, forecast, (lost,))
        place = self._deploy(here, found, ledger)
        if place is None:
            lost = Alternative("move to the new partition", "some subgraph fits on no node", found.cost)
            return TopologyPlan(), Reason(topology.name, "no node fits: the old plan stays", inputs, forecast, (lost,))
        moved = {task: slot for task, slot in place.items() if topology.placement.get(task) != slot}
        batches, actions = migration(topology, moved, self.parameters.checks, self.parameters.pause_s)
        other = Alternative("stay", "costs more on today's rates", old_cost)
        reason = Reason(topology.name, f"{len(moved)} tasks move in {len(batches)} batches", inputs, forecast, (other,))
        return TopologyPlan(placement=moved, batches=batches, state_actions=actions), reason

    @staticmethod
    def _cost_now(here: Situation, labels: Ints, parts: int) -> float:
        """The running partition on today's rates, by the same measure, on the nodes that it really uses."""
        problem = here.problem
        if parts != problem.parts:
            share = np.full(parts, 1.0 / parts)
            problem = Problem(problem.graph, parts, problem.resources, problem.rho, share, problem.loads, problem.caps)
        return float(costs(problem, labels[None, :].astype(np.int64))[0])

    @staticmethod
    def _forecast(here: Situation, found: Found, old_cost: float | None) -> dict[str, Any]:
        rated = rate(here.problem, found.labels)
        return {
            "cost_old": old_cost,
            "cost_new": found.cost,
            "traffic_between": rated.traffic,
            "balance": rated.balance,
            "iterations": found.iterations,
        }

    def _deploy(self, here: Situation, found: Found, ledger: Ledger) -> dict[TaskId, Slot] | None:
        """Match subgraphs to nodes and seat every task; None, the ledger untouched, when that is not possible."""
        topology, parts = here.topology, here.problem.parts
        used = np.unique(found.labels)
        compact = np.searchsorted(used, found.labels)
        needs = np.column_stack([np.bincount(compact, column, len(used)) for column in here.needs.T]).astype(float)
        count = np.bincount(compact, minlength=len(used))
        assert len(used) <= parts
        for task in topology.task_ids:
            ledger.release(topology.name, task)
        rooms = ledger.rooms(topology.name)
        room = np.array([rooms[node.id] for node in here.nodes])
        held = np.zeros((len(used), len(here.nodes)))
        if here.running is not None:
            np.add.at(held, (compact, here.running), 1.0)
        cost = np.where(room[None, :] >= count[:, None], deploy_costs(here.free, needs, self.parameters.mu), np.inf)
        matched = deploy(cost, held)
        if matched is None and here.running is not None:
            for task, slot in topology.placement.items():
                ledger.book_slot(topology.name, task, slot)
            return None
        goal: list[int | None] = (
            [matched.columns[label] for label in compact.tolist()] if matched else [None] * len(compact)
        )
        return _seat(topology, goal, here.nodes, ledger)


def _seat(
    topology: TopologyView, goal: Sequence[int | None], nodes: Sequence[NodeView], ledger: Ledger
) -> dict[TaskId, Slot]:
    """Tasks that stay on their node keep their slot; the others fill processes in order of the task table.

    A task without a node (the first placement of a topology that fits nowhere well) takes any room.
    """
    place: dict[TaskId, Slot] = {}
    for row, task in enumerate(topology.task_ids):
        at, slot = goal[row], topology.placement.get(task)
        if (
            at is not None
            and slot is not None
            and slot.node == nodes[at].id
            and ledger.book_slot(topology.name, task, slot)
        ):
            place[task] = slot
    by_room: Mapping[str, int] = {node.id: at for at, node in enumerate(nodes)}
    for row, task in enumerate(topology.task_ids):
        at = goal[row]
        if task in place:
            continue
        order = nodes if at is None else [nodes[at]]
        for node in sorted(order, key=lambda node: (-ledger.room(topology.name, node.id), by_room[node.id])):
            slot = ledger.book(topology.name, task, node.id)
            if slot is not None:
                place[task] = slot
                break
    return place
