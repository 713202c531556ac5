"""Placements for the fault simulation: at random, and those in which a wrong protocol shows.

Plain random placement passes protocols that are wrong: what one node alone knows of another task's order is rarely
all there is. So some schedules put every operator on a worker of its own over two nodes, all but the sinks on one
node, or everything on one node beside one empty holder.
"""

from __future__ import annotations

import random
from dataclasses import replace

from rstream.core.records import TopologyRecord

MIXED = "placed at random"
OWN_WORKERS = "operators on workers of their own"
SINKS_APART = "all but sinks on one node"
EMPTY_HOLDER = "one node and an empty holder"
STYLES = {MIXED: 5, OWN_WORKERS: 1, SINKS_APART: 1, EMPTY_HOLDER: 1}
"""How schedules are placed, by weight."""


def worker_count(style: str, operators: int, rng: random.Random) -> int:
    """How many workers a placement wants."""
    return rng.randint(2, 6) if style == MIXED else operators


def node_names(style: str, rng: random.Random) -> list[str]:
    """The nodes of a placement."""
    return [f"n{number}" for number in range(rng.choice([1, 1, 2, 3]) if style == MIXED else 2)]


def arrange(record: TopologyRecord, style: str, rng: random.Random) -> None:
    """Place the tasks of a topology that was submitted and whose workers are not started yet."""
    if style == MIXED:
        return
    hosts = list(record.hosts())
    names = [operator.name for operator in record.outline.operators]
    sinks = {operator.name for operator in record.outline.operators if operator.kind == "sink"}
    for task in record.placement:
        record.placement[task] = hosts[names.index(task.operator)]
    record.origin = dict(record.placement)
    for name, worker in record.workers.items():
        operator = names[hosts.index(name)] if name in hosts else None
        if style == OWN_WORKERS:
            node = rng.choice(["n0", "n1"])
        elif style == SINKS_APART:
            node = "n1" if operator in sinks else "n0"
        else:
            node = "n0" if operator is not None else "n1"
        worker.address = replace(worker.address, node=node)
