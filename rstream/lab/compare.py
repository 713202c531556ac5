"""Which policy would have served this load best, and at what cost: one trace, one topology, many policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from rich.table import Table

from rstream.lab.calibration import TIERS
from rstream.lab.experiment import SEEDS, Case
from rstream.lab.runner import Job, run_jobs
from rstream.lab.simulate import Control, Run, Setup
from rstream.lab.spec import ClusterSpec, EdgeSpec, OperatorSpec, TopologySpec
from rstream.lab.trace import Trace

POLICIES = ("static", "even", "rstorm", "drs", "sp-ant", "dabs", "es", "ra", "psps", "me", "sl")
PROCESSED_SLACK = 0.005  # systems that process equally much, within half a percent, are ranked by latency
HAND_ON_S = 1e-6  # what a source that does no work takes per tuple
LATENCY_SLACK = 0.05  # and within five percent of the best latency by cost


@dataclass(frozen=True)
class Score:
    """How one policy would have done: the medians over the seeds."""

    policy: str
    processed: float
    latency_ms: float
    latency_ms_p95: float
    node_hours: float
    instance_hours: float
    restarts: float
    decisions: float


def score(runs: Sequence[Run]) -> Score:
    """Summarise the runs of one policy."""

    def median(measure: Callable[[Run], float]) -> float:
        return float(np.median([measure(run) for run in runs]))

    return Score(
        runs[0].policy,
        median(lambda run: min(1.0, run.totals[0].finished / max(run.totals[0].offered, 1e-9))),
        median(lambda run: float(np.average(run.latency_ms, weights=np.maximum(run.throughput, 1e-9)))),
        median(lambda run: float(np.percentile(run.latency_ms, 95))),
        median(lambda run: sum(run.nodes) / 3600.0),
        median(lambda run: sum(run.instances) / 3600.0),
        median(lambda run: run.restarts),
        median(lambda run: len(run.decisions)),
    )


def best(scores: Sequence[Score]) -> Score:
    """Who served best: most processed, then lowest latency, then fewest node hours; near ties go to the cheaper.

    >>> cheap = Score("cheap", 1.0, 10.2, 12.0, 3.0, 9.0, 0.0, 4.0)
    >>> fast = Score("fast", 1.0, 10.0, 12.0, 14.0, 30.0, 0.0, 0.0)
    >>> best([fast, cheap]).policy
    'cheap'
    """
    most = max(each.processed for each in scores)
    able = [each for each in scores if each.processed >= most - PROCESSED_SLACK]
    quickest = min(each.latency_ms for each in able)
    quick = [each for each in able if each.latency_ms <= quickest * (1 + LATENCY_SLACK)]
    return min(quick, key=lambda each: (each.node_hours, each.instance_hours, each.latency_ms))


@dataclass(frozen=True)
class Comparison:
    """The scores of all policies and the first seed's runs to plot."""

    scores: tuple[Score, ...]
    runs: tuple[Run, ...]

    @property
    def best(self) -> Score:
        """The policy that would have served best."""
        return best(self.scores)

    def verdict(self) -> str:
        """One sentence for a person."""
        won = self.best
        others = [each for each in self.scores if each is not won]
        text = f"{won.policy} would have served best: {won.processed:.2%} processed at {won.latency_ms:.1f} ms mean "
        text += f"latency, for {won.node_hours:.2f} node hours"
        if others:
            cheapest = min(others, key=lambda each: each.node_hours)
            text += (
                f" (the cheapest other, {cheapest.policy}: {cheapest.node_hours:.2f} node hours, "
                f"{cheapest.processed:.2%}, {cheapest.latency_ms:.1f} ms)"
            )
        return text

    def data(self) -> list[dict[str, object]]:
        """The scores as plain JSON data."""
        return [asdict(each) for each in self.scores]

    def table(self) -> Table:
        """The scores for a terminal."""
        table = Table(title="which policy would have served this load")
        for column in (
            "policy",
            "processed",
            "latency ms",
            "p95 ms",
            "node hours",
            "instance hours",
            "restarts",
            "decisions",
        ):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for each in self.scores:
            style = "bold green" if each is self.best else None
            table.add_row(
                each.policy,
                f"{each.processed:.2%}",
                f"{each.latency_ms:.2f}",
                f"{each.latency_ms_p95:.2f}",
                f"{each.node_hours:.2f}",
                f"{each.instance_hours:.2f}",
                f"{each.restarts:g}",
                f"{each.decisions:g}",
                style=style,
            )
        return table


def compare(
    trace: Trace,
    cluster: ClusterSpec,
    topology: TopologySpec,
    policies: Sequence[str] = POLICIES,
    seeds: Sequence[int] = SEEDS[:1],
    *,
    processes: int | None = None,
    done: Callable[[float, int], None] | None = None,
) -> Comparison:
    """Run every policy on the same trace, cluster and start."""
    topology = fed(topology)
    setup = Setup(cluster, (topology,), (trace,), TIERS, step_s=step_for(trace, topology))
    case = Case(topology.name, setup, tuple(Control(policy) for policy in policies))
    jobs = [Job(case, control, seed) for control in case.controls for seed in seeds]
    runs = run_jobs(jobs, processes=processes, done=done)
    grouped = [runs[at : at + len(seeds)] for at in range(0, len(runs), len(seeds))]
    return Comparison(tuple(score(group) for group in grouped), tuple(group[0] for group in grouped))


def fed(topology: TopologySpec) -> TopologySpec:
    """The topology behind a source that only hands on, so that its first operators are bolts to every policy.

    What has no parent is a source in the view, which some policies never resize and others do: the comparison would be
    of that.

    >>> [(op.name, op.kind) for op in fed(TopologySpec("t", (OperatorSpec("read", 0.001),), ())).operators]
    [('input', 'source'), ('read', 'bolt')]
    """
    first = [root for root in topology.roots() if topology.operator(root).kind == "bolt"]
    if len(first) < len(topology.roots()):
        return topology  # it has its own source
    taken = {operator.name for operator in topology.operators}
    name = next(name for name in ("input", *(f"input{at}" for at in range(len(taken)))) if name not in taken)
    source = OperatorSpec(name, HAND_ON_S, kind="source")
    edges = tuple(
        EdgeSpec(name, root, 1.0 / len(first), "fields" if topology.operator(root).keyed else "shuffle")
        for root in first
    )
    return replace(topology, operators=(source, *topology.operators), edges=(*edges, *topology.edges))


def step_for(trace: Trace, topology: TopologySpec) -> float:
    """Fine steps for short traces; an hour or more takes coarser ones, still far below any policy's interval."""
    tasks = sum(max(operator.parallelism, operator.pool) for operator in topology.operators)
    return 0.1 if trace.end_s * tasks < 100_000 else (0.25 if trace.end_s * tasks < 1_000_000 else 1.0)
