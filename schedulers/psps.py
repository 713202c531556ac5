"""PSPS: every interval, the number of active replicas from predicted input plus backlog.

Replicas come from a pool that is loaded beforehand, so that a change is a change of routing and nothing restarts. Where
the pool is too small its new replicas are placed in Storm's even way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from rstream.schedulers.ledger import Ledger
from rstream.schedulers.placing import grow_evenly
from rstream.schedulers.plan import Alternative, Plan, Reason, StateAction, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.rates import propagate
from rstream.schedulers.view import OperatorView, TopologyView, View

# 180 -> 150 -> 125 events at 40 ms in 1 s are 5 replicas, but 5.000000000000001 in floats (PS-1).
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next interval of one operator: events per source event, events to come, replicas needed."""

    theta: float
    arriving: float
    events: float
    replicas_exact: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Interval:
    """What was counted over one interval, per operator in topological order."""

    order: Sequence[str]
    edge_counts: Sequence[tuple[str, str, float]]
    root_counts: Mapping[str, float]
    source_count: float
    processed: Mapping[str, float]
    queued: Mapping[str, float]
    service_s: Mapping[str, float]
    pool: Mapping[str, int]
    length_s: float


def edge_ratios(interval: Interval, before: Mapping[str, float]) -> dict[str, float]:
    """Eq 2c: events on each edge per event processed; an operator that processed nothing keeps its last ratio (PS-3).

    Edges are named `parent>child`.
    """
    ratios: dict[str, float] = {}
    for source, target, count in interval.edge_counts:
        processed, name = interval.processed.get(source, 0.0), f"{source}>{target}"
        ratios[name] = count / processed if processed > 0 else before.get(name, 0.0)
    return ratios


def forecast(interval: Interval, ratios: Mapping[str, float]) -> dict[str, Forecast]:
    """Eqs 1 to 4 for every operator, given the ratios of its edges."""
    total = interval.source_count
    roots = {name: count / total if total > 0 else 0.0 for name, count in interval.root_counts.items()}
    edges = [(source, target, ratios[f"{source}>{target}"]) for source, target, _ in interval.edge_counts]
    thetas = propagate(interval.order, edges, roots)
    result = {}
    for name in interval.order:
        arriving = total * thetas[name]
        events = arriving + interval.queued.get(name, 0.0)
        exact = events * interval.service_s[name] / interval.length_s
        replicas = min(interval.pool[name], max(1, math.ceil(exact - ROUNDING)))
        result[name] = Forecast(thetas[name], arriving, events, exact, replicas)
    return result


@dataclass(frozen=True, slots=True)
class Score:
    """How the paper rates a run: replicas saved, mean gap between input and output, share processed (PS-10)."""

    saved: float
    degradation: float
    processed: float


def score(
    received: Sequence[float],
    sent: Sequence[float],
    active: Sequence[float],
    replicas_over: float,
    share: float | None = None,
) -> Score:
    """Rate a run from its intervals; `share` overrides the processed ratio where it was counted directly.

    >>> score([100, 200, 400, 100], [100, 150, 300, 250], [4, 8, 12, 8], 32)
    Score(saved=0.75, degradation=0.5, processed=1.0)
    """
    gaps = [abs(came - went) / came for came, went in zip(received, sent, strict=True) if came > 0]
    total = math.fsum(received)
    processed = share if share is not None else (math.fsum(sent) / total if total > 0 else 1.0)
    mean_active = math.fsum(active) / len(active) if active else 0.0
    return Score(1.0 - mean_active / replicas_over, math.fsum(gaps) / len(gaps) if gaps else 0.0, processed)


class PspsParameters(Parameters):
    """Parameters of `psps`; the paper's values where it gives one."""

    interval_s: float = Field(default=30.0, gt=0, description="Time between decisions, td [paper].")
    pool: int = Field(default=100, ge=1, description="Replicas per operator where the topology declares no pool.")
    benchmark_s: float = Field(
        default=60.0, gt=0, description="How long the service time is benchmarked at the start [paper]."
    )
    benchmark_sample_s: float = Field(default=5.0, gt=0, description="Length of one benchmark sample [paper].")
    service_time: Literal["benchmark", "max"] = Field(
        default="benchmark", description="`benchmark` [paper], or `max` of benchmark and recent mean [authors' code]."
    )
    grouping: Literal["load_balanced", "shuffle", "keep"] = Field(
        default="load_balanced", description="Grouping of edges into scaled operators; `keep` leaves them."
    )
    scale_stateful: bool = Field(
        default=False, description="Whether stateful operators are scaled too; the paper's are not."
    )


