"""What a live run leaves for the lab: its load by the second, and what each step of it costs. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rstream.core.channel import TaskId
from rstream.core.meter import Meter
from rstream.core.records import TopologyRecord
from rstream.core.view import NodeFacts
from rstream.errors import UsageError


def recording_of(record: TopologyRecord, meter: Meter, nodes: Sequence[NodeFacts]) -> dict[str, Any]:
    """The recorded load and the measured costs of a topology, running or over."""
    history = meter.history()
    sources = {operator.name for operator in record.outline.operators if operator.kind == "source"}
    rates = [
        [line["at_s"] - 1.0, sum(line["operators"].get(name, {}).get("emitted", 0.0) for name in sources)]
        for line in history
    ]
    while rates and rates[0][1] == 0.0:
        rates.pop(0)
    while rates and rates[-1][1] == 0.0:
        rates.pop()
    if len(rates) < 2:
        raise UsageError(f"topology {record.name!r}: nothing is recorded yet; let it run for a few seconds")
    totals = _totals(history)
    return {
        "name": record.name,
        "rates": [[at_s - rates[0][0], rate] for at_s, rate in rates],
        "operators": [_operator(record, operator.name, totals, meter) for operator in record.outline.operators],
        "edges": [_edge(record, number, meter) for number in range(len(record.outline.edges))],
        "nodes": len(nodes),
        "cores": min((node.cpus for node in nodes), default=1.0),
        "slots": min((node.slots for node in nodes), default=1),
        "tasks_per_slot": record.control.tasks_per_slot,
        "workers": record.worker_count,
    }


def _totals(history: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    totals: dict[str, dict[str, float]] = {}
    for line in history:
        for name, gains in line["operators"].items():
            total = totals.setdefault(name, {"busy_s": 0.0, "processed": 0.0})
            for what in total:
                total[what] += gains[what]
    return totals


def _operator(record: TopologyRecord, name: str, totals: dict[str, dict[str, float]], meter: Meter) -> dict[str, Any]:
    total = totals.get(name, {"busy_s": 0.0, "processed": 0.0})
    newest = [meter.samples[number] for number in sorted(meter.samples)]
    state: dict[TaskId, int] = {}
    for sample in newest:
        state.update({task: size for task, size in sample.state_bytes.items() if task.operator == name})
    return {
        "name": name,
        "kind": record.outline.by_name[name].kind,
        "keyed": bool(record.outline.key_groupings(name)),
        "parallelism": record.parallelism[name],
        "service_s": total["busy_s"] / total["processed"] if total["processed"] > 0 else 0.0,
        "state_bytes": sum(state.values()),
    }


def _edge(record: TopologyRecord, number: int, meter: Meter) -> dict[str, Any]:
    edge = record.outline.edges[number]
    tuples = carried = done = 0.0
    for sample in meter.samples.values():
        done += sum(gains[1] for task, gains in sample.tasks.items() if task.operator == edge.source)
        for channel, (count, size) in sample.channels.items():
            if channel.edge == number:
                tuples += count
                carried += size
    return {
        "source": edge.source,
        "target": edge.target,
        "selectivity": tuples / done if done > 0 else 1.0,
        "tuple_bytes": carried / tuples if tuples > 0 else 92.0,
        "grouping": edge.grouping.label,
    }
