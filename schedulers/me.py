"""Me-Stream: rank bottlenecks by a fitted line of delays, give each more executors by its rank.

An item is an operator, or a whole topology (`scope`). Delays that rise above their line again and again make an item
a bottleneck; the longer its tuples take, the higher its level, and the level is what it grows by. Executors are then
dealt out anew over the slots (`me_slots`). There is no rule for shrinking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from rstream.schedulers.bottlenecks import Work, effective, grow, levels, same_magnitude, transfer
from rstream.schedulers.ledger import Ledger
from rstream.schedulers.me_slots import spread
from rstream.schedulers.placing import open_slots
from rstream.schedulers.plan import Alternative, Plan, Reason, TopologyPlan
from rstream.schedulers.policy import Memory, Parameters
from rstream.schedulers.rates import Line, fit_line
from rstream.schedulers.tables import Slot, TaskId
from rstream.schedulers.view import EdgeView, TopologyView, View


class MeParameters(Parameters):
    """Parameters of `me`; the paper's values where it gives one."""

    interval_s: float = Field(default=60.0, gt=0, description="Time over which delays are collected [paper].")
    scope: Literal["operator", "topology"] = Field(
        default="operator", description="What is ranked: operators within their topology, or topologies of the cluster."
    )
    mode: Literal["parameter", "level"] = Field(
        default="parameter",
        description="`parameter`: whole increments, highest level first [paper]; `level`: all to the highest first.",
    )
    phi: float = Field(default=1.0, gt=0, description="Executors per level [paper].")
    refit_change: float = Field(default=0.05, gt=0, description="Change of slope and intercept that counts as none.")
    refit_count: int = Field(default=3, ge=1, description="Unchanged fits after which the line is kept for good.")
    effective_min: int = Field(default=3, ge=1, description="Samples above the line that make a bottleneck.")
    utilisation_min: float = Field(
        default=0.3, ge=0, le=1, description="An item less busy than this keeps its size (Me-9); 0 switches this off."
    )
    cooldown_s: float = Field(default=60.0, ge=0, description="Least time between two plans that change something.")


@dataclass(frozen=True, slots=True)
class Item:
    """What is ranked: its operator to grow, its delays, its time T and how busy it is."""

    name: str
    topology: TopologyView
    operator: str
    times_s: Sequence[float]
    delays_ms: Sequence[float]
    time_ms: float
    utilisation: float
    size: int


