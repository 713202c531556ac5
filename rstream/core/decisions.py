"""The record of what policies decided: what they saw, forecast and did, and whether the forecast came true. Plain data.

A decision is one dictionary of JSON values, so that the journal, `rstream explain` and the lab read the same thing.
Looks that led to nothing again and again, for the same reasons, are one entry with a count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from rstream.core.outcomes import outcome
from rstream.schedulers.base import Plan, Reason, TopologyView, View, diff, plain

FAILED = "failed"
EVACUATION = "evacuation"
"""What stands for the policy where the controller itself moves tasks away from nodes that are about to end."""
REPEATABLE = ("nothing to do", FAILED)
"""Decisions in these states that say the same again and again are one entry."""


def seen(view: View, topology: TopologyView) -> dict[str, Any]:
    """What a policy saw of a topology, in short."""
    nodes = sorted({slot.node for slot in topology.placement.values()})
    operators = []
    for operator in topology.operators:
        rows = topology.rows(operator.name)
        table = topology.tasks
        active = topology.active(operator.name)
        operators.append(
            {
                "name": operator.name,
                "active": active,
                "loaded": len(rows),
                "input_rate": view.rate(float(table.received[rows].sum())),
                "rate": view.rate(float(table.processed[rows].sum())),
                "service_ms": topology.service_s(operator.name) * 1e3,
                "queue": float(table.queue[rows].sum()),
                "busy": float(table.busy_s[rows].sum()) / max(1e-9, view.window_s * max(1, active)),
            }
        )
    return {
        "window_s": [view.start_s, view.end_s],
        "source_rate": view.rate(topology.source_count),
        "latency_ms": topology.latency_ms,
        "failed": topology.failed,
        "operators": operators,
        "nodes": {name: plain(view.node(name).load._asdict()) for name in nodes},
        "tiers_us": {tier: round(value * 1e6, 1) for tier, value in plain(view.tiers).items()},
    }


def decision(name: str, policy: str, view: View, plan: Plan, at_s: float) -> dict[str, Any]:
    """The record of one decision for one topology, before anything is done about it."""
    mine = plan.topologies.get(name)
    alone = Plan({name: mine} if mine else {}, plan.nodes_taken, plan.nodes_released, plan.nodes_more)
    others = {topology.name for topology in view.topologies} - {name}
    reasons = [plain(reason) for reason in plan.reasons if reason.subject.partition("/")[0] not in others]
    moves = [move.to_data() for move in diff(view, alone)]
    state = "planned" if alone else "nothing to do"
    return _entry(name, policy, at_s, state, reasons, seen(view, view.topology(name)), moves)


def failure(name: str, policy: str, error: BaseException, at_s: float) -> dict[str, Any]:
    """The record of a look that ended with an error: nothing was seen, or nothing came of it."""
    return _entry(name, policy, at_s, FAILED, [plain(_because(name, error))])


def _entry(
    name: str,
    policy: str,
    at_s: float,
    state: str,
    reasons: list[Any],
    saw: Mapping[str, Any] | None = None,
    moves: Sequence[Any] = (),
) -> dict[str, Any]:
    return {
        "at_s": at_s,
        "topology": name,
        "policy": policy,
        "saw": saw or {},
        "reasons": reasons,
        "moves": list(moves),
        "state": state,
        "steps": [],
        "took_s": None,
        "paused_ms": None,
        "outcome": None,
        "times": 1,
    }


def evacuation(name: str, summary: str, state: str, at_s: float) -> dict[str, Any]:
    """The record of what was decided about nodes that are about to end, without a policy."""
    return _entry(name, EVACUATION, at_s, state, [plain(Reason(name, summary))])


def fail(entry: dict[str, Any], error: BaseException) -> None:
    """A decision could not be carried out, for a reason that nobody expected."""
    entry["state"] = FAILED
    entry["reasons"] = [*entry["reasons"], plain(_because(entry["topology"], error))]


def _because(name: str, error: BaseException) -> Reason:
    return Reason(name, f"error: {said(error)}")


def said(error: BaseException) -> str:
    """An error in one line.

    >>> said(ValueError("no such node\\nand more"))
    'ValueError: no such node'
    """
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


JUDGED_MAX = 3
"""A decision whose outcome is not known after so many more is not judged any more."""


class DecisionLog:
    """The newest decisions of one topology."""

    def __init__(self, most: int = 1000) -> None:
        self.entries: deque[dict[str, Any]] = deque(maxlen=most)
        self.made = 0

    def add(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Keep a decision; one that says nothing new is counted with the last."""
        last = self.entries[-1] if self.entries else None
        if last is not None and _is_repeated(last, entry):
            last.update(times=last["times"] + 1, at_s=entry["at_s"], saw=entry["saw"], reasons=entry["reasons"])
            return last
        self.made += 1
        entry["number"] = self.made
        self.entries.append(entry)
        return entry

    def judge(self, view: View) -> None:
        """A new window is there: compare it, once, with the forecasts of the decisions that it is mostly later than."""
        middle_s = (view.start_s + view.end_s) / 2
        for entry in list(self.entries)[-JUDGED_MAX:]:
            over = entry["state"] not in ("running", "planned")
            if over and entry["outcome"] is None and middle_s > entry["at_s"] + (entry["took_s"] or 0.0):
                entry["outcome"] = outcome(entry, view)


def _is_repeated(last: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    def say(each: Mapping[str, Any]) -> tuple[Any, ...]:
        return each["policy"], each["state"], tuple(reason["summary"] for reason in each["reasons"])

    return last["state"] in REPEATABLE and say(last) == say(entry)
