"""Static-r Storm: a fixed number of replicas per operator, shuffle, even placement, no control."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from rstream.schedulers.even import assign_evenly, in_start_order, workers_for
from rstream.schedulers.ledger import Ledger
from rstream.schedulers.plan import Plan, Reason, TopologyPlan, growth
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.view import View


class StaticParameters(Parameters):
    """Parameters of `static`."""

    replicas: int | None = Field(default=None, ge=1, description="Replicas of every bolt; None keeps what was started.")
    workers: int | None = Field(
        default=None, ge=1, description="Processes per topology; None: declared, or one per node."
    )


class Static:
    """The policy `static`: set the size once, then never change it."""

    name: ClassVar[str] = "static"
    Parameters: ClassVar = StaticParameters

    def __init__(self, parameters: StaticParameters | None = None) -> None:
        self.parameters = parameters or StaticParameters()

    @property
    def interval_s(self) -> float:
        """There is nothing to look at; only lost slots are replaced."""
        return 30.0

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Bring every bolt to its fixed size and place what has no live slot."""
        ledger = Ledger(view)
        alive = {node.id for node in view.nodes if node.alive}
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        for topology in view.topologies:
            wanted: dict[str, int] = {}
            tasks = in_start_order(topology)
            for operator in topology.operators:
                size = self.parameters.replicas
                if size is None or operator.kind == "source":
                    continue
                size = min(max(size, operator.parallelism_min), operator.parallelism_max)
                if size != topology.active(operator.name):
                    wanted[operator.name] = size
                    tasks += growth(topology, operator.name, size)[1]
            homeless = any((slot := topology.placement.get(task)) is None or slot.node not in alive for task in tasks)
            moved = {}
            if homeless:
                workers = workers_for(topology, view, len(tasks), self.parameters.workers)
                place = assign_evenly(topology, tasks, ledger, view, workers)
                moved = {task: slot for task, slot in place.items() if topology.placement.get(task) != slot}
            plan = TopologyPlan(wanted, placement=moved)
            summary = "size and places are fixed" if not plan else "set to its fixed size and places"
            reasons.append(Reason(topology.name, summary, {"replicas": self.parameters.replicas}))
            if plan:
                plans[topology.name] = plan
        return Plan(plans, reasons=tuple(reasons)), {}
