"""DABS-Storm, after its author's prototype: forecast the next window and size every bolt for it.

Every change restarts the topology and empties its queues; that loss is what PSPS compares itself with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.placing import rebalance
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.rates import fit_line
from rstream.schedulers.view import TopologyView, View


class DabsParameters(Parameters):
    """Parameters of `dabs`."""

    window_s: float = Field(default=60.0, gt=0, description="Window looked at and forecast; also the grace period.")
    sample_s: float = Field(default=10.0, gt=0, description="Length of one input sample.")
    alpha: float = Field(default=0.01, ge=0, lt=1, description="Safety margin on the capacity of an instance.")
    allocated: float = Field(default=1.0, gt=0, le=1, description="Share of a core that an instance is given.")
    stability: float = Field(
        default=0.5, gt=0, le=1, description="Share of the instances that must suffice to scale in."
    )
    model: Literal["best", "linear", "logarithmic"] = Field(
        default="best", description="Regression of the inputs; `best` takes the one that fits better."
    )
    downtime_s: float = Field(default=10.0, ge=0, description="How long a restart keeps the topology down.")


@dataclass(frozen=True, slots=True)
class Observed:
    """One operator over one window: inputs per sample, latencies, what waits, and what its parents will send."""

    inputs: Sequence[float]
    sample_s: float
    window_s: float
    pending: float
    latencies_ms: Sequence[float]
    degree: int
    degree_max: int
    utilisable: float = 1.0
    from_parents: float = 0.0


@dataclass(frozen=True, slots=True)
class Degree:
    """The decision for one operator."""

    action: Literal["out", "in", "none"]
    degree: int
    estimate: float
    capacity: float


def regression(inputs: Sequence[float], sample_s: float, window_s: float, model: str) -> float:
    """What the next window brings: the fitted inputs of its samples, summed.

    >>> regression([100, 110, 120, 130, 140, 150], 10, 60, "linear")
    1110.0
    """
    if not inputs:
        return 0.0
    past = [(at + 1) * sample_s for at in range(len(inputs))]
    future = [past[-1] + (at + 1) * sample_s for at in range(round(window_s / sample_s))]
    straight, bent = fit_line(past, inputs), fit_line([math.log(time) for time in past], inputs)
    logarithmic = model == "logarithmic" or (model == "best" and bent.mean_square < straight.mean_square)
    return math.fsum(bent.at(math.log(time)) if logarithmic else straight.at(time) for time in future)


def degree(seen: Observed, parameters: DabsParameters) -> Degree:
    """Size one operator; fractions of an instance are rounded up, which the prototype forgets."""
    forecast = regression(seen.inputs, seen.sample_s, seen.window_s, parameters.model)
    estimate = max(0.0, max(forecast, seen.from_parents) + seen.pending)
    if not seen.latencies_ms or seen.latencies_ms[-1] <= 0:
        return Degree("none", seen.degree, estimate, 0.0)
    last = seen.latencies_ms[-1]
    spread = float(np.std([1e3 / latency for latency in seen.latencies_ms if latency > 0]))
    capacity = seen.window_s * (1e3 / last + spread)
    slow = last + float(np.std(seen.latencies_ms))
    each = parameters.allocated * (1.0 - parameters.alpha) * (1e3 / slow) * seen.window_s
    if estimate >= seen.degree * math.ceil(capacity * seen.utilisable):
        wanted = min(seen.degree_max, math.ceil(estimate / each - 1e-9))
        return Degree("out" if wanted > seen.degree else "none", max(wanted, seen.degree), estimate, capacity)
    load = max(estimate, math.fsum(seen.inputs))
    fewer = math.floor(seen.degree * parameters.stability + 0.5)
    if seen.degree > 1 and fewer >= 1 and load < fewer * math.ceil(each):
        wanted = max(1, math.ceil(load / each - 1e-9))
        return Degree("in" if wanted < seen.degree else "none", min(wanted, seen.degree), estimate, capacity)
    return Degree("none", seen.degree, estimate, capacity)


class Dabs:
    """The policy `dabs`."""

    name: ClassVar[str] = "dabs"
    Parameters: ClassVar = DabsParameters

    def __init__(self, parameters: DabsParameters | None = None) -> None:
        self.parameters = parameters or DabsParameters()

    @property
    def interval_s(self) -> float:
        """One decision per window."""
        return self.parameters.window_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Size the bolts of every topology that is not in its grace period; nothing here is random."""
        ledger = Ledger(view)
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        changed_s: dict[str, float] = {}
        for topology in view.topologies:
            last_s = memory.get("changed_s", {}).get(topology.name)
            if last_s is not None and view.end_s - last_s < self.parameters.window_s - 1e-6:
                reasons.append(Reason(topology.name, "within the grace period of the last change"))
                changed_s[topology.name] = last_s
                continue
            wanted = self._sizes(view, topology, reasons)
            if wanted:
                grown = rebalance(topology, wanted, ledger, view)
                sizes = {name: k for name, k in grown.parallelism.items() if k != topology.active(name)}
                if sizes:
                    plans[topology.name] = TopologyPlan(sizes, placement=grown.placement, execute="restart-drop")
                    changed_s[topology.name] = view.end_s
        return Plan(plans, reasons=tuple(reasons)), {"changed_s": changed_s}

    def _sizes(self, view: View, topology: TopologyView, reasons: list[Reason]) -> dict[str, int]:
        estimates: dict[str, float] = {}
        wanted: dict[str, int] = {}
        for operator in topology.operators:
            name, parents = operator.name, topology.parents(operator.name)
            seen = Observed(
                inputs=self._samples(view, topology, name),
                sample_s=self.parameters.sample_s,
                window_s=self.parameters.window_s,
                pending=float(topology.tasks.queue[topology.rows(name)].sum()),
                latencies_ms=operator.execute_samples_ms or self._latency(topology, name),
                degree=max(1, topology.active(name)),
                degree_max=operator.parallelism_max,
                from_parents=sum(estimates[edge.source] * edge.selectivity for edge in parents),
            )
            chosen = degree(seen, self.parameters)
            estimates[name] = chosen.estimate - seen.pending
            if operator.kind == "source":
                continue
            k = min(max(chosen.degree, operator.parallelism_min), operator.parallelism_max)
            if k != topology.active(name):
                wanted[name] = k
            reasons.append(_reason(topology.name, name, seen, chosen, k))
        return wanted

    def _samples(self, view: View, topology: TopologyView, name: str) -> list[float]:
        """The window's inputs as counts per sample of the policy, from the monitor's finer series."""
        series = list(topology.operator(name).received_samples)
        if not series:
            series = [float(topology.tasks.received[topology.rows(name)].sum())]
        step_s = view.window_s / len(series) if view.window_s else self.parameters.sample_s
        width = max(1, round(self.parameters.sample_s / step_s))
        groups = [series[at : at + width] for at in range(0, len(series), width)]
        return [math.fsum(group) / (len(group) * step_s) * self.parameters.sample_s for group in groups]

    @staticmethod
    def _latency(topology: TopologyView, name: str) -> tuple[float, ...]:
        service_s = topology.service_s(name)
        return (service_s * 1e3,) if service_s > 0 else ()


def _reason(topology: str, name: str, seen: Observed, chosen: Degree, k: int) -> Reason:
    inputs: Mapping[str, Any] = {"inputs": list(seen.inputs), "pending": seen.pending, "degree": seen.degree}
    capacity = {"estimate": chosen.estimate, "capacity_each": chosen.capacity}
    other = Alternative("keep the size", "the forecast does not fit it") if k != seen.degree else None
    return Reason(
        f"{topology}/{name}", f"{chosen.action}: {seen.degree} -> {k}", inputs, capacity, (other,) if other else ()
    )
