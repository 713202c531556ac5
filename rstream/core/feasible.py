"""What of a plan can be done on running topologies: the rest is held back, and the reasons say what and why. Pure.

Policies know nothing of delivery modes and backends. What a topology cannot do would be refused when the plan is
carried out, and be planned again at the next look, and so for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rstream.core.live_changes import checked
from rstream.core.moving import check_can_move
from rstream.core.records import TopologyRecord
from rstream.errors import UsageError
from rstream.schedulers.base import Plan, Reason, TaskId, TopologyPlan, TopologyView, View


def way_of(record: TopologyRecord, plan: TopologyPlan | None) -> str:
    """How a plan for a topology is to be carried out: `live`, `restart` or `restart-drop`."""
    return record.control.execute or (plan.execute if plan is not None else "live")


def why_no_moves(record: TopologyRecord) -> str:
    """Why tasks of a topology cannot move while it runs; empty where they can."""
    try:
        check_can_move(record)
    except UsageError as error:
        return str(error)
    return ""


def feasible(view: View, plan: Plan, records: Mapping[str, TopologyRecord]) -> Plan:
    """The plan without what its topologies cannot do while they run."""
    said: list[Reason] = []
    plans: dict[str, TopologyPlan] = {}
    for name, wanted in plan.topologies.items():
        record, kept = records.get(name), wanted
        if record is not None and way_of(record, wanted) == "live":
            kept = _without_sizes(view.topology(name), kept, record, said)
            kept = _without_moves(view.topology(name), kept, record, said)
        if kept is wanted or kept.parallelism or kept.pool or kept.placement or kept.groupings:
            plans[name] = kept
    if not said:
        return plan
    used = {slot.node for each in plans.values() for slot in each.placement.values()}
    taken = tuple(node for node in plan.nodes_taken if node in used)
    return replace(plan, topologies=plans, nodes_taken=taken, nodes_released=(), reasons=(*plan.reasons, *said))


def _without_sizes(
    topology: TopologyView, plan: TopologyPlan, record: TopologyRecord, said: list[Reason]
) -> TopologyPlan:
    refused: set[str] = set()
    for name, size in plan.parallelism.items():
        try:
            checked(record, {name: size})
        except UsageError as error:
            refused.add(name)
            said.append(Reason(f"{topology.name}/{name}", f"held back: {size} instances wanted; {error}"))
    if not refused:
        return plan
    there = topology.placement
    return replace(
        plan,
        parallelism={name: size for name, size in plan.parallelism.items() if name not in refused},
        pool={name: size for name, size in plan.pool.items() if name not in refused},
        placement={
            task: slot for task, slot in plan.placement.items() if task in there or task.operator not in refused
        },
        retire=tuple(task for task in plan.retire if task.operator not in refused),
        state_actions=tuple(action for action in plan.state_actions if action.operator not in refused),
    )


def _without_moves(
    topology: TopologyView, plan: TopologyPlan, record: TopologyRecord, said: list[Reason]
) -> TopologyPlan:
    there = topology.placement
    moved: set[TaskId] = {task for task, slot in plan.placement.items() if task in there and there[task] != slot}
    why = why_no_moves(record) if moved else ""
    if not why:
        return plan
    said.append(Reason(topology.name, f"held back: {len(moved)} tasks would move; {why}"))
    placement = {task: slot for task, slot in plan.placement.items() if task not in there}
    return replace(plan, placement=placement, batches=())
