"""The replica pool of PSPS: how many replicas of a step are loaded, and how use is shared out among the active ones.

A loaded, inactive replica costs memory and no CPU. Under `psps` steps get a pool by default; with any other policy
only where the user asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rstream.core.live_changes import can_change
from rstream.core.records import TopologyRecord
from rstream.schedulers.balancing import backlog
from rstream.schedulers.base import TopologyView, View

UNEVEN = 0.1
"""From this difference on, as a share of the interval, between what waits before two replicas, their senders are told.

Each telling is a version that every sender passes, so that an even load needs none.
"""


def pool_of(record: TopologyRecord, name: str, slots: int) -> int:
    """How many replicas of a step stay loaded, active ones included; 0 where only those that work do."""
    if record.pool.get(name):
        return record.versions[name][0].tasks if record.versions else 0
    return pool_size(record, slots) if record.policy == "psps" and is_pooled(record, name) else 0


def pool_size(record: TopologyRecord, slots: int) -> int:
    """How many replicas of a step PSPS wants loaded: 2 x slots / operators."""
    return max(2, 2 * slots // max(1, len(record.outline.operators)))


def is_pooled(record: TopologyRecord, name: str) -> bool:
    """Whether PSPS scales a step: a bolt that can change and, unless its parameters say so, has no keys."""
    keyed = bool(record.outline.key_groupings(name))
    wanted = not keyed or bool(record.control.parameters.get("scale_stateful"))
    return record.outline.by_name[name].kind == "bolt" and wanted and can_change(record, name)


def missing_replicas(record: TopologyRecord, slots: int) -> dict[str, int]:
    """The steps whose pool is smaller than `psps` wants, with the size that it should have."""
    if record.policy != "psps":
        return {}
    sizes = {name: pool_of(record, name, slots) for name in record.parallelism}
    return {name: size for name, size in sizes.items() if size > len(record.tasks(name))}


class Balance(NamedTuple):
    """What waits before a step's active replicas, and what one tuple of a sender adds, as shares of an interval."""

    operator: str
    use: list[float]
    step: float


def balances(view: View, topology: TopologyView) -> Iterator[Balance]:
    """What to tell the senders of steps with a load-balanced input before whose replicas unequal work waits."""
    for operator in topology.operators:
        senders = [edge.source for edge in topology.parents(operator.name) if edge.grouping == "load_balanced"]
        rows = topology.rows(operator.name, active=True)
        if not senders or len(rows) < 2 or view.window_s <= 0:
            continue
        use = backlog(topology.tasks.queue[rows].tolist(), topology.service_s(operator.name), view.window_s)
        if max(use) - min(use) > UNEVEN:
            many = sum(topology.active(name) for name in senders)
            yield Balance(operator.name, use, many * topology.service_s(operator.name) / view.window_s)
