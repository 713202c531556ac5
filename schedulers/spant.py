"""SP-Ant: an ant colony that tries placements on the running topology and learns from their latency.

Each decision deploys the plan of one ant; the next view tells how long tuples took with it. After the last ant the best
plan seen is kept. Nothing looks at the load of nodes: that is the weakness which Ra-Stream reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.tables import Floats, Slot, TaskId
from rstream.schedulers.view import TopologyView, View


def probabilities(
    pheromone: Sequence[float], heuristic: Sequence[float], alpha: float = 2.0, beta: float = 1.0
) -> Floats:
    """How likely an ant puts an executor on each slot; all equal when nothing has been laid.

    >>> probabilities([0.5, 0.5], [1, 1]).tolist()
    [0.5, 0.5]
    """
    weight = np.asarray(pheromone, dtype=np.float64) ** alpha * np.asarray(heuristic, dtype=np.float64) ** beta
    total = weight.sum()
    return weight / total if total > 0 else np.full(len(weight), 1.0 / max(1, len(weight)))


def deposit(
    pheromone: Sequence[Sequence[float]], chosen: Sequence[int], latency_s: float, evaporation: float, strength: float
) -> list[list[float]]:
    """Lay pheromone on the chosen slot of every executor, then let all of it evaporate a little.

    >>> deposit([[0.5, 0.5]], [1], 1.0, 0.5, 1.0)
    [[0.25, 0.75]]
    """
    laid = strength / latency_s
    return [
        [refreshed(tau, laid if slot == pick else 0.0, evaporation) for slot, tau in enumerate(row)]
        for row, pick in zip(pheromone, chosen, strict=True)
    ]


def refreshed(pheromone: float, laid: float, evaporation: float) -> float:
    """One entry after an ant has been there (or not) and some of all pheromone is gone."""
    return (pheromone + laid) * (1.0 - evaporation)


class SpAntParameters(Parameters):
    """Parameters of `sp-ant`; the public prototype's values."""

    interval_s: float = Field(default=30.0, gt=0, description="How long each plan is tried.")
    ants: int = Field(default=6, ge=1, description="Plans per iteration.")
    iterations: int = Field(default=5, ge=1, description="Iterations before the best plan is kept.")
    pheromone_start: float = Field(default=0.5, gt=0, description="tau at the start.")
    heuristic_start: float = Field(default=1.0, gt=0, description="eta at the start.")
    strength: float = Field(default=1.0, gt=0, description="Q: pheromone laid per second of latency saved.")
    evaporation: float = Field(default=0.05, ge=0, lt=1, description="Share of all pheromone lost per plan.")
    alpha: float = Field(default=2.0, ge=0, description="Weight of the pheromone.")
    beta: float = Field(default=1.0, ge=0, description="Weight of the heuristic.")


