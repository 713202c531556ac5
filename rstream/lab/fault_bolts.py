"""More that topologies of the fault simulation may consist of: direct grouping, map state, state with a time to live.

With what the state of keyed tasks must be at the end: one owner for every key, and the right total there.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rstream import groupings
from rstream.api import Bolt, Context, Out
from rstream.topology import Stream

POINT, TALLY = "point", "tally"
SITUATIONS = {"window": "windows", POINT: "direct grouping", TALLY: "map state, time to live"}
"""What the presence of an operator says of a topology."""

StateOf = Callable[[str, str], Iterable[tuple[int, Any, Any]]]
"""For an operator and the name of a state: (task, key, what is held) wherever a task holds something."""


class Point(Bolt):
    """Names the task that gets each value."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def process(self, value: Any, out: Out) -> None:
        out.emit_direct(value[1] * 7 % self._tasks, value)


class Tally(Bolt):
    """For each key a total, a run that ends when nothing came for a while, and a count by sender in a map."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s

    def open(self, ctx: Context) -> None:
        self._ctx = ctx
        self._total = ctx.state.value("total", default=0)
        self._run = ctx.state.value("run", default=0, ttl_s=self.ttl_s)
        self._by = ctx.state.map("by")

    def process(self, value: Any, out: Out) -> None:
        total, run, sender = self._total.get() + 1, self._run.get() + 1, value[1]
        by = self._by.get(sender, 0) + 1
        self._total.set(total)
        self._run.set(run)
        self._by.set(sender, by)
        out.emit((self._ctx.state.current, total, run, self._ctx.now(), sender, by))


def point_out(stream: Stream, variety: random.Random, tasks: int) -> Stream:
    """The same stream, whose tuples name which of so many tasks of the next step gets them."""
    pointed = stream.process(POINT, Point(tasks), parallelism=variety.randint(1, 2))
    return pointed.grouped(groupings.Direct())


def make_tally(variety: random.Random) -> Tally:
    """One whose runs end seldom, sometimes, or nearly always."""
    return Tally(variety.choice([0.005, 0.05, 1.0]))


def check_tallies(rows: Iterable[Any], ttl_s: float, totals: Mapping[Any, int]) -> str:
    """What is wrong with what the tallies said, or nothing."""
    by_key: dict[Any, list[Any]] = defaultdict(list)
    for key, *rest in rows:
        by_key[key].append(rest)
    for key, total in totals.items():
        said = sorted(by_key[key])
        if [each[0] for each in said] != list(range(1, total + 1)):
            return f"key {key}: the totals of the tally are not 1 to {total}"
        run, before_s = 0, -1.0
        by: dict[Any, int] = defaultdict(int)
        for number, found, now_s, sender, of_sender in said:
            run = run + 1 if number > 1 and now_s < before_s + ttl_s else 1
            by[sender] += 1
            if (found, of_sender) != (run, by[sender]):
                return f"key {key}, tuple {number}: run {found} and {of_sender} of {sender}, not {run} and {by[sender]}"
            before_s = now_s
    return ""


def check_state(state_of: StateOf, totals: Mapping[Any, int], tallied: bool) -> str:
    """What is wrong with the state that keyed tasks hold at the end, or nothing."""
    problem = _check_owners("count", [(task, key, n) for task, key, n in state_of("count", "count")], totals)
    if problem or not tallied:
        return problem
    by = [(task, key, sum(counts.values())) for task, key, counts in state_of(TALLY, "by")]
    return _check_owners(TALLY, list(state_of(TALLY, "total")), totals) or _check_owners(TALLY, by, totals)


def _check_owners(operator: str, held: list[tuple[int, Any, int]], totals: Mapping[Any, int]) -> str:
    owners: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for task, key, n in held:
        owners[key].append((task, n))
    for key, total in totals.items():
        if len(owners[key]) != 1:
            return f"{operator}: key {key} is held by {len(owners[key])} tasks at the end: {owners[key]}"
        task, n = owners[key][0]
        if n != total:
            return f"{operator}#{task}: key {key} stands at {n} at the end, not at {total}"
    return "" if len(owners) == len(totals) else f"{operator}: {len(owners)} keys at the end, not {len(totals)}"
