"""How long a policy takes to decide, from ten nodes to a thousand: `python benchmarks/policies.py [--json]`.

Every cluster has ten tasks per node, in topologies of 500 tasks (five operators of 100, each task linked to every task
of the next) whose load has just doubled, so that every policy has something to decide. The reference is one pass of
numpy over the same traffic, measured in the same run: figures of other machines compare by the ratio.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rstream import schedulers
from rstream.clock import SystemClock
from rstream.schedulers.rates import edge_rates
from rstream.schedulers.view import NodeView, View
from rstream.testing.views import Chain, view_of

GOALS_S = {"es": 1.0, "psps": 1.0, "me": 1.0, "even": 1.0, "ra": 10.0, "sl": 10.0}
# Any gain at all makes `sl` move, so that matching and migration are measured too.
PARAMETERS = {"sl": {"xi": 1.0}}
# Policies that size operators get more than their instances can serve; those that place get a cluster to consolidate.
LOADS = {"es": 2.5, "psps": 2.5}
SIZES = (10, 100, 1000)
TASKS_PER_NODE = 10
TASKS_PER_TOPOLOGY = 500
OPERATORS = ("read", "parse", "join", "count", "store")


def cluster(nodes: int, load: float, end_s: float, *, placed: bool = True) -> View:
    """A cluster of that many nodes; `load` 1 keeps its busiest instances half busy."""
    tasks = nodes * TASKS_PER_NODE
    topologies = max(1, tasks // TASKS_PER_TOPOLOGY)
    each = tasks // topologies // len(OPERATORS)
    service_s = {name: 0.001 * (1 + at) for at, name in enumerate(OPERATORS)}
    chains = [
        Chain(
            f"t{at:03d}",
            dict.fromkeys(OPERATORS, each),
            load * each * 100.0,
            service_s,
            stateful=frozenset({"count"}),
            skew=0.3,
            memory_each=0.01,
        )
        for at in range(topologies)
    ]
    hosts = [NodeView(f"n{at:04d}", processes=8, tasks_per_process=2, cpu_cores=8) for at in range(nodes)]
    return view_of(chains, hosts, end_s=end_s, window_s=60.0, samples=12, placed=placed)


def noisy(view: View) -> View:
    """Delays that rise and fall, so that `me` finds bottlenecks to rank."""
    wave = (1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0)
    topologies = []
    for topology in view.topologies:
        operators = tuple(
            replace(
                o,
                process_samples_ms=tuple(value * rise for value, rise in zip(o.process_samples_ms, wave, strict=True)),
            )
            for o in topology.operators
        )
        topologies.append(replace(topology, operators=operators))
    return replace(view, topologies=tuple(topologies))


def measure(name: str, nodes: int, clock: SystemClock) -> dict[str, Any]:
    """Plan once at the old load, then time the plan at the new one: the best of three, each on a fresh view.

    Decisions that take seconds are timed once.
    """
    policy = schedulers.make(name, PARAMETERS.get(name))
    memory: Any = {}
    if name in {"es", "psps"}:
        memory = policy.plan(cluster(nodes, 0.5, 60.0), {}, np.random.default_rng(1))[1]
    took_s: list[float] = []
    cpu_s: list[float] = []
    while len(took_s) < 3 and sum(took_s) < 3.0:
        view = noisy(cluster(nodes, LOADS.get(name, 1.0), 240.0, placed=name != "even"))
        start, start_cpu = clock.monotonic(), time.process_time()
        plan, _ = policy.plan(view, memory, np.random.default_rng(1))
        took_s.append(clock.monotonic() - start)
        cpu_s.append(time.process_time() - start_cpu)
    channels = sum(len(topology.traffic) for topology in view.topologies)
    start = clock.monotonic()
    for topology in view.topologies:
        edge_rates(topology.traffic)
    reference_s = clock.monotonic() - start
    changes = sum(len(p.parallelism) + len(p.placement) for p in plan.topologies.values())
    return {
        "policy": name,
        "nodes": nodes,
        "tasks": sum(len(topology.tasks) for topology in view.topologies),
        "channels": channels,
        "plan_s": min(took_s),
        "cpu_s": min(cpu_s),  # on a busy machine this tells how long the plan would take alone
        "ratio_to_one_pass": min(took_s) / reference_s if reference_s > 0 else None,
        "changes": changes,
    }


def growth(results: list[dict[str, Any]], name: str) -> float:
    """The exponent of plan time over tasks, by least squares on logarithms."""
    rows = [row for row in results if row["policy"] == name]
    slope = np.polyfit([math.log(r["tasks"]) for r in rows], [math.log(max(r["plan_s"], 1e-6)) for r in rows], 1)
    return float(slope[0])


def run(names: list[str], sizes: tuple[int, ...]) -> dict[str, Any]:
    """All policies at all sizes; goals are judged at the largest."""
    clock = SystemClock()
    results = [measure(name, nodes, clock) for name in names for nodes in sizes]
    for name in names:
        if len(sizes) > 1:
            results.append({"policy": name, "growth_exponent": growth([r for r in results if "tasks" in r], name)})
    largest = {row["policy"]: row["plan_s"] for row in results if row.get("nodes") == max(SIZES)}
    goals = [
        {"name": f"{name}_s", "value": largest[name], "goal": f"<= {limit:g}", "met": largest[name] <= limit}
        for name, limit in GOALS_S.items()
        if name in largest
    ]
    return {"benchmark": "policies", "results": results, "goals": goals}


def main() -> int:
    """Print the object, or a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--policies", default=",".join(GOALS_S), help="names, separated by commas")
    parser.add_argument("--nodes", default=",".join(map(str, SIZES)), help="cluster sizes, separated by commas")
    arguments = parser.parse_args()
    try:
        sizes = tuple(int(size) for size in arguments.nodes.split(","))
        report = run(arguments.policies.split(","), sizes)
    except Exception as error:
        print(f"benchmark policies: could not measure: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(report))
        return 0
    heads = ("nodes", "tasks", "channels", "plan s", "cpu s", "x one pass", "changes")
    print("policy".ljust(8) + "".join(head.rjust(11) for head in heads))
    for row in report["results"]:
        if "tasks" in row:
            print(
                f"{row['policy']:8}{row['nodes']:>11}{row['tasks']:>11}{row['channels']:>11}{row['plan_s']:>11.3f}"
                f"{row['cpu_s']:>11.3f}{row['ratio_to_one_pass']:>11.0f}{row['changes']:>11}"
            )
        else:
            print(f"{row['policy']:8}grows with tasks to the power {row['growth_exponent']:.2f}")
    for goal in report["goals"]:
        print(f"{goal['name']:10}{goal['value']:>10.3f}  goal {goal['goal']}: {'met' if goal['met'] else 'MISSED'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
