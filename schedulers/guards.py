"""Guard rails around any policy: how often, how far and within what bounds a plan may go.

The wrapper is itself a policy, so that the controller and the lab treat both alike. With its default configuration it
changes nothing at all, which is what experiments from papers need. Whatever it holds back is said in the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from rstream.schedulers.moves import Move, diff
from rstream.schedulers.plan import Plan, Reason, TopologyPlan, settle
from rstream.schedulers.policy import Memory, Parameters, Policy
from rstream.schedulers.tables import TaskId
from rstream.schedulers.view import TopologyView, View

#: Sees the view, the plan and its moves; a text refuses the plan and says why, an empty one lets it pass.
Veto = Callable[[View, Plan, tuple[Move, ...]], str]


class GuardParameters(Parameters):
    """Limits on any policy's plans; the defaults limit nothing."""

    cooldown_s: float = Field(default=0.0, ge=0, description="Least time between two plans that change a topology.")
    step_max: int | None = Field(default=None, ge=1, description="Most instances that one plan adds or removes.")
    parallelism_min: Mapping[str, int] = Field(default={}, description="Least instances per operator.")
    parallelism_max: Mapping[str, int] = Field(default={}, description="Most instances per operator.")
    nodes_max: int | None = Field(default=None, ge=1, description="Node budget: most nodes in use at a time.")
    hysteresis: float = Field(
        default=0.0, ge=0, lt=1, description="Relative change of an operator's size below which it is left alone."
    )
    dry_run: bool = Field(default=False, description="Decide and explain, but change nothing.")


class Guarded:
    """A policy within guard rails.

    >>> from rstream import schedulers
    >>> Guarded(schedulers.make("even")).name
    'even'
    """

    def __init__(self, policy: Policy, parameters: GuardParameters | None = None, veto: Veto | None = None) -> None:
        self.policy = policy
        self.parameters = parameters or GuardParameters()
        self._veto = veto

    @property
    def name(self) -> str:
        """The wrapped policy's name: guard rails are no policy of their own."""
        return self.policy.name

    @property
    def interval_s(self) -> float:
        """As often as the wrapped policy wants."""
        return self.policy.interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Let the policy decide, then hold back what the limits do not allow.

        A plan that is held back whole leaves the policy's memory as it was: it decides again when it may.
        """
        inner: Memory = memory.get("policy", {})
        changed_s: dict[str, float] = dict(memory.get("changed_s", {}))
        plan, after = self.policy.plan(view, inner, rng)
        said: list[Reason] = []
        plans = {
            name: limited
            for name, wanted in plan.topologies.items()
            if (limited := self._limit(view, view.topology(name), wanted, changed_s.get(name), said))
        }
        limited_plan = self._within_budget(view, replace(plan, topologies=plans), said)
        why = self._refuse(view, limited_plan)
        if why:
            said.append(Reason("cluster", f"guard: {why}", {"held_back": limited_plan.to_data()["topologies"]}))
            limited_plan = Plan(reasons=plan.reasons)
        lost_all = bool(plan) and not limited_plan
        for name in limited_plan.topologies:
            changed_s[name] = view.end_s
        result = replace(limited_plan, reasons=(*plan.reasons, *said))
        return result, {"policy": inner if lost_all else after, "changed_s": changed_s}

    def _limit(
        self, view: View, topology: TopologyView, wanted: TopologyPlan, last_s: float | None, said: list[Reason]
    ) -> TopologyPlan:
        limits = self.parameters
        if last_s is not None and view.end_s - last_s < limits.cooldown_s - 1e-6:
            said.append(Reason(topology.name, "guard: the cooldown has not passed", {"last_s": last_s}))
            return TopologyPlan()
        sizes: dict[str, int] = {}
        for name, count in wanted.parallelism.items():
            allowed = self._size(name, topology.active(name), count)
            if allowed != count:
                subject, detail = f"{topology.name}/{name}", {"wanted": count, "allowed": allowed}
                said.append(Reason(subject, f"guard: {count} instances wanted, {allowed} allowed", detail))
            if allowed != topology.active(name):
                sizes[name] = allowed
        if sizes == dict(wanted.parallelism):
            return wanted
        return _without_changes(topology, replace(wanted, parallelism=sizes), set(wanted.parallelism))

    def _size(self, name: str, active: int, wanted: int) -> int:
        limits = self.parameters
        if abs(wanted - active) < limits.hysteresis * active:
            wanted = active
        if limits.step_max is not None:
            wanted = min(max(wanted, active - limits.step_max), active + limits.step_max)
        wanted = max(wanted, limits.parallelism_min.get(name, 1))
        return min(wanted, limits.parallelism_max.get(name, wanted))

    def _within_budget(self, view: View, plan: Plan, said: list[Reason]) -> Plan:
        budget = self.parameters.nodes_max
        if budget is None:
            return plan
        before = {view.nodes[at].id for at in view.used_nodes()}
        after: set[str] = set()
        for topology in view.topologies:
            wanted = plan.topologies.get(topology.name)
            placement = settle(topology, wanted).placement if wanted else topology.placement
            after |= {slot.node for slot in placement.values()}
        if len(after) + plan.nodes_more <= budget:
            return plan
        detail = {"nodes": len(after), "asked_for": plan.nodes_more, "budget": budget}
        more = max(0, budget - len(after))
        if len(after) <= budget:
            said.append(Reason("cluster", f"guard: the node budget of {budget} allows {more} nodes more", detail))
            return replace(plan, nodes_more=more)
        if len(after) <= len(before):
            return replace(plan, nodes_more=0)  # over budget already, and not getting worse
        said.append(Reason("cluster", f"guard: the plan needs {len(after)} nodes, the budget is {budget}", detail))
        return Plan(reasons=plan.reasons)

    def _refuse(self, view: View, plan: Plan) -> str:
        if not plan:
            return ""
        if self.parameters.dry_run:
            return "dry run"
        refusal = self._veto(view, plan, diff(view, plan)) if self._veto else ""
        return f"vetoed: {refusal}" if refusal else ""


def _without_changes(topology: TopologyView, plan: TopologyPlan, decided: set[str]) -> TopologyPlan:
    """Drop what belonged to sizes that were not allowed: places of tasks that will not be, state of what stays."""
    end = settle(topology, plan)
    standing = {TaskId(name, index) for name, indices in end.loaded.items() for index in indices}
    keeps = decided - set(plan.parallelism)
    actions: list[Any] = []
    for action in plan.state_actions:
        if action.operator in keeps:
            continue
        if action.kind == "repartition" and action.operator in plan.parallelism:
            action = replace(action, detail={**action.detail, "m_new": plan.parallelism[action.operator]})
        actions.append(action)
    return replace(
        plan,
        pool={name: size for name, size in plan.pool.items() if name not in keeps},
        placement={task: slot for task, slot in plan.placement.items() if task in standing},
        retire=tuple(task for task in plan.retire if task.operator in plan.parallelism),
        state_actions=tuple(actions),
    )