class MeStream:
    """The policy `me`."""

    name: ClassVar[str] = "me"
    Parameters: ClassVar = MeParameters

    def __init__(self, parameters: MeParameters | None = None) -> None:
        self.parameters = parameters or MeParameters()

    @property
    def interval_s(self) -> float:
        """One look per collection interval."""
        return self.parameters.interval_s

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Identify, rank, grow, place; nothing here is random."""
        lines: dict[str, Any] = {}
        groups: dict[str, dict[str, Item]] = {}
        reasons: list[Reason] = []
        for topology in view.topologies:
            for item in self._items(view, topology):
                fitted = self._fit(item, memory.get("lines", {}).get(item.name, {}))
                lines[item.name] = fitted
                why_not = self._why_not(item, fitted)
                group = topology.name if self.parameters.scope == "operator" else ""
                if not why_not:
                    groups.setdefault(group, {})[item.name] = item
                elif item.operator:
                    reasons.append(Reason(item.name, f"no bottleneck: {why_not}", self._inputs(item, fitted)))
        at_s = memory.get("at_s")
        if at_s is not None and view.end_s - at_s < self.parameters.cooldown_s - 1e-6:
            reasons.append(Reason("cluster", "the cooldown has not passed"))
            groups = {}
        plans = self._grow(view, groups, lines, reasons)
        repaired = self._repair(view, plans)
        plans |= repaired
        reasons += [Reason(name, "tasks without a live slot are placed anew") for name in repaired]
        return Plan(plans, reasons=tuple(reasons)), {"lines": lines, "at_s": view.end_s if plans else at_s}

    def _items(self, view: View, topology: TopologyView) -> list[Item]:
        operators = [self._operator_item(view, topology, operator.name) for operator in topology.operators]
        if self.parameters.scope == "operator":
            return operators
        length = min((len(item.delays_ms) for item in operators), default=0)
        if not length:
            return []
        worst = max(operators, key=lambda item: item.time_ms)
        delays = [
            math.fsum(item.delays_ms[-length:][at] for item in operators) / len(operators) for at in range(length)
        ]
        chain = [work_of(view, topology, operator.name) for operator in topology.operators]
        busiest = max(item.utilisation for item in operators)
        size = sum(item.size for item in operators)
        times = view.sample_times_s(length)
        return [Item(topology.name, topology, worst.operator, times, delays, transfer(chain).total, busiest, size)]

    def _operator_item(self, view: View, topology: TopologyView, name: str) -> Item:
        delays = topology.operator(name).process_samples_ms
        rows = topology.rows(name, active=True)
        busy = (
            float(topology.tasks.busy_s[rows].sum()) / (len(rows) * view.window_s) if len(rows) and view.window_s else 0
        )
        time_ms = transfer([work_of(view, topology, name)]).total
        times = view.sample_times_s(len(delays))
        return Item(f"{topology.name}/{name}", topology, name, times, delays, time_ms, busy, len(rows))

    def _fit(self, item: Item, last: Mapping[str, Any]) -> dict[str, Any]:
        """The item's line: refitted until it stays put, then kept (the non-monitoring period)."""
        if last.get("calm", 0) >= self.parameters.refit_count:
            return dict(last)
        line = fit_line(item.times_s, item.delays_ms)
        new = {"slope": line.slope, "intercept": line.intercept, "tolerance": math.sqrt(line.mean_square)}
        still = bool(last) and all(
            abs(new[key] - last[key]) <= self.parameters.refit_change * abs(last[key]) for key in ("slope", "intercept")
        )
        return {**new, "calm": last.get("calm", 0) + 1 if still else 0}

    def _above(self, item: Item, fitted: Mapping[str, Any]) -> list[int]:
        line = Line(fitted["slope"], fitted["intercept"], ())
        return effective(item.times_s, item.delays_ms, line, fitted["tolerance"])

    def _why_not(self, item: Item, fitted: Mapping[str, Any]) -> str:
        parameters = self.parameters
        above = self._above(item, fitted)
        if len(above) < parameters.effective_min:
            return f"{len(above)} samples above the line, {parameters.effective_min} make a bottleneck"
        reference = max(item.delays_ms[at] for at in above)
        if not same_magnitude(item.time_ms, reference):
            return f"T of {item.time_ms:.3g} ms and delays up to {reference:.3g} ms differ by more than ten times"
        if item.utilisation < parameters.utilisation_min:
            return f"busy {item.utilisation:.0%} of the time, below {parameters.utilisation_min:.0%}"
        return ""

    def _grow(
        self, view: View, groups: Mapping[str, Mapping[str, Item]], lines: Mapping[str, Any], reasons: list[Reason]
    ) -> dict[str, TopologyPlan]:
        ledger = Ledger(view)
        plans: dict[str, TopologyPlan] = {}
        for items in groups.values():
            rank = levels({name: item.time_ms for name, item in items.items()})
            wanted: dict[str, dict[str, int]] = {}
            free = {name: sum(ledger.open(name).values()) for name in {item.topology.name for item in items.values()}}
            for name in sorted(rank, key=lambda name: -rank[name]):
                item, level = items[name], rank[name]
                more = grow(item.size, item.size, level, self.parameters.phi).executors - item.size
                given = self._grant(item, more, free[item.topology.name])
                free = {topology: room - given for topology, room in free.items()}
                reasons.append(self._granted(item, level, more, given, lines[name]))
                if given:
                    sizes = wanted.setdefault(item.topology.name, {})
                    sizes[item.operator] = item.topology.active(item.operator) + given
            for name, sizes in wanted.items():
                plan = spread(view.topology(name), sizes, list(sizes), ledger)
                if plan.parallelism:
                    plans[name] = plan
        return plans

    def _grant(self, item: Item, more: int, free: int) -> int:
        most = item.topology.operator(item.operator).parallelism_max - item.topology.active(item.operator)
        more = min(more, most)
        if self.parameters.mode == "level":
            return max(0, min(more, free))
        return more if 0 < more <= free else 0

    def _granted(self, item: Item, level: int, more: int, given: int, fitted: Mapping[str, Any]) -> Reason:
        summary = f"bottleneck of level {level}: {given} executors more for {item.operator}"
        other = Alternative(f"{more} executors more", "slots or the operator's maximum do not allow them")
        return Reason(
            item.name, summary, self._inputs(item, fitted), {"T_ms": item.time_ms}, (other,) if more > given else ()
        )

    @staticmethod
    def _inputs(item: Item, fitted: Mapping[str, Any]) -> dict[str, Any]:
        return {**fitted, "T_ms": item.time_ms, "utilisation": item.utilisation, "executors": item.size}

    @staticmethod
    def _repair(view: View, plans: Mapping[str, TopologyPlan]) -> dict[str, TopologyPlan]:
        """Held slots on live nodes stay; tasks elsewhere get an even place (scheduling steps 4 to 7)."""
        alive = {node.id for node in view.nodes if node.alive}
        ledger = Ledger(view)
        repaired: dict[str, TopologyPlan] = {}
        for topology in view.topologies:
            lost = [task for task in topology.task_ids if _homeless(topology.placement.get(task), alive)]
            if not lost or topology.name in plans:
                continue
            slots = iter(open_slots(topology.name, ledger))
            place: dict[TaskId, Slot] = {}
            for task in lost:
                slot = next((slot for slot in slots if ledger.book_slot(topology.name, task, slot)), None)
                if slot is not None:
                    place[task] = slot
            if place:
                repaired[topology.name] = TopologyPlan(placement=place)
        return repaired


