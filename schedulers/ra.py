"""Ra-Stream: anneal a balanced cut of the task graph, scale the number of nodes to its load, pair tasks that talk most.

The number of instances stays; only their places change. A new plan is taken when it uses
another number of nodes, relieves an overloaded one, or cuts clearly less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from rstream.schedulers.annealing import anneal
from rstream.schedulers.bands import Scaled, scale
from rstream.schedulers.demands import Mode, joint_graph, task_needs
from rstream.schedulers.fitting import assign_nodes, weigh
from rstream.schedulers.partition import Graph, Limits, Schedule, first_fit, rate_cut
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.ra_places import pack, saved_costs
from rstream.schedulers.rates import moved
from rstream.schedulers.tables import Floats, Ints, Slot, TaskId
from rstream.schedulers.view import NodeView, TopologyView, View

# The second search starts at this share of the first temperature.
COOL = 0.02


class RaParameters(Parameters):
    """Parameters of `ra`; the paper's values where it gives one."""

    interval_s: float = Field(default=30.0, gt=0, description="Statistics period st, and time between looks.")
    cooldown_s: float = Field(default=30.0, ge=0, description="Least time between two plans that change something.")
    trigger: float = Field(default=0.2, gt=0, description="Relative change of the source rate that asks for a plan.")
    alpha: float = Field(default=0.50, ge=0, le=1, description="Weight of CPU in a task's demand [paper].")
    beta: float = Field(default=0.35, ge=0, le=1, description="Weight of memory in a task's demand [paper].")
    gamma: float = Field(default=0.50, ge=0, le=1, description="Weight of CPU in a node's fitness [paper].")
    delta: float = Field(default=0.35, ge=0, le=1, description="Weight of memory in a node's fitness [paper].")
    epsilon: float = Field(default=0.70, ge=0, le=1, description="Weight of the traffic cut, against balance [paper].")
    cooling: float = Field(default=0.99, gt=0, lt=1, description="Factor between temperatures, zeta [paper].")
    temperature_start: float = Field(default=1.0, gt=0, description="First temperature.")
    temperature_end: float = Field(default=1e-3, gt=0, description="Last temperature.")
    moves: int = Field(default=50, ge=1, description="Moves tried at each temperature.")
    under: float = Field(default=0.60, ge=0, description="T_under: least demand on a used node [paper].")
    over: float = Field(default=0.75, gt=0, description="T_over: most demand on a node [paper].")
    resources: Mode = Field(default="paper", description="Task demand by tuple share (`paper`) or as `measured`.")
    gain_min: float = Field(default=0.05, ge=0, description="Least relative gain for moving tasks on as many nodes.")

    @model_validator(mode="after")
    def _weights_add_up(self) -> RaParameters:
        if self.alpha + self.beta > 1 or self.gamma + self.delta > 1:
            raise ValueError("alpha + beta and gamma + delta must each be at most 1")
        if self.under > self.over:
            raise ValueError("under must not exceed over")
        return self


@dataclass(frozen=True, eq=False)
class Situation:
    """The cluster as Ra-Stream sees it: the tasks of all topologies in one graph, the live nodes in order of their ids.

    `running` is the position of each task's node, -1 for a task that has no live one.
    """

    view: View
    graph: Graph
    limits: Limits
    nodes: Sequence[NodeView]
    available: Floats
    running: Ints

    @property
    def complete(self) -> bool:
        """Whether every task runs on a live node."""
        return bool((self.running >= 0).all())

    @property
    def used(self) -> Floats:
        """Demand on the nodes that run tasks."""
        inside = self.running >= 0
        demand = np.bincount(self.running[inside], self.limits.demand[inside], len(self.nodes))
        return demand[np.unique(self.running[inside])].astype(np.float64)


