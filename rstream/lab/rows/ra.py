"""Ra-Stream's experiments R1 to R8: fewer nodes and shorter ways, against SP-Ant and Storm's even spread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rstream.lab.calibration import QUEUE_TUPLES, RA_DEBS, RA_WORDCOUNT, TIERS
from rstream.lab.experiment import (
    Case,
    Check,
    Experiment,
    Figure,
    Outcome,
    exactly,
    graded,
    grows,
    least,
    order,
    ratio,
    shown,
)
from rstream.lab.rows.staircase import highest_rate, staircase
from rstream.lab.simulate import Control, Run, Setup
from rstream.lab.spec import ClusterSpec, EdgeSpec, OperatorSpec, TopologySpec
from rstream.lab.trace import Trace

CLUSTER = ClusterSpec(nodes=14)
RA = Control("ra", parameters={"resources": "measured"})  # Ra-2: tuple counts misjudge tasks of unequal cost
SP_ANT, EVEN = Control("sp-ant"), Control("even")
THREE = (RA, SP_ANT, EVEN)
SETTLED_S = 960.0  # SP-Ant deploys 6 ants x 5 iterations, 30 s each, before it keeps its best plan


def _operator(name: str, tasks: int, idle: float, cost_s: float, stateful: bool = False) -> OperatorSpec:
    """One operator whose tasks load every dimension alike: the paper gives no profile."""
    return OperatorSpec(
        name,
        cost_s * CLUSTER.cores,
        tasks,
        stateful=stateful,
        keyed=stateful,
        idle=idle,
        use_s=cost_s,
        parallelism_max=tasks,
    )


def wordcount() -> TopologySpec:
    """read, split, count, output in Fig 2's proportions."""
    sizes = [size * int(RA_WORDCOUNT["scale"]) for size in (2, 3, 3, 2)]
    idle, cost_s = RA_WORDCOUNT["idle"] / sum(sizes), RA_WORDCOUNT["use_s"] / len(sizes)
    names = ("read", "split", "count", "output")
    operators = tuple(_operator(n, size, idle, cost_s, n == "count") for n, size in zip(names, sizes, strict=True))
    edges = (EdgeSpec("read", "split"), EdgeSpec("split", "count", grouping="fields"), EdgeSpec("count", "output"))
    return TopologySpec("wordcount", operators, edges, workers=CLUSTER.nodes, queue_limit=QUEUE_TUPLES)


def debs2024() -> TopologySpec:
    """source, filter, event detection, and two branches of two operators each."""
    size, part = int(RA_DEBS["parallelism"]), RA_DEBS["branch"]
    names = ("source", "filter", "event", "aggregate", "store", "anomaly", "alert")
    idle, cost_s = RA_DEBS["idle"] / (size * len(names)), RA_DEBS["use_s"] / (3 + 4 * part)
    operators = tuple(_operator(name, size, idle, cost_s, name == "aggregate") for name in names)
    edges = (
        EdgeSpec("source", "filter"),
        EdgeSpec("filter", "event"),
        EdgeSpec("event", "aggregate", part, "fields"),
        EdgeSpec("aggregate", "store"),
        EdgeSpec("event", "anomaly", part),
        EdgeSpec("anomaly", "alert"),
    )
    return TopologySpec("debs2024", operators, edges, workers=CLUSTER.nodes, queue_limit=QUEUE_TUPLES)


BOTH: tuple[tuple[str, Callable[[], TopologySpec]], ...] = (("wordcount", wordcount), ("debs2024", debs2024))
FLUCTUATING = Trace.steps((0, 1800), (60, 3000), (210, 4500), (270, 2700), (330, 2000), end_s=390)


def setup(topology: TopologySpec, trace: Trace) -> Setup:
    """The paper's 14 compute nodes."""
    return Setup(CLUSTER, (topology,), (trace,), TIERS, step_s=0.2)


def latency(run: Run) -> float:
    """Mean latency once every system has settled."""
    return run.mean("latency_ms", SETTLED_S)


def _stable(make: Callable[[], TopologySpec]) -> tuple[Case, ...]:
    topology = make()
    return (Case(topology.name, setup(topology, Trace.constant(3000, SETTLED_S + 100)), THREE),)


def nodes_at(*times_s: float) -> Callable[[Run], list[float]]:
    """Nodes used at these times."""
    return lambda run: [float(run.at("nodes", time_s)) for time_s in times_s]


# Before the first plan; at 1800; at 3000; at 4500; at 2700. A plan follows within one statistics period of 30 s.
TIMES = (20.0, 59.0, 209.0, 269.0, 329.0)
STEPS = (1000, 2000, 3000, 4000, 5000)
STEP_S = 120.0


def _step_latency(step: int) -> Callable[[Run], float]:
    return lambda run: run.mean("latency_ms", SETTLED_S + (step + 0.5) * STEP_S, SETTLED_S + (step + 1) * STEP_S)


def _rising() -> Trace:
    """All systems settle at the first rate; then the steps."""
    points = [(SETTLED_S + at * STEP_S, rate) for at, rate in enumerate(STEPS)]
    return Trace.steps((0, STEPS[0]), *points[1:], end_s=SETTLED_S + STEP_S * len(STEPS))


def _settled_nodes(run: Run) -> float:
    return float(run.nodes[-1])


def _fewer(case: str) -> Callable[[Outcome], Check]:
    def check(outcome: Outcome) -> Check:
        figures = {p: outcome.figure(case, p, _settled_nodes) for p in ("ra", "sp-ant", "even")}
        good = figures["ra"].median < min(figures["sp-ant"].median, figures["even"].median)
        text = ", ".join(f"{p} {shown(figure, 0)}" for p, figure in figures.items())
        return Check(f"{case}: nodes", "Ra fewest, Even 14", text, "order", graded(good))

    return check


