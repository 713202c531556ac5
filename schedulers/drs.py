"""DRS: threads go where they shorten the mean time in the topology most, by M/M/k.

With a bound on that time it finds the fewest threads; without one it spreads a fixed number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.placing import rebalance
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.queueing import Allocation, allocate, fewest, queue, stable_servers
from rstream.schedulers.rates import traffic_equations
from rstream.schedulers.view import OperatorView, TopologyView, View


class DrsParameters(Parameters):
    """Parameters of `drs`."""

    interval_s: float = Field(default=30.0, gt=0, description="Time between looks [public code].")
    intervals_between: int = Field(default=2, ge=1, description="Least intervals between two changes [public code].")
    executors_max: int | None = Field(default=None, ge=1, description="Threads to spread; None: as many as run now.")
    latency_ms_max: float | None = Field(
        default=None, gt=0, description="Bound on the mean time; finds the fewest threads."
    )
    gain_min: float = Field(default=0.05, ge=0, description="Least relative gain that is worth a change.")


class Drs:
    """The policy `drs`."""

    name: ClassVar[str] = "drs"
    Parameters: ClassVar = DrsParameters

    def __init__(self, parameters: DrsParameters | None = None) -> None:
        self.parameters = parameters or DrsParameters()

    @property
    def interval_s(self) -> float:
        """One look per interval."""
        return self.parameters.interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Allocate the threads of every topology; nothing here is random."""
        ledger = Ledger(view)
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        changed_s: dict[str, float] = dict(memory.get("changed_s", {}))
        wait_s = self.parameters.interval_s * self.parameters.intervals_between
        for topology in view.topologies:
            last_s = changed_s.get(topology.name, -math.inf)
            if view.end_s - last_s < wait_s - 1e-6:
                reasons.append(Reason(topology.name, "too few intervals since the last change"))
                continue
            wanted, reason = self._one(view, topology)
            reasons.append(reason)
            if wanted:
                grown = rebalance(topology, wanted, ledger, view)
                sizes = {name: k for name, k in grown.parallelism.items() if k != topology.active(name)}
                if sizes:
                    plans[topology.name] = TopologyPlan(sizes, placement=grown.placement)
                    changed_s[topology.name] = view.end_s
        alive = {topology.name for topology in view.topologies}
        return Plan(plans, reasons=tuple(reasons)), {"changed_s": {n: t for n, t in changed_s.items() if n in alive}}

    def _one(self, view: View, topology: TopologyView) -> tuple[dict[str, int], Reason]:
        free = [operator for operator in topology.operators if _sized(topology, operator)]
        if not free or topology.source_count <= 0:
            return {}, Reason(topology.name, "no load or no service times to plan for")
        rates = self._rates(view, topology)
        lam = [rates[operator.name] for operator in free]
        mu = [1.0 / topology.service_s(operator.name) for operator in free]
        now = [topology.active(operator.name) for operator in free]
        lam0 = view.rate(topology.source_count)
        expected_s = sum(r * queue(r, m, k).sojourn_s for r, m, k in zip(lam, mu, now, strict=True)) / lam0
        measured_s = topology.latency_ms / 1e3
        factor = max(1.0, measured_s / expected_s) if measured_s > 0 and 0 < expected_s < math.inf else 1.0
        inputs: dict[str, Any] = {"rates": dict(zip((o.name for o in free), lam, strict=True)), "correction": factor}
        best = self._allocate(lam, mu, sum(now), lam0, factor)
        if best is None:
            need = [stable_servers(r, m) for r, m in zip(lam, mu, strict=True)]
            inputs["stable_minimum"] = need
            return {}, Reason(topology.name, "no allocation within the limits is stable or fast enough", inputs)
        most = [operator.parallelism_max for operator in free]
        sizes = {
            o.name: min(max(k, o.parallelism_min), top) for o, k, top in zip(free, best.servers, most, strict=True)
        }
        forecast = {"sojourn_ms": best.sojourn_s * factor * 1e3, "sizes": sizes}
        gain = 1.0 - best.sojourn_s / expected_s if math.isfinite(expected_s) and expected_s > 0 else 1.0
        fewer = sum(best.servers) < sum(now)
        keep = Alternative(
            "keep the sizes",
            f"takes {expected_s * factor * 1e3:.3g} ms" if math.isfinite(expected_s) else "a queue grows without bound",
        )
        if list(sizes.values()) == now or (gain < self.parameters.gain_min and not fewer):
            return {}, Reason(topology.name, f"a gain of {max(gain, 0.0):.1%} is not worth a change", inputs, forecast)
        return sizes, Reason(topology.name, f"threads {now} -> {list(sizes.values())}", inputs, forecast, (keep,))

    def _allocate(
        self, lam: list[float], mu: list[float], running: int, lam0: float, factor: float
    ) -> Allocation | None:
        limit = self.parameters.executors_max or running
        if self.parameters.latency_ms_max is not None:
            bound_s = self.parameters.latency_ms_max / 1e3 / factor
            return fewest(lam, mu, bound_s, self.parameters.executors_max or 10 * running, lam0)
        steps = list(allocate(lam, mu, limit, lam0))
        return steps[-1] if steps else None

    @staticmethod
    def _rates(view: View, topology: TopologyView) -> Mapping[str, float]:
        names = [operator.name for operator in topology.operators]
        at = topology.positions
        routing = np.zeros((len(names), len(names)))
        for edge in topology.edges:
            routing[at[edge.source], at[edge.target]] += edge.selectivity
        external = [view.rate(topology.source_counts.get(name, 0.0)) for name in names]
        return dict(zip(names, traffic_equations(external, routing).tolist(), strict=True))


def _sized(topology: TopologyView, operator: OperatorView) -> bool:
    return topology.service_s(operator.name) > 0 and operator.parallelism_min < operator.parallelism_max