class RaStream:
    """The policy `ra`.

    Topologies that share a cluster share its nodes: they are cut and placed together.
    """

    name: ClassVar[str] = "ra"
    Parameters: ClassVar = RaParameters

    def __init__(self, parameters: RaParameters | None = None) -> None:
        self.parameters = parameters or RaParameters()

    @property
    def interval_s(self) -> float:
        """One look per statistics period."""
        return self.parameters.interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Partition, scale and place, if there is a reason to."""
        here = self._situation(view)
        rates = {topology.name: view.rate(topology.source_count) for topology in view.topologies}
        since_s = memory.get("since_s", view.start_s)
        trigger, why_not = self._trigger(here, rates, memory, since_s)
        if why_not:
            why = (Reason("cluster", why_not, self._inputs(here, rates)),)
            return Plan(reasons=why), {**memory, "since_s": since_s}
        place, reason = self._place(here, rates, trigger, rng)
        plans = {
            topology.name: TopologyPlan(placement=changed)
            for topology in view.topologies
            if (changed := _changed(topology, place.get(topology.name, {})))
        }
        taken, released = _node_changes(view, plans)
        plan = Plan(plans, nodes_taken=taken, nodes_released=released, reasons=(reason,))
        return plan, {"rates": rates, "at_s": view.end_s if plans else memory.get("at_s"), "since_s": since_s}

    def _situation(self, view: View) -> Situation:
        parameters = self.parameters
        order = sorted((at for at, node in enumerate(view.nodes) if node.alive), key=lambda at: view.nodes[at].id)
        nodes = [view.nodes[at] for at in order]
        position = np.full(len(view.nodes) + 1, -1, dtype=np.int64)
        position[order] = np.arange(len(order))
        each = task_needs(view, parameters.resources)
        needs = np.concatenate([np.zeros((0, 3)), *(each[topology.name] for topology in view.topologies)])
        running = [position[topology.tasks.node] for topology in view.topologies]
        available = 1.0 - view.node_baselines[order].reshape(-1, 3)
        limits = Limits(
            weigh(needs, parameters.alpha, parameters.beta),
            needs,
            parameters.over,
            # What no node could hold is no subgraph; a node must keep a little of each dimension (eq 13 is strict).
            float(available.min(initial=1.0)) * (1.0 - 1e-6),
            min((node.capacity for node in nodes if node.capacity), default=1),
        )
        return Situation(
            view, joint_graph(view), limits, nodes, available, np.concatenate([np.zeros(0, np.int64), *running])
        )

    def _trigger(self, here: Situation, rates: Mapping[str, float], memory: Memory, since_s: float) -> tuple[str, str]:
        """Why to plan, or why not; one of the two is empty.

        The first plan follows the first full statistics period whatever the loads are: it may keep every task where
        it is, but the rates that it saw are those that the trigger compares with from then on.
        """
        if not here.graph.size or not here.nodes:
            return "", "there is nothing to place, or no node to place it on"
        if not here.complete:
            return "some tasks have no live node", ""
        if not any(rates.values()):
            return "", "nothing has been measured yet"
        if "rates" not in memory:
            if here.view.end_s - since_s < self.parameters.interval_s - 1e-6:
                return "", "the first statistics period is not over"
            return "the first statistics period is over", ""
        at_s, used = memory.get("at_s"), here.used
        if at_s is not None and here.view.end_s - at_s < self.parameters.cooldown_s - 1e-6:
            return "", "the cooldown has not passed"
        if used.max() > self.parameters.over + 1e-9:
            return f"a node carries {used.max():.2f}, more than {self.parameters.over}", ""
        if used.mean() < self.parameters.under - 1e-9:
            return f"used nodes carry {used.mean():.2f} on average, less than {self.parameters.under}", ""
        for name, rate in rates.items():
            before = memory["rates"].get(name, 0.0)
            if moved(before, rate, self.parameters.trigger):
                return f"the source rate of {name} moved from {before:.0f} to {rate:.0f}", ""
        return "", "every used node is in its band and the rates are steady"

    def _place(
        self, here: Situation, rates: Mapping[str, float], trigger: str, rng: np.random.Generator
    ) -> tuple[Mapping[str, Mapping[TaskId, Slot]], Reason]:
        scaled = self._partition(here, rng)
        new = rate_cut(here.graph, scaled.labels, max(1, scaled.parts), self.parameters.epsilon)
        inputs = self._inputs(here, rates)
        forecast: dict[str, Any] = {"nodes": scaled.parts, "cost": new.cost, "traffic_cut": new.share}
        forecast |= {"under_accepted": len(scaled.under_accepted), "over_accepted": len(scaled.over_accepted)}
        wanted = f"{scaled.parts} nodes cutting {new.share:.1%}"
        keep = self._why_keep(here, scaled, new.cost)
        if keep:
            lost = (Alternative(wanted, keep),)
            return {}, Reason("cluster", f"{trigger}; the present placement stays", inputs, forecast, lost)
        chosen = self._nodes_for(here, scaled)
        if here.complete and None in chosen:
            lost = (Alternative(wanted, "some subgraph fits on no node"),)
            return {}, Reason(
                "cluster", f"{trigger}; no node fits, the present placement stays", inputs, forecast, lost
            )
        packed = pack(here.view, here.graph, scaled.labels, chosen, here.nodes)
        if here.complete and packed.lost:
            # What stays behind needs the slot that the plan has given to others.
            lost = (Alternative(wanted, f"{packed.lost} tasks find no process with room"),)
            return {}, Reason("cluster", f"{trigger}; the present placement stays", inputs, forecast, lost)
        forecast |= saved_costs(here.view, here.graph, packed.places)
        forecast |= {"tasks_beside_their_subgraph": packed.spilled, "tasks_without_room": packed.lost}
        count = len(np.unique(here.running[here.running >= 0]))
        used = here.used
        stay = f"they carry {used.min():.2f} to {used.max():.2f}" if len(used) else "nothing runs there"
        summary = f"{trigger}; {scaled.parts} nodes"
        return packed.places, Reason(
            "cluster", summary, inputs, forecast, (Alternative(f"stay on {count} nodes", stay),)
        )

    def _partition(self, here: Situation, rng: np.random.Generator) -> Scaled:
        parameters, limits = self.parameters, here.limits
        parts = max(1, min(len(here.nodes), here.graph.size))
        inside = here.running >= 0
        names = np.unique(here.running[inside])
        start = np.searchsorted(names, here.running) if here.complete else first_fit(limits, parts)
        if inside.any():
            start = np.where(inside, np.searchsorted(names, here.running), start)
        hot, cold = parameters.temperature_start, parameters.temperature_end
        schedule = Schedule(hot, cold, parameters.cooling, parameters.moves)
        labels = anneal(here.graph, start, parts, parameters.epsilon, limits, schedule, rng)
        scaled = scale(here.graph, labels, limits, parameters.under, len(here.nodes))
        # Scaling looks at loads first; a short, cool search wins back traffic that it cut, on the same nodes.
        short = Schedule(hot * COOL, cold, parameters.cooling, parameters.moves)
        again = anneal(here.graph, scaled.labels, scaled.parts, parameters.epsilon, limits, short, rng)
        return scaled if _loosens(limits, scaled, again, parameters.under) else replace(scaled, labels=again)

    def _why_keep(self, here: Situation, scaled: Scaled, cost: float) -> str:
        """Why the running placement is as good; empty if the new one should be taken."""
        if not here.complete:
            return ""
        names, running = np.unique(here.running, return_inverse=True)
        crowded = np.bincount(running.reshape(-1)) > here.limits.tasks_max
        if here.used.max() > self.parameters.over + 1e-9 or crowded.any():
            return ""
        if scaled.parts != len(names):
            return "" if scaled.parts < len(names) else "it needs more nodes, and none is overloaded"
        now = rate_cut(here.graph, running.reshape(-1), len(names), self.parameters.epsilon).cost
        if cost <= (1.0 - self.parameters.gain_min) * now - 1e-12:
            return ""
        return f"its cost of {cost:.3f} is no clear gain over {now:.3f}"

    def _nodes_for(self, here: Situation, scaled: Scaled) -> list[int | None]:
        """A node for each subgraph, the largest first, one subgraph per node (Ra-17)."""
        parts, nodes = scaled.parts, len(here.nodes)
        demand = np.bincount(scaled.labels, here.limits.demand, parts)
        needs = np.column_stack([np.bincount(scaled.labels, column, parts) for column in here.limits.needs.T])
        count = np.bincount(scaled.labels, minlength=parts)
        held = np.zeros((parts, nodes))
        inside = here.running >= 0
        np.add.at(held, (scaled.labels[inside], here.running[inside]), 1.0)
        free = np.array([node.capacity for node in here.nodes])
        chosen: list[int | None] = [None] * parts
        for part in np.lexsort((np.arange(parts), -demand)).tolist():
            one = slice(part, part + 1)
            open_to = (free >= count[part])[None, :]
            gamma, delta = self.parameters.gamma, self.parameters.delta
            at = assign_nodes(here.available, needs[one].astype(float), gamma, delta, held[one], open_to)[0]
            chosen[part] = at
            if at is not None:
                free[at] = 0
        return chosen

    @staticmethod
    def _inputs(here: Situation, rates: Mapping[str, float]) -> dict[str, Any]:
        used = here.used
        return {
            "rates": dict(rates),
            "demand": float(here.limits.demand.sum()),
            "nodes_used": len(used),
            "node_demand_mean": float(used.mean()) if len(used) else 0.0,
            "node_demand_max": float(used.max()) if len(used) else 0.0,
        }


def _loosens(limits: Limits, scaled: Scaled, labels: Ints, under: float) -> bool:
    """Whether a changed partition has an empty subgraph, or more of them below the band than before."""
    before = np.bincount(scaled.labels, limits.demand, scaled.parts)
    after = np.bincount(labels, limits.demand, scaled.parts)
    filled = np.bincount(labels, minlength=scaled.parts) > 0
    return bool(not filled.all() or (after < under - 1e-9).sum() > (before < under - 1e-9).sum())


def _changed(topology: TopologyView, place: Mapping[TaskId, Slot]) -> dict[TaskId, Slot]:
    return {task: slot for task, slot in place.items() if topology.placement.get(task) != slot}


def _node_changes(view: View, plans: Mapping[str, TopologyPlan]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Nodes that come into use, and live nodes that no task is left on."""
    before = {view.nodes[at].id for at in view.used_nodes()}
    after: set[str] = set()
    for topology in view.topologies:
        plan = plans.get(topology.name)
        after |= {slot.node for slot in {**topology.placement, **(plan.placement if plan else {})}.values()}
    return tuple(sorted(after - before)), tuple(sorted(before - after))
