"""Es-Stream: how many instances by M/M/k, on which nodes by the skewness of their loads.

The policy acts only when the source rate has left a band around the rate of its last scaling, or when that one found
no node for some instances. It then visits the operators in topological order, carries the predicted rates down, and
gives each operator the number of instances that trades queue length against resources. Scaling a stateful operator
adds the repartition and replay of its backups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from rstream.schedulers.es_nodes import NodeScaling, Scaling
from rstream.schedulers.loads import Decision, repartition_s, replay_s, spread
from rstream.schedulers.plan import Alternative, Plan, Reason, StateAction, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.queueing import Choice, cheapest, queue
from rstream.schedulers.rates import moved
from rstream.schedulers.tables import TaskId
from rstream.schedulers.view import TopologyView, View


@dataclass(frozen=True, slots=True)
class Sizing:
    """Instances and predicted input rate of every operator."""

    choices: Mapping[str, Choice]
    rates: Mapping[str, float]


def size_topology(
    order: Sequence[str],
    edges: Sequence[tuple[str, str, float]],
    source_rates: Mapping[str, float],
    service_rates: Mapping[str, float],
    betas: Mapping[str, float],
    servers_max: Mapping[str, int] | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Sizing:
    """One topological pass (Es-13): an operator passes on no more than its instances can serve.

    `fixed` operators keep their number; an operator without a known service rate keeps it too and passes all on.

    >>> plan = size_topology(["a", "b"], [("a", "b", 5.0)], {"a": 1800}, {"a": 240, "b": 1100}, {"a": 0.2, "b": 0.2},
    ...                      servers_max={"a": 4})
    >>> plan.rates["b"], plan.choices["a"].saturated
    (4800.0, True)
    """
    rates = {name: float(source_rates.get(name, 0.0)) for name in order}
    choices: dict[str, Choice] = {}
    cap, keep = servers_max or {}, fixed or {}
    out: dict[str, list[tuple[str, float]]] = {name: [] for name in order}
    for source, target, selectivity in edges:
        out[source].append((target, selectivity))
    for name in order:
        rate, mu = rates[name], service_rates.get(name, 0.0)
        if name in keep:
            cost = betas[name] * keep[name] + (1 - betas[name]) * queue(rate, mu, keep[name]).length
            choices[name] = Choice(keep[name], cost, saturated=not math.isfinite(cost))
        else:
            choices[name] = cheapest(rate, mu, betas[name], cap.get(name))
        served = min(rate, mu * choices[name].servers) if mu > 0 else rate
        for target, selectivity in out[name]:
            rates[target] += selectivity * served
    return Sizing(choices, rates)


class EsParameters(Parameters):
    """Parameters of `es`; the paper's values where it gives one."""

    trigger: float = Field(
        default=0.2, gt=0, description="Relative change of the source rate that starts a scaling [paper]."
    )
    adjust_interval_s: float = Field(
        default=10.0, gt=0, description="Least time between scalings [paper; 15 in its stable runs]."
    )
    alpha_cpu: float = Field(
        default=0.80, gt=0, le=1, description="Most CPU load that a new instance may bring a node to."
    )
    alpha_mem: float = Field(default=0.80, gt=0, le=1, description="Most memory load of a node.")
    alpha_io: float = Field(default=0.80, gt=0, le=1, description="Most I/O load of a node.")
    alpha_sync: float = Field(default=0.80, gt=0, le=1, description="Node load from which backups pause.")
    eta: float = Field(default=0.5, ge=0, description="Largest skewness at which the cluster scales out.")
    phi: float = Field(default=0.70, ge=0, le=1, description="Least mean load at which the cluster scales out.")
    chi: float = Field(default=-0.5, description="Least skewness at which the cluster scales in.")
    zeta: float = Field(default=0.30, ge=0, le=1, description="Largest mean load at which the cluster scales in.")
    sync_interval_s: float = Field(default=5.0, gt=0, description="Time between backups, CI [paper, Fig 19].")
    scale_stateful: bool = Field(
        default=True, description="Whether stateful operators change size; off in the elasticity runs."
    )
    beta: float | None = Field(
        default=None, gt=0, lt=1, description="Price of an instance; None takes its measured load."
    )
    instances_max: int = Field(default=1000, ge=1, description="Cap per operator, beside the operator's own maximum.")


