"""One run: a policy on a modelled cluster against a rate trace, from start to end in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rstream.lab.executor import Executor
from rstream.lab.flow import Flow, Totals
from rstream.lab.latency import Latency, observe
from rstream.lab.monitor import Monitor
from rstream.lab.spec import ChangeCosts, ClusterSpec, Tiers, TopologySpec
from rstream.lab.sums import add_up
from rstream.lab.trace import Trace, jitter
from rstream.lab.world import World
from rstream.schedulers import make
from rstream.schedulers.base import Memory, Plan, Policy, plain
from rstream.schedulers.tables import Floats

SAMPLE_S = 1.0
EVERY_S = 10.0  # how often a policy is asked that does not say
EQUATION_6 = (0.50, 0.35, 0.15)  # how Ra-Stream weighs cpu, memory and I/O into one utilisation


@dataclass(frozen=True)
class Setup:
    """Everything but the policy: the same for every system that is compared."""

    cluster: ClusterSpec
    topologies: tuple[TopologySpec, ...]
    traces: tuple[Trace, ...]
    tiers: Tiers
    costs: ChangeCosts = field(default_factory=ChangeCosts)
    step_s: float = 0.1
    spread: float = 0.01

    @property
    def end_s(self) -> float:
        """When the longest trace ends."""
        return max(trace.end_s for trace in self.traces)


@dataclass(frozen=True)
class Decision:
    """One plan that changed something, and why."""

    time_s: float
    moves: int
    reasons: tuple[Mapping[str, Any], ...]


@dataclass
class Run:
    """What one run gave, sampled once a second; the first topology's figures unless named otherwise."""

    policy: str
    seed: int
    time_s: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    instances: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    utilisation: list[float] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    backlog: list[float] = field(default_factory=list)
    execute_ms: list[list[float]] = field(default_factory=list)
    process_ms: list[list[float]] = field(default_factory=list)
    sizes: list[dict[str, int]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    totals: list[Totals] = field(default_factory=list)
    restarts: int = 0
    cpu_of: dict[str, float] = field(default_factory=dict)

    def mean(self, column: str, start_s: float = 0.0, end_s: float = float("inf")) -> float:
        """The mean of a series over a span of time."""
        values = [v for t, v in zip(self.time_s, getattr(self, column), strict=True) if start_s <= t < end_s]
        return float(np.mean(values)) if values else 0.0

    def at(self, column: str, time_s: float) -> Any:
        """The last value at or before a time."""
        place = int(np.searchsorted(self.time_s, time_s + 1e-9, side="right")) - 1
        return getattr(self, column)[max(0, place)]


@dataclass(frozen=True)
class Control:
    """How a policy is driven: its name, parameters, and how often it is asked (by default as often as it wants)."""

    policy: str
    every_s: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """What the run is called in tables."""
        return self.label or self.policy

    def make(self) -> Policy:
        """The policy object itself: the very one that the live controller runs."""
        return make(self.policy, dict(self.parameters))


def simulate(
    setup: Setup, control: Control, seed: int = 1, progress: Callable[[float], None] | None = None, first_s: float = 0.0
) -> Run:
    """Run one policy; `progress` is told the virtual time, `first_s` is when the policy is asked first."""
    world = World(setup.cluster, setup.topologies)
    world.start()
    flow = Flow(world, setup.tiers, setup.step_s)
    flow.refresh()
    monitor, executor, policy = Monitor(flow), Executor(flow, setup.costs), control.make()
    every_s = control.every_s or float(getattr(policy, "interval_s", EVERY_S))
    flow.start_interval(every_s)
    rng, noise = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    steps = round(setup.end_s / setup.step_s)
    offered = np.stack([_padded(trace.sampled(setup.step_s), steps) for trace in setup.traces])
    offered *= np.stack([jitter(noise, steps, setup.step_s, setup.spread) for _ in setup.traces]) * setup.step_s
    run = Run(control.name, seed, totals=flow.totals)
    memory: Memory = {}
    per_sample = max(1, round(SAMPLE_S / setup.step_s))
    per_tick = max(1, round(every_s / setup.step_s))
    before = (0.0, 0.0)
    for step in range(steps):
        now_s = step * setup.step_s
        executor.run_until(now_s)
        if step and step % per_sample == 0:
            flow.refresh()
            latency = observe(flow, now_s)
            monitor.sample(latency)
            before = _record(run, flow, latency, now_s, before, setup)
            if progress is not None:
                progress(now_s)
        if step % per_tick == 0 and now_s >= first_s - 1e-9:
            view = monitor.view(now_s)
            world.resized[:] = False
            plan, memory = policy.plan(view, memory, rng)
            if plan:
                moves = executor.apply(view, plan, now_s)
                _note(run, plan, now_s, moves)
            executor.run_until(now_s)
            flow.start_interval(every_s)
            monitor.reset(now_s)
        flow.step(now_s, offered[:, step])
    run.restarts = executor.restarts
    return run


def _padded(rates: Floats, steps: int) -> Floats:
    return np.pad(rates, (0, max(0, steps - len(rates))))[:steps]


def _note(run: Run, plan: Plan, now_s: float, moves: int) -> None:
    if moves:
        run.decisions.append(Decision(now_s, moves, tuple(plain(reason) for reason in plan.reasons)))


def _record(
    run: Run, flow: Flow, latency: Latency, now_s: float, before: tuple[float, float], setup: Setup
) -> tuple[float, float]:
    world, totals = flow.world, flow.totals[0]
    rows = world.topology_rows(0)
    used = world.used_nodes()
    flows, idle = world.values["flow"], world.op_idle[world.op]
    use = idle + world.op_use[world.op] * flows
    cpu = flows * flow.cpu_per_tuple / world.cluster.cores + idle
    columns = (cpu, world.op_mem[world.op] + use, flows * flow.io_per_tuple + use)
    loads = [add_up(world.node, column, world.cluster.nodes)[used] for column in columns]
    run.time_s.append(round(now_s, 6))
    run.rate.append(setup.traces[0].at(now_s))
    run.instances.append(int((world.active & ~world.is_source[world.op])[rows].sum()))
    run.nodes.append(len(used))
    finished = totals.finished - before[0]
    latency_s = float(latency.total_s[0])
    if flow.aged is not None and finished > 0.0:
        # The cohorts know how long they waited in queues; the rest (service, hops, random waits) comes on top.
        latency_s = (totals.latency_sum_s - before[1]) / finished + float(latency.without_backlog_s[0])
    run.latency_ms.append(latency_s * 1e3)
    run.utilisation.append(float((np.array(EQUATION_6) @ np.stack(loads)).mean()))
    run.cpu.append(float(np.minimum(1.0, loads[0]).mean()))
    run.throughput.append(finished / SAMPLE_S)
    run.queued.append(float(world.values["queue"][rows].sum()))
    run.backlog.append(totals.backlog)
    run.execute_ms.append((latency.execute_s * 1e3).tolist())
    run.process_ms.append((latency.process_s * 1e3).tolist())
    sizes = add_up(world.op, world.active, len(world.operators))
    run.sizes.append({op.name: int(sizes[at]) for at, (_, op) in enumerate(world.operators)})
    per_op = add_up(world.op, columns[0], len(world.operators))
    run.cpu_of = {op.name: float(per_op[at]) for at, (_, op) in enumerate(world.operators)}
    return totals.finished, totals.latency_sum_s