class SpAnt:
    """The policy `sp-ant`.

    Memory holds only the pairs that were ever chosen: the pheromone of all others is the same number, `rest`.
    """

    name: ClassVar[str] = "sp-ant"
    Parameters: ClassVar = SpAntParameters

    def __init__(self, parameters: SpAntParameters | None = None) -> None:
        self.parameters = parameters or SpAntParameters()

    @property
    def interval_s(self) -> float:
        """One plan per interval."""
        return self.parameters.interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Learn from the plan that ran, deploy the next one."""
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        kept: dict[str, Any] = {}
        known = [t.name for t in view.topologies if t.name in memory]
        ledger = Ledger(view, without=[topology.name for topology in view.topologies])
        for topology in sorted(view.topologies, key=lambda topology: (topology.name not in known, topology.name)):
            colony = self._learn(topology, memory.get(topology.name))
            place, summary, others = self._next(view, topology, colony, ledger, rng)
            kept[topology.name] = {**colony, "deployed": [[*task, *slot] for task, slot in place.items()]}
            moved = {task: slot for task, slot in place.items() if topology.placement.get(task) != slot}
            inputs = {"plan": colony["tried"], "latency_ms": topology.latency_ms}
            reasons.append(Reason(topology.name, summary, inputs, {"best_ms": colony["best_ms"]}, others))
            if moved:
                plans[topology.name] = TopologyPlan(placement=moved)
        return Plan(plans, reasons=tuple(reasons)), kept

    def _learn(self, topology: TopologyView, last: Mapping[str, Any] | None) -> dict[str, Any]:
        start = self.parameters
        if last is None:
            blank = {"tried": 0, "rest": start.pheromone_start, "pairs": {}, "walked": []}
            return {**blank, "best": [], "best_ms": None, "deployed": []}
        colony = dict(last)
        if colony["tried"] > start.ants * start.iterations or topology.latency_ms <= 0:
            return colony
        colony["tried"] += 1
        if colony["best_ms"] is None or topology.latency_ms < colony["best_ms"]:
            colony["best"], colony["best_ms"] = colony["deployed"], topology.latency_ms
        if last["tried"]:  # the plan that all start from is no ant's
            colony["walked"] = [*colony["walked"], [colony["deployed"], topology.latency_ms]]
        if len(colony["walked"]) == start.ants:
            for deployed, latency_ms in colony["walked"]:
                self._lay(colony, deployed, latency_ms / 1e3)
            colony["walked"] = []
        return colony

    def _lay(self, colony: dict[str, Any], deployed: Sequence[Sequence[Any]], latency_s: float) -> None:
        """One ant's pheromone, once its whole iteration is home.

        Laid ant by ant, the first would decide: a latency of milliseconds lays hundreds of times the pheromone that
        all pairs start with, and no other pair would ever be tried.
        """
        start, laid = self.parameters, self.parameters.strength / latency_s
        ran = {f"{operator}#{index}@{node}#{process}" for operator, index, node, process in deployed}
        pairs = {**{key: [colony["rest"], start.heuristic_start] for key in sorted(ran)}, **colony["pairs"]}
        colony["pairs"] = {
            key: [refreshed(tau, laid if key in ran else 0.0, start.evaporation), laid if key in ran else eta]
            for key, (tau, eta) in pairs.items()
        }
        colony["rest"] = refreshed(colony["rest"], 0.0, start.evaporation)

    def _next(
        self, view: View, topology: TopologyView, colony: Mapping[str, Any], ledger: Ledger, rng: np.random.Generator
    ) -> tuple[dict[TaskId, Slot], str, tuple[Alternative, ...]]:
        total = self.parameters.ants * self.parameters.iterations
        slots = [Slot(n.id, p) for n in sorted(view.nodes, key=lambda n: n.id) if n.alive for p in range(n.processes)]
        tasks = connection_order(topology)
        if colony["tried"] == 0:
            return self._first_fit(topology, tasks, slots, ledger), "first fit in connection order, to start from", ()
        if colony["tried"] > total:
            place = {TaskId(o, i): Slot(n, p) for o, i, n, p in colony["best"]}
            stand = {task: slot for task, slot in place.items() if ledger.book_slot(topology.name, task, slot)}
            rest = [task for task in tasks if task not in stand]
            stand |= self._first_fit(topology, rest, slots, ledger)
            why = Alternative("another plan", f"all {total} have been tried; the best is kept")
            return stand, "the best plan is kept", (why,)
        return (
            self._walk(topology, tasks, slots, colony, ledger, rng),
            f"plan {colony['tried']} of {total} is tried",
            (),
        )

    @staticmethod
    def _first_fit(
        topology: TopologyView, tasks: Sequence[TaskId], slots: Sequence[Slot], ledger: Ledger
    ) -> dict[TaskId, Slot]:
        place: dict[TaskId, Slot] = {}
        start = 0
        for task in tasks:
            for at in range(start, len(slots)):
                if ledger.book_slot(topology.name, task, slots[at]):
                    place[task] = slots[at]
                    break
                start = at + 1 if at == start else start
        return place

    def _walk(
        self,
        topology: TopologyView,
        tasks: Sequence[TaskId],
        slots: Sequence[Slot],
        colony: Mapping[str, Any],
        ledger: Ledger,
        rng: np.random.Generator,
    ) -> dict[TaskId, Slot]:
        place: dict[TaskId, Slot] = {}
        for task in tasks:
            fit = [slot for slot in slots if ledger.room_in(topology.name, slot)]
            if not fit:
                break
            blank = (colony["rest"], self.parameters.heuristic_start)
            pairs = [colony["pairs"].get(f"{task.operator}#{task.instance}@{s.node}#{s.process}", blank) for s in fit]
            tau, eta = zip(*pairs, strict=True)
            slot = fit[
                int(rng.choice(len(fit), p=probabilities(tau, eta, self.parameters.alpha, self.parameters.beta)))
            ]
            ledger.book_slot(topology.name, task, slot)
            place[task] = slot
        return place


def connection_order(topology: TopologyView) -> list[TaskId]:
    """Sources first, which pins them to the first slots, then neighbours of what is already in the list."""
    names = [operator.name for operator in topology.operators]
    names.sort(key=lambda name: (topology.operator(name).kind != "source", topology.positions[name]))
    return [topology.task_ids[row] for name in names for row in topology.rows(name).tolist()]