class EsStream:
    """The policy `es`."""

    name: ClassVar[str] = "es"
    Parameters: ClassVar = EsParameters

    def __init__(self, parameters: EsParameters | None = None) -> None:
        self.parameters = parameters or EsParameters()

    @property
    def interval_s(self) -> float:
        """One look per adjust interval."""
        return self.parameters.adjust_interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Scale every topology whose source rate has moved; nothing here is random."""
        remembered: dict[str, Any] = dict(memory.get("topologies", {}))
        scaling = NodeScaling(view, self.parameters)
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        for topology in view.topologies:
            last = remembered.get(topology.name, {})
            rate = view.rate(topology.source_count)
            why_not = self._why_wait(view.end_s, rate, last)
            paused = self._paused(view, topology)
            actions = self._sync_actions(topology, paused, last.get("paused", []))
            kept = {**last, "paused": [list(task) for task in paused]}
            if why_not:
                reasons.append(Reason(topology.name, why_not, {"rate": rate, "reference": last.get("rate")}))
                if actions:
                    plans[topology.name] = TopologyPlan(state_actions=actions)
            else:
                wanted = self._size(view, topology, rate, last)
                grown = scaling.place(topology, {name: choice.servers for name, choice in wanted.choices.items()})
                plans[topology.name] = self._complete(topology, wanted, grown, actions)
                reasons += self._reasons(topology, wanted, grown)
                busy = self._busy_until(view, topology, wanted, grown)
                kept.update(at_s=view.end_s, busy={**last.get("busy", {}), **busy})
                if all(grown.parallelism[name] >= choice.servers for name, choice in wanted.choices.items()):
                    kept["rate"] = rate  # else it is not scaled for this rate yet, and the next look tries again
            remembered[topology.name] = kept
        reasons.append(self._node_reason(scaling))
        plan = Plan(
            {name: plan for name, plan in plans.items() if plan},
            nodes_taken=scaling.taken(),
            nodes_released=scaling.released(),
            nodes_more=scaling.missing_nodes,
            reasons=tuple(reasons),
        )
        alive = {topology.name for topology in view.topologies}
        return plan, {"topologies": {name: kept for name, kept in remembered.items() if name in alive}}

    def _why_wait(self, now_s: float, rate: float, last: Mapping[str, Any]) -> str:
        if "rate" not in last:
            return "" if rate > 0 else "nothing has come in yet"
        if not moved(last["rate"], rate, self.parameters.trigger):
            return f"the rate is within {self.parameters.trigger:.0%} of the last scaling"
        # Decisions come once per tick, and ticks may fall a little early.
        if now_s - last["at_s"] < self.parameters.adjust_interval_s - 1e-6:
            return "the adjust interval has not passed"
        return ""

    def _size(self, view: View, topology: TopologyView, rate: float, last: Mapping[str, Any]) -> Sizing:
        parameters = self.parameters
        fixed: dict[str, int] = {}
        service_rates: dict[str, float] = {}
        betas: dict[str, float] = {}
        cap: dict[str, int] = {}
        for operator in topology.operators:
            name, service_s = operator.name, topology.service_s(operator.name)
            service_rates[name] = 1.0 / service_s if service_s > 0 else 0.0
            betas[name] = parameters.beta or self._beta(topology, name)
            cap[name] = min(operator.parallelism_max, parameters.instances_max)
            frozen = operator.stateful and not parameters.scale_stateful
            busy = last.get("busy", {}).get(name, -math.inf) > view.end_s
            if frozen or busy or service_s <= 0 or operator.parallelism_min >= cap[name]:
                fixed[name] = max(topology.active(name), operator.parallelism_min)
        sizing = size_topology(
            [operator.name for operator in topology.operators],
            [(edge.source, edge.target, edge.selectivity) for edge in topology.edges],
            {name: view.rate(count) for name, count in topology.source_counts.items()},
            service_rates,
            betas,
            cap,
            fixed,
        )
        least = {operator.name: operator.parallelism_min for operator in topology.operators}
        raised = {
            name: choice if choice.servers >= least[name] else Choice(least[name], choice.cost)
            for name, choice in sizing.choices.items()
        }
        return Sizing(raised, sizing.rates)

    @staticmethod
    def _beta(topology: TopologyView, name: str) -> float:
        rows = topology.rows(name, active=True)
        peak = topology.tasks.loads[rows].max(axis=1).mean() if len(rows) else 0.0
        return float(np.clip(peak, 0.01, 0.99))

    def _complete(
        self, topology: TopologyView, wanted: Sizing, grown: Scaling, sync: tuple[StateAction, ...]
    ) -> TopologyPlan:
        changed = {name: k for name, k in grown.parallelism.items() if k != topology.active(name)}
        actions = list(sync)
        for name in changed:
            operator = topology.operator(name)
            if operator.stateful or operator.keyed:
                detail = {"m_old": topology.active(name), "m_new": changed[name]}
                actions.append(StateAction("repartition", name, detail=detail))
                actions.append(StateAction("replay", name, detail={"rate": wanted.rates[name]}))
        return TopologyPlan(changed, placement=grown.placement, retire=grown.retired, state_actions=tuple(actions))

    def _busy_until(self, view: View, topology: TopologyView, wanted: Sizing, grown: Scaling) -> dict[str, float]:
        """When the replay of each rescaled stateful operator will be over: no second change before that."""
        until: dict[str, float] = {}
        for name, k in grown.parallelism.items():
            operator, before = topology.operator(name), topology.active(name)
            mu = topology.service_s(name)
            if k == before or not operator.stateful or mu <= 0:
                continue
            each = wanted.rates[name] / max(1, k)
            speed = view.links.default_bytes_s
            move_s = repartition_s(operator.state_bytes, k, [speed], [speed])
            until[name] = (
                view.end_s + move_s + replay_s(self.parameters.sync_interval_s, [each], [each or 1.0], [1 / mu])
            )
        return until

    def _paused(self, view: View, topology: TopologyView) -> list[TaskId]:
        """Stateful instances on nodes that are too busy to send backups."""
        stateful = np.array([operator.stateful for operator in topology.operators], dtype=np.bool_)
        table = topology.tasks
        busy = np.append(view.node_loads.max(axis=1) >= self.parameters.alpha_sync, False)  # node -1: nowhere
        rows = np.flatnonzero(stateful[table.operator] & busy[table.node] & table.active)
        return [topology.task_ids[row] for row in rows.tolist()]

    def _sync_actions(
        self, topology: TopologyView, paused: Sequence[TaskId], before: Sequence[Sequence[Any]]
    ) -> tuple[StateAction, ...]:
        old, new = {TaskId(*task) for task in before}, set(paused)
        actions = []
        for tasks, interval_s in ((new - old, None), (old - new, self.parameters.sync_interval_s)):
            for operator in topology.operators:
                named = tuple(sorted(task for task in tasks if task.operator == operator.name))
                if named:
                    actions.append(StateAction("sync", operator.name, named, {"interval_s": interval_s}))
        return tuple(actions)

    def _reasons(self, topology: TopologyView, wanted: Sizing, grown: Scaling) -> list[Reason]:
        reasons = []
        for name, choice in wanted.choices.items():
            rate, service_s = wanted.rates[name], topology.service_s(name)
            mu, beta = (1.0 / service_s if service_s > 0 else 0.0), self.parameters.beta or self._beta(topology, name)
            k = grown.parallelism[name]
            summary = f"{topology.active(name)} -> {k} instances"
            if choice.saturated:
                summary += "; saturated: even the most instances allowed cannot keep up"
            if k < choice.servers:
                summary += f"; {choice.servers} wanted, no node fits the rest"
            others = []
            for k_other in (choice.servers - 1, choice.servers + 1):
                cost = beta * k_other + (1 - beta) * queue(rate, mu, k_other).length
                why = "the queue grows without bound" if math.isinf(cost) else "costs more"
                others.append(Alternative(f"{k_other} instances", why, None if math.isinf(cost) else cost))
            inputs = {"service_rate": mu, "beta": beta, "active": topology.active(name)}
            now = queue(rate, mu, k)
            forecast = {"rate": rate, "cost": _finite(choice.cost), "queue": _finite(now.length)}
            reasons.append(Reason(f"{topology.name}/{name}", summary, inputs, forecast, tuple(others)))
        return reasons

    def _node_reason(self, scaling: NodeScaling) -> Reason:
        seen, decision = spread(scaling.used_loads), scaling.decision
        inputs = {"mean": seen.mean, "skewness": seen.skewness, "nodes_used": len(scaling.used_loads)}
        p = self.parameters
        tests: dict[Decision, str] = {
            "scale_out": f"needs mean >= {p.phi} and skewness <= {p.eta}",
            "scale_in": f"needs mean <= {p.zeta} and skewness >= {p.chi}",
            "in_place": "holds when neither other test does",
        }
        others = tuple(Alternative(name, test) for name, test in tests.items() if name != decision)
        return Reason("cluster", decision, inputs, alternatives=others)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
