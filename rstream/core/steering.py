"""The controller without its I/O: which policies are due, what each of them sees, and the record of what it decided.

Topologies with the same policy and settings form a group and are planned together, as Ra-Stream and Me-Stream want;
each group sees its own workers and the slots that nobody has. One book of slots serves all groups, and groups plan
one after the other, so that two policies never get the same slot.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rstream.config import ControlConfig
from rstream.core.channel import TaskId
from rstream.core.decisions import DecisionLog, decision, evacuation, failure
from rstream.core.evacuation import refuges, threatened
from rstream.core.feasible import feasible, why_no_moves
from rstream.core.meter import SAMPLE_S, Meter
from rstream.core.nodes import NodeRequests
from rstream.core.records import OVER, TopologyRecord
from rstream.core.slots import SlotBook
from rstream.core.steps import Step, layered
from rstream.core.view import NodeFacts, Picture, build
from rstream.schedulers import registry
from rstream.schedulers.base import Memory, Plan, Reason, Slot
from rstream.schedulers.guards import Guarded, GuardParameters, Veto

EVACUATE_EVERY_S = 5.0
"""So often it is tried to move what is on nodes that are about to end."""
INTERVALS = ("interval_s", "adjust_interval_s", "window_s")
"""What policies call the time between two looks."""


def live_parameters(policy: str, control: ControlConfig) -> dict[str, Any]:
    """A policy's parameters on a running topology: as given, its looks as often as `control.interval_s` says.

    Groupings are the topology's own: a live change of them would break the promise of exact results.

    >>> live_parameters("ra", ControlConfig(interval_s=5))
    {'interval_s': 5.0, 'cooldown_s': 5.0}
    """
    known = registry.parameters_class(policy).model_fields
    found: dict[str, Any] = {}
    if control.interval_s is not None:
        found.update({name: control.interval_s for name in INTERVALS if name in known})
        if "cooldown_s" in known:
            found["cooldown_s"] = min(control.interval_s, float(known["cooldown_s"].default))
        if policy == "dabs":
            found["sample_s"] = max(SAMPLE_S, control.interval_s / 6)
    if "grouping" in known:
        found["grouping"] = "keep"
    return {**found, **control.parameters}


def check(policy: str, control: ControlConfig) -> None:
    """Raise one clear line where the policy or its parameters are wrong."""
    registry.make(policy, live_parameters(policy, control))


def guarded(policy: str, control: ControlConfig, veto: Veto | None = None) -> Guarded:
    """The policy of a topology within its guard rails."""
    names = GuardParameters.model_fields
    limits = {name: value for name, value in control.model_dump().items() if name in names}
    return Guarded(registry.make(policy, live_parameters(policy, control)), GuardParameters(**limits), veto)


def group_key(record: TopologyRecord) -> str:
    """Equal for topologies that are planned together."""
    return json.dumps([record.policy, record.control.model_dump()], sort_keys=True)


@dataclass
class Group:
    """Topologies that share a policy and its settings."""

    key: str
    policy: Guarded
    control: ControlConfig
    topologies: list[str]
    next_s: float
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    memory: Memory = field(default_factory=dict)
    before: Memory = field(default_factory=dict)
    """The memory as it was before the newest plan, which a policy must not remember if nothing came of it."""

    @property
    def interval_s(self) -> float:
        """Time between two looks, and the length of a window: whole samples."""
        wanted_s = self.control.interval_s or self.policy.interval_s
        return max(SAMPLE_S, round(wanted_s / SAMPLE_S) * SAMPLE_S)


class ControlMachine:
    """The MAPE loop of all topologies, driven by whoever has a clock and a cluster."""

    def __init__(self, veto_of: Callable[[str], Veto] | None = None) -> None:
        self.book = SlotBook()
        self.groups: dict[str, Group] = {}
        self.logs: dict[str, DecisionLog] = {}
        self.memories: dict[str, tuple[Memory, Memory]] = {}
        """For each group its policy's memory, now and before the newest plan."""
        self.requests = NodeRequests()
        self.added: list[str] = []
        """Nodes that scaling has taken into use, in that order."""
        self._veto_of = veto_of
        self._evacuated_s: dict[str, float] = {}
        """When it was last tried to move a topology away from nodes that are about to end."""
        self._unusable: set[str] = set()
        """Groups that could not be made: that is said once, not at every turn."""

    def log(self, record: TopologyRecord) -> DecisionLog:
        """The decisions of a topology."""
        return self.logs.setdefault(record.name, DecisionLog(record.control.decisions_max))

    def regroup(self, records: Iterable[TopologyRecord], now_s: float) -> list[str]:
        """Follow topologies that came, went, or changed their policy; names those whose policy cannot be used."""
        wanted: dict[str, list[TopologyRecord]] = {}
        for record in records:
            if record.state not in OVER:
                wanted.setdefault(group_key(record), []).append(record)
        for key in [key for key in self.groups if key not in wanted]:
            del self.groups[key]
            self.memories.pop(key, None)
        self._unusable &= wanted.keys()
        failed: list[str] = []
        for key, members in wanted.items():
            names = [record.name for record in members]
            if key in self.groups:
                self.groups[key].topologies = names
                continue
            if key in self._unusable:
                continue
            try:
                self.groups[key] = self._group(key, members, now_s)
            except Exception as error:
                self._unusable.add(key)
                failed += self.failed(members, error, now_s)
        return failed

    def _group(self, key: str, members: Sequence[TopologyRecord], now_s: float) -> Group:
        policy, control = members[0].policy, members[0].control
        veto = self._veto_of(control.veto) if control.veto and self._veto_of else None
        group = Group(key, guarded(policy, control, veto), control, [record.name for record in members], 0.0)
        group.next_s = now_s + group.interval_s
        group.memory, group.before = self.memories.get(key, ({}, {}))
        return group

    def failed(self, records: Iterable[TopologyRecord], error: BaseException, now_s: float) -> list[str]:
        """Write down that looking after these topologies raised an error; gives their names."""
        names = []
        for record in records:
            self.log(record).add(failure(record.name, record.policy, error, now_s))
            names.append(record.name)
        return names

    def due(self, now_s: float) -> list[Group]:
        """The groups whose time has come."""
        return [group for group in self.groups.values() if now_s >= group.next_s]

    def look(
        self,
        group: Group,
        records: Mapping[str, TopologyRecord],
        meters: Mapping[str, Meter],
        nodes: Sequence[NodeFacts],
    ) -> Picture | None:
        """What the group's policy sees now; None while a topology of it is changing or has not reported yet."""
        mine = [records[name] for name in group.topologies if name in records]
        steady = [record for record in mine if is_steady(record)]
        until = [meters[record.name].complete_until(record.hosts()) for record in steady]
        heard = [at_s for at_s in until if at_s is not None]
        if not steady or len(heard) < len(mine) or not nodes:
            return None
        end_s = min(heard) // SAMPLE_S * SAMPLE_S
        self.book.sync(records.values())
        everything = list(records.values())
        picture = build(
            mine, everything, meters, nodes, self.book, group.control, end_s - group.interval_s, end_s, self.added
        )
        for record in mine:
            self.log(record).judge(picture.view)
        return picture

    def decide(self, group: Group, picture: Picture, now_s: float) -> Plan:
        """Ask the policy. May take seconds; touches nothing but the group's memory."""
        before = group.memory
        plan, after = group.policy.plan(picture.view, before, group.rng)
        self._remember(group, after, before)
        group.next_s = now_s + group.interval_s
        return plan

    def within_reach(self, group: Group, picture: Picture, plan: Plan, records: Mapping[str, TopologyRecord]) -> Plan:
        """What of a plan can be done, and is not under way already; the policy does not remember the rest as done."""
        possible = feasible(picture.view, plan, records)
        if self.requests.covers(nodes_used(records.values()), possible.nodes_more):
            summary = f"{possible.nodes_more} nodes more were asked for already and have not come"
            possible = replace(possible, nodes_more=0, reasons=(*possible.reasons, Reason("cluster", summary)))
        for name in group.topologies:
            if plan.topologies.get(name) and not possible.topologies.get(name):
                self.undo(group, name)
        return possible

    def undo(self, group: Group, name: str) -> None:
        """Nothing came of the newest plan for a topology, or not all: the policy is to decide anew at its next look."""
        memory = group.before if group.topologies == [name] else undone(group.memory, group.before, name)
        self._remember(group, memory, group.before)

    def group_of(self, name: str) -> Group | None:
        """The group that a topology belongs to."""
        return next((group for group in self.groups.values() if name in group.topologies), None)

    def _remember(self, group: Group, memory: Memory, before: Memory) -> None:
        group.memory, group.before = memory, before
        self.memories[group.key] = memory, before

    def nodes_to_ask(self, records: Iterable[TopologyRecord], more: int) -> int | None:
        """How many nodes the autoscaler is to be told that are needed, when plans want more of them; None: no news."""
        used = nodes_used(records)
        asked = self.requests.need(used, more)
        return asked if asked is not None else self.requests.settle(used)

    def present(self, record: TopologyRecord) -> dict[TaskId, Slot]:
        """Where all tasks of a topology are, idle ones too; nothing where they have to stay there anyway."""
        if why_no_moves(record):
            return {}
        found = {task: self.book.slot(worker) for task, worker in record.placement.items()}
        return {task: slot for task, slot in found.items() if slot is not None}

    def evacuate(
        self, record: TopologyRecord, everything: Iterable[TopologyRecord], nodes: Sequence[NodeFacts], now_s: float
    ) -> tuple[dict[str, Any], list[Step]] | None:
        """Have a topology leave the nodes that are about to end: the record of it and the steps, if it is time."""
        workers = threatened(record, nodes)
        if not workers:
            self._evacuated_s.pop(record.name, None)
            return None
        if not is_steady(record) or now_s - self._evacuated_s.get(record.name, -math.inf) < EVACUATE_EVERY_S:
            return None
        self._evacuated_s[record.name] = now_s
        self.book.sync(everything)
        leaving = ", ".join(sorted({record.workers[worker].address.node[:8] for worker in workers}))
        count = sum(len(tasks) for tasks in workers.values())
        why = why_no_moves(record)
        targets = {} if why else refuges(record, workers, nodes, self.book)
        steps = list(layered([operator.name for operator in record.outline.operators], targets))
        state = "planned"
        if not steps or record.control.dry_run:
            why, steps = why or ("dry run" if steps else "no other node takes them"), []
            state = "dry run" if record.control.dry_run else "nothing to do"
        summary = f"node {leaving} is about to end: its {count} tasks {f'stay: {why}' if why else 'move away'}"
        return self.log(record).add(evacuation(record.name, summary, state, now_s)), steps

    def begun(self, plan: Plan) -> None:
        """A plan is being carried out: nodes come into use by scaling, or go out of it."""
        kept = [node for node in self.added if node not in plan.nodes_released]
        self.added = [*kept, *(node for node in plan.nodes_taken if node not in kept)]

    def note(
        self, group: Group, records: Mapping[str, TopologyRecord], picture: Picture, plan: Plan, now_s: float
    ) -> dict[str, dict[str, Any]]:
        """Record the plan for each topology that is still there; gives the entries by topology."""
        entries = {}
        for name in group.topologies:
            if name in records:
                entry = decision(name, group.policy.name, picture.view, plan, now_s)
                if group.control.dry_run and any("guard: dry run" in each["summary"] for each in entry["reasons"]):
                    entry["state"] = "dry run"
                entries[name] = self.log(records[name]).add(entry)
        return entries


def nodes_used(records: Iterable[TopologyRecord]) -> int:
    """How many nodes have workers with tasks."""
    running = [record for record in records if record.state not in OVER]
    return len({worker.address.node for record in running for worker in record.hosts().values()})


def undone(memory: Memory, before: Memory, name: str) -> dict[str, Any]:
    """A memory with all that is kept under a topology's name as it was before.

    >>> undone({"rate": {"a": 2, "b": 4}, "at_s": 9}, {"rate": {"a": 1}, "at_s": 5}, "a")
    {'rate': {'a': 1, 'b': 4}, 'at_s': 9}
    >>> undone({"rate": {"a": 2, "b": 4}}, {}, "a")
    {'rate': {'b': 4}}
    """
    result: dict[str, Any] = {}
    for key, value in memory.items():
        earlier = before.get(key)
        if key == name:
            if key in before:
                result[key] = earlier
        elif isinstance(value, Mapping):
            result[key] = undone(value, earlier if isinstance(earlier, Mapping) else {}, name)
        else:
            result[key] = value
    return result


def is_steady(record: TopologyRecord) -> bool:
    """It runs, and nothing of it is being changed or recovered."""
    return record.state == "ACTIVE" and record.draining is None and record.quiet
