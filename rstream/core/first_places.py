"""Where a topology's tasks start: as its policy places them, or, where the policy has no view of that, aligned.

Policies that only resize or move running tasks leave the first places to the engine, and so does `static` without
parameters: instance i of every step starts on worker i, which keeps neighbours together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rstream.core.channel import TaskId
from rstream.core.records import TopologyRecord
from rstream.core.slots import SlotBook
from rstream.core.steering import guarded
from rstream.core.view import NodeFacts, build
from rstream.schedulers.base import Slot


def first_places(
    record: TopologyRecord, everything: Sequence[TopologyRecord], nodes: Sequence[NodeFacts], book: SlotBook
) -> Mapping[TaskId, Slot] | None:
    """The slot of every task as the topology's policy wants them at the start; None where it does not say."""
    if record.policy == "static" and not record.control.parameters:
        return None
    book.sync(everything)
    picture = build([record], everything, {}, nodes, book, record.control, 0.0, 0.0)
    policy = guarded(record.policy, record.control.model_copy(update={"dry_run": False, "veto": None}))
    plan, _ = policy.plan(picture.view, {}, np.random.default_rng(0))
    mine = plan.topologies.get(record.name)
    if mine is None:
        return None
    places = {TaskId(*task): picture.numbering.real(slot) for task, slot in mine.placement.items()}
    tasks = {TaskId(name, number) for name, size in record.parallelism.items() for number in range(size)}
    return {task: places[task] for task in tasks} if tasks <= places.keys() else None