class Psps:
    """The policy `psps`."""

    name: ClassVar[str] = "psps"
    Parameters: ClassVar = PspsParameters

    def __init__(self, parameters: PspsParameters | None = None) -> None:
        self.parameters = parameters or PspsParameters()

    @property
    def interval_s(self) -> float:
        """One decision per td."""
        return self.parameters.interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Set the active replicas of every topology; nothing here is random."""
        ledger = Ledger(view)
        plans: dict[str, TopologyPlan] = {}
        reasons: list[Reason] = []
        remembered: dict[str, Any] = {}
        for topology in view.topologies:
            last = memory.get("topologies", {}).get(topology.name, {})
            plan, why, kept = self._one(view, topology, last, ledger)
            remembered[topology.name] = kept
            reasons += why
            if plan:
                plans[topology.name] = plan
        return Plan(plans, reasons=tuple(reasons)), {"topologies": remembered}

    def _one(
        self, view: View, topology: TopologyView, last: Mapping[str, Any], ledger: Ledger
    ) -> tuple[TopologyPlan, list[Reason], dict[str, Any]]:
        samples = self._benchmark(view, topology, last)
        interval = self._interval(view, topology, samples)
        ratios = edge_ratios(interval, last.get("ratios", {}))
        predicted = forecast(interval, ratios)
        wanted: dict[str, int] = {}
        drains: list[StateAction] = []
        reasons: list[Reason] = []
        for operator in topology.operators:
            if not self._scaled(operator):
                continue
            name, seen = operator.name, predicted[operator.name]
            if interval.service_s[name] <= 0:
                reasons.append(Reason(f"{topology.name}/{name}", "no service time is known yet: size kept"))
                continue
            replicas = min(max(seen.replicas, operator.parallelism_min), operator.parallelism_max)
            active = topology.active(name)
            reasons.append(self._reason(topology.name, operator, interval, seen, active, replicas))
            if replicas != active:
                wanted[name] = replicas
            if replicas < active:
                rows = topology.rows(name, active=True)[replicas:].tolist()
                drains.append(StateAction("drain", name, tuple(topology.task_ids[row] for row in rows)))
        grown = grow_evenly(topology, wanted, ledger, keep_loaded=True)
        sizes = {name: k for name, k in grown.parallelism.items() if k != topology.active(name)}
        plan = TopologyPlan(
            sizes,
            # Replicas that were made once stay loaded, so that waking one again is a change of routing.
            pool={name: max(len(topology.rows(name)), k) for name, k in sizes.items()},
            placement=grown.placement,
            groupings=self._groupings(topology),
            state_actions=tuple(drains),
        )
        return plan, reasons, {"ratios": ratios, "samples": samples, "start_s": last.get("start_s", view.start_s)}

    def _scaled(self, operator: OperatorView) -> bool:
        return operator.kind != "source" and (self.parameters.scale_stateful or not operator.stateful)

    def _interval(self, view: View, topology: TopologyView, samples: Mapping[str, Sequence[float]]) -> Interval:
        sources = {operator.name for operator in topology.operators if operator.kind == "source"}
        roots: dict[str, float] = {}
        for edge in topology.edges:
            if edge.source in sources:
                roots[edge.target] = roots.get(edge.target, 0.0) + edge.count
        bolts = [operator for operator in topology.operators if operator.name not in sources]
        table = topology.tasks
        length_s = view.window_s or self.parameters.interval_s
        return Interval(
            order=[operator.name for operator in bolts],
            edge_counts=[(e.source, e.target, e.count) for e in topology.edges if e.source not in sources],
            root_counts=roots,
            source_count=topology.source_count,
            processed={o.name: float(table.processed[topology.rows(o.name)].sum()) for o in bolts},
            queued={o.name: float(table.queue[topology.rows(o.name)].sum()) for o in bolts},
            service_s={o.name: self._service_s(topology, o.name, samples.get(o.name, ())) for o in bolts},
            pool={o.name: o.pool or min(o.parallelism_max, self.parameters.pool) for o in bolts},
            length_s=length_s,
        )

    def _benchmark(self, view: View, topology: TopologyView, last: Mapping[str, Any]) -> dict[str, list[float]]:
        """Service times seen in the first minute, one per five seconds, kept for good."""
        kept = {name: list(values) for name, values in last.get("samples", {}).items()}
        if view.end_s - last.get("start_s", view.start_s) > self.parameters.benchmark_s + 1e-6:
            missing = [operator.name for operator in topology.operators if not kept.get(operator.name)]
        else:
            missing = [operator.name for operator in topology.operators]
        width = max(1, round(self.parameters.benchmark_sample_s / view.sample_s)) if view.sample_s > 0 else 1
        for name in missing:  # an operator that was idle at first is benchmarked when it first works
            series = [value / 1e3 for value in topology.operator(name).execute_samples_ms if value > 0]
            groups = [series[at : at + width] for at in range(0, len(series), width)]
            means = [sum(group) / len(group) for group in groups]
            if not means and topology.service_s(name) > 0:
                means = [topology.service_s(name)]
            kept.setdefault(name, []).extend(means)
        return kept

    def _service_s(self, topology: TopologyView, name: str, samples: Sequence[float]) -> float:
        recent = topology.service_s(name)
        if not samples:
            return recent
        mean, deviation = float(np.mean(samples)), float(np.std(samples))
        near = [value for value in samples if abs(value - mean) <= deviation + 1e-15]
        benchmark = float(np.mean(near or samples))
        return benchmark if self.parameters.service_time == "benchmark" else max(benchmark, recent)

    def _groupings(self, topology: TopologyView) -> dict[tuple[str, str], str]:
        wanted = self.parameters.grouping
        if wanted == "keep":
            return {}
        ours = {"shuffle", "load_balanced"}  # other groupings carry meaning: they are not ours to change
        return {
            (edge.source, edge.target): wanted
            for edge in topology.edges
            if self._scaled(topology.operator(edge.target)) and edge.grouping in ours and edge.grouping != wanted
        }

    def _reason(
        self, topology: str, operator: OperatorView, interval: Interval, seen: Forecast, active: int, wanted: int
    ) -> Reason:
        name = operator.name
        inputs = {
            "source_count": interval.source_count,
            "processed": interval.processed[name],
            "queued": interval.queued[name],
            "service_s": interval.service_s[name],
            "active": active,
            "pool": interval.pool[name],
        }
        expected = {"theta": seen.theta, "events": seen.events, "replicas_exact": seen.replicas_exact}
        fewer = Alternative(f"{wanted - 1} replicas", "cannot work off the forecast within the interval")
        more = Alternative(
            f"{wanted + 1} replicas", "one would idle" if seen.replicas_exact <= wanted else "the pool has no more"
        )
        others = (fewer, more) if wanted > 1 else (more,)
        return Reason(f"{topology}/{name}", f"{active} -> {wanted} active replicas", inputs, expected, others)