def _utilisation(case: str) -> Callable[[Outcome], Check]:
    def check(outcome: Outcome) -> Check:
        means = {p: outcome.figure(case, p, lambda run: run.mean("utilisation", 60)) for p in ("ra", "sp-ant", "even")}
        inside = Figure.of(
            float(np.mean([0.60 <= value <= 0.75 for value in run.utilisation[60:]])) for run in outcome.of(case, "ra")
        )
        good = means["ra"].median > max(means["sp-ant"].median, means["even"].median) and inside.median > 0.5
        text = ", ".join(f"{p} {shown(figure)}" for p, figure in means.items())
        text += f"; ra in the band {inside.median:.0%} of the time"
        return Check(
            f"{case}: mean utilisation of used nodes",
            "Ra highest, in 0.60-0.75",
            text,
            "band",
            graded(good),
        )

    return check


SHARED_NOTE = (
    "shuffle and key grouping make every task talk to every task of the next operator, so that k nodes cut about "
    "1 - 1/k of the traffic under any partition; and Ra's fewer nodes share cores, which Even's 14 do not"
)
LIMIT_NOTE = (
    "Ra-Stream places tasks and never adds one: the limit is that of a task alone on a core, which Even's spread over "
    "all nodes gives as well"
)

EXPERIMENTS = (
    Experiment(
        "R1",
        "ra",
        "Latency of WordCount (Fig 9)",
        "3000 t/s stable",
        (
            order("mean latency, ms", "wordcount", ("ra", "sp-ant", "even"), latency, note=SHARED_NOTE),
            ratio("SP-Ant / Ra", "wordcount", ("sp-ant", "ra"), latency, 1.48, note=SHARED_NOTE),
            ratio("Even / Ra", "wordcount", ("even", "ra"), latency, 2.20, note=SHARED_NOTE),
        ),
        lambda: _stable(wordcount),
    ),
    Experiment(
        "R2",
        "ra",
        "Latency of DEBS 2024 (Fig 10)",
        "3000 t/s stable",
        (
            order("mean latency, ms", "debs2024", ("ra", "sp-ant", "even"), latency, note=SHARED_NOTE),
            ratio("SP-Ant / Ra", "debs2024", ("sp-ant", "ra"), latency, 1.49, note=SHARED_NOTE),
            ratio("Even / Ra", "debs2024", ("even", "ra"), latency, 1.89, note=SHARED_NOTE),
        ),
        lambda: _stable(debs2024),
    ),
    Experiment(
        "R3",
        "ra",
        "Latency under rising rates (Figs 11, 12)",
        "1000 to 5000 t/s in steps of 1000",
        (
            *(
                least(f"{name} at {rate} t/s, ms", name, ("ra", "sp-ant", "even"), _step_latency(at), note=SHARED_NOTE)
                for name, _ in BOTH
                for at, rate in enumerate(STEPS)
            ),
            *(
                grows(
                    f"{name}, {policy}: latency over the steps, ms",
                    [(name, policy, _step_latency(at)) for at in range(len(STEPS))],
                )
                for name, _ in BOTH
                for policy in ("ra", "sp-ant", "even")
            ),
        ),
        lambda: tuple(Case(name, setup(make(), _rising()), THREE) for name, make in BOTH),
    ),
    Experiment(
        "R4",
        "ra",
        "Highest rate (Fig 13)",
        "+500 t/s steps of 90 s until a backlog grows for 60 s",
        (
            highest_rate("wordcount", "ra", ("sp-ant", "even"), 14500, LIMIT_NOTE),
            highest_rate("debs2024", "ra", ("sp-ant", "even"), 12000, LIMIT_NOTE),
        ),
        lambda: tuple(Case(name, setup(make(), staircase(9000)), THREE) for name, make in BOTH),
    ),
    Experiment(
        "R5",
        "ra",
        "Nodes at a stable rate (Fig 14)",
        "3000 t/s stable",
        (
            exactly("WordCount: Ra's nodes", "wordcount", "ra", lambda run: [_settled_nodes(run)], (7,), fitted=True),
            exactly("DEBS: Ra's nodes", "debs2024", "ra", lambda run: [_settled_nodes(run)], (8,), fitted=True),
            _fewer("wordcount"),
            _fewer("debs2024"),
        ),
        lambda: tuple(Case(name, setup(make(), Trace.constant(3000, 300)), THREE) for name, make in BOTH),
    ),
    Experiment(
        "R6",
        "ra",
        "Nodes of WordCount under a fluctuating rate (Fig 15)",
        "1800; 3000 at 60 s; 4500 at 210 s; 2700 at 270 s; 2000 at 330 s",
        (exactly("nodes", "wordcount", "ra", nodes_at(*TIMES), (14, 5, 7, 10, 7), fitted=True),),
        lambda: (Case("wordcount", setup(wordcount(), FLUCTUATING), (RA,)),),
    ),
    Experiment(
        "R7",
        "ra",
        "Nodes of DEBS 2024 under a fluctuating rate (Fig 16)",
        "as R6",
        (exactly("nodes", "debs2024", "ra", nodes_at(*TIMES), (14, 7, 8, 11, 8), fitted=True),),
        lambda: (Case("debs2024", setup(debs2024(), FLUCTUATING), (RA,)),),
    ),
    Experiment(
        "R8",
        "ra",
        "Utilisation under a fluctuating rate (Figs 17, 18)",
        "as R6",
        tuple(_utilisation(name) for name, _ in BOTH),
        lambda: tuple(Case(name, setup(make(), FLUCTUATING), THREE) for name, make in BOTH),
    ),
)
