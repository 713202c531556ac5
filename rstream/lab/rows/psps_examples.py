"""PSPS's worked examples P10 to P12: the policy on a View that holds the paper's printed counts."""

from __future__ import annotations

import numpy as np

from rstream.lab.experiment import Check, Outcome, graded
from rstream.schedulers import make
from rstream.schedulers.base import EdgeView, NodeView, OperatorView, TaskTable, TopologyView, View
from rstream.schedulers.rates import propagate


def _view(
    received: list[float], processed: list[float], left: list[float], service_ms: list[float], active: list[int]
) -> View:
    """A row of operators behind one source, as the monitor would have counted one interval of a second."""
    names = [f"op{at + 1}" for at in range(len(received))]
    operators = [OperatorView("source", kind="source")]
    operators += [OperatorView(name, service_s=ms / 1e3, pool=20) for name, ms in zip(names, service_ms, strict=True)]
    ends = ["source", *names]
    edges = [EdgeView(a, b, count=count) for a, b, count in zip(ends, names, received, strict=False)]
    rows = [(0, 0, received[0], 0.0)]
    for at, size in enumerate(active):
        rows += [(at + 1, index, processed[at] / size, left[at] / size) for index in range(size)]
    table = TaskTable.columns(
        operator=[row[0] for row in rows],
        index=[row[1] for row in rows],
        node=[0] * len(rows),
        process=[0] * len(rows),
        processed=[row[2] for row in rows],
        queue=[row[3] for row in rows],
    )
    topology = TopologyView("example", tuple(operators), tuple(edges), table, source_counts={"source": received[0]})
    return View(0.0, 1.0, (NodeView("n1", processes=1, tasks_per_process=100),), (topology,))


def _replicas(view: View) -> list[int]:
    plan, _ = make("psps", {"interval_s": 1.0}).plan(view, {}, np.random.default_rng(1))
    topology = view.topologies[0]
    wanted = plan.topologies["example"].parallelism if "example" in plan.topologies else {}
    return [wanted.get(op.name, topology.active(op.name)) for op in topology.operators if op.kind != "source"]


def worked_table(_: Outcome) -> Check:
    """Table II: three operators in a row."""
    view = _view([100, 117, 90], [140, 120, 90], [0, 7, 20], [16.6, 25, 100], [1, 1, 1])
    ours = _replicas(view)
    text = ", ".join(map(str, ours))
    return Check("replicas of three operators", "2, 3, 9", text, "exact", graded(ours == [2, 3, 9]), note="PS-2")


def three_service_times(_: Outcome) -> Check:
    """Fig 3: one operator with two replicas at three service times."""
    ours = []
    for service_ms in FIG_3_MS:
        ours += _replicas(_view([100], [100], [0], [service_ms], [2]))
    text = ", ".join(map(str, ours))
    return Check("replicas at three service times", "2, 1, 4", text, "exact", graded(ours == [2, 1, 4]))


FIG_3_MS = (20.0, 10.0, 40.0)


def theta_example(_: Outcome) -> Check:
    """Fig 5: theta of the fourth operator from the ratios of its edges."""
    ratios = [("1", "2", 0.7), ("1", "3", 0.3), ("2", "4", 0.4), ("3", "4", 1.0)]
    theta = propagate(["1", "2", "3", "4"], ratios, {"1": 1.0})["4"]
    return Check("theta_4", "0.58", f"{theta:.4g}", "exact", graded(abs(theta - 0.58) < 1e-9))