def _homeless(slot: Slot | None, alive: set[str]) -> bool:
    return slot is None or slot.node not in alive


def work_of(view: View, topology: TopologyView, name: str) -> Work:
    """One tuple through one operator, times in milliseconds."""
    operator, ends = topology.operator(name), [*topology.parents(name), *topology.children(name)]
    nodes = topology.tasks.node[topology.rows(name, active=True)]
    speeds = [view.nodes[node].speed for node in nodes.tolist() if node >= 0]
    speed = sum(speeds) / len(speeds) if speeds else 1.0
    size = sum(edge.tuple_bytes for edge in ends) / len(ends) if ends else 0.0
    busy_ms = topology.service_s(name) * 1e3
    came = None if operator.kind == "source" else _link(view, topology, name, topology.parents(name))
    went = None if operator.kind == "sink" else _link(view, topology, name, topology.children(name))
    # Busy time is measured on the node itself: as work it is worth its speed.
    return Work(busy_ms * speed, speed, size, came, went)


def _link(view: View, topology: TopologyView, name: str, edges: Sequence[EdgeView]) -> float:
    """Eq 2's bandwidth in bytes per ms: the mean over the pairs of nodes that these edges join."""
    links = view.links
    if not links.pairs:
        return links.default_bytes_s / 1e3

    def hosts(operator: str) -> list[str]:
        return [
            view.nodes[at].id
            for at in set(topology.tasks.node[topology.rows(operator, active=True)].tolist())
            if at >= 0
        ]

    here = hosts(name)
    others = {host for edge in edges for end in (edge.source, edge.target) if end != name for host in hosts(end)}
    found = [links.between(one, other) for one in here for other in sorted(others) if one != other]
    return (sum(found) / len(found) if found else links.default_bytes_s) / 1e3
