"""For tests of operators with event time: events in disorder, and runs of a topology that must all give the same.

A step is run embedded on one worker and on three, and in the fault simulation, which kills workers of the real core
at seeded moments and changes the number of a step's tasks inside open windows. What comes out is compared with what the
test computed from the events by other means.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rstream import Topology
from rstream.event_time import EventTime
from rstream.lab.fault_topologies import Workload
from rstream.lab.faults import Outcome, Schedule
from rstream.operators.aggregates import Aggregate
from rstream.operators.windows import Tumbling
from rstream.testing import run
from rstream.topology import Stream

Event = tuple[str, int, int]
"""(key, seconds, number)"""
Results = Mapping[str, list[Any]]
"""What each sink got."""

DISORDER_S = 7


def key_of(event: Event) -> str:
    """The key of an event."""
    return event[0]


def at_s(event: Event) -> int:
    """The time of an event."""
    return event[1]


def number(event: Event) -> int:
    """The number of an event."""
    return event[2]


def events(count: int = 240, keys: int = 5, span_s: int = 300, seed: int = 1) -> list[Event]:
    """Events over a span of time, each up to DISORDER_S later in the list than its time says."""
    chance = random.Random(seed)
    made = [(f"k{chance.randrange(keys)}", chance.randrange(span_s), chance.randrange(1000)) for _ in range(count)]
    return sorted(made, key=lambda event: event[1] + chance.random() * DISORDER_S)


def topology(
    items: list[Any], step: Callable[[Stream], Stream], delay_s: float = DISORDER_S, sink: Any = None
) -> Topology:
    """Two source tasks that make watermarks, the step under test, and a sink."""
    built = Topology("windows")
    stamp = EventTime(at_s, delay_s=delay_s, every_s=0.0)
    step(built.source("events", items, parallelism=2, event_time=stamp)).sink("out", sink)
    return built


class Rescaled(Schedule):
    """A run in which a keyed step gets more tasks while its tasks hold something, and then fewer."""

    def __init__(self, seed: int, workload: Workload, faults: int | None) -> None:
        super().__init__(seed, faults, workload=workload)
        graph = workload.graph
        self.keyed = next(
            each.name for each in graph.operators if each.kind == "bolt" and graph.key_groupings(each.name)
        )
        self.wanted = [5, 1]
        self.before: dict[Any, int] = {}
        self.moved = 0
        """Keys whose state went to another task."""

    def plan_changes(self) -> None:
        """None but those of `step`."""

    def step(self) -> None:
        super().step()
        now = self._owners()
        self.moved += sum(self.before.get(key, task) != task for key, task in now.items())
        self.before = {key: task for key, task in self.before.items() if key not in now} | now
        if self.wanted and now and self.record.state == "ACTIVE":
            self._ask("rescale", {self.keyed: self.wanted.pop(0)})

    def _owners(self) -> dict[Any, int]:
        """Every key of the step that has state, and the task that holds it."""
        tasks = [
            task
            for worker in self.workers.values()
            if worker.alive and worker.machine is not None and not worker.cut_off
            for task in worker.machine.bolts
            if task.id.operator == self.keyed
        ]
        return {
            key: task.id.number
            for task in tasks
            for name in task.ctx.state.names()
            for key in task.ctx.state.keys(name)
        }


def check_exact(items: list[Any], step: Callable[[Stream], Stream], wanted: list[Any], kills: int = 3) -> None:
    """The step gives what is wanted, in any order: on one worker, on three, although workers are killed, and although
    its tasks change in number while they hold something, with kills and without.
    """
    check_always(lambda: topology(items, step), wanted, kills)


def came_out(results: Results) -> list[Any]:
    """All that reached the sink `out`."""
    return results.get("out", [])


def check_always(
    build: Callable[[], Topology],
    wanted: list[Any],
    kills: int = 3,
    seen: Callable[[Results], list[Any]] = came_out,
) -> None:
    """What is `seen` of a topology's results is what is wanted, in all the ways that `check_exact` names."""
    for workers in (1, 3):
        problem = _difference(seen(run(build(), workers=workers)), wanted)
        assert not problem, f"{workers} workers: {problem}"

    def workload() -> Workload:
        return Workload(build().build(), lambda results: _difference(seen(results), wanted))

    killed = 0
    for seed in range(kills):
        outcome = Schedule(4000 + seed, workload=workload()).run()
        assert outcome.exact, (seed, outcome.verdict)
        killed += _kills(outcome)
    for faults in (0, None):
        moved = 0
        for seed in range(4101, 4111):
            schedule = Rescaled(seed, workload(), faults)
            outcome = schedule.run()
            assert outcome.exact, ("rescaled", seed, faults, outcome.verdict)
            moved += schedule.moved
            killed += _kills(outcome)
            if moved:
                break
        assert moved, "no key changed hands: choose other seeds"
    assert killed or not kills, "no worker was killed: choose other seeds"


def check_aggregate(
    aggregate: Aggregate, truth: Callable[[list[Event]], Any], shown: Callable[[Any], Any] | None = None
) -> None:
    """An aggregate of each key's events in tumbling windows is what `truth` makes of them; as far as `shown`."""
    items = events(count=200, seed=5)
    groups: dict[tuple[str, int], list[Event]] = {}
    for event in items:
        groups.setdefault((event[0], event[1] // 100 * 100), []).append(event)

    def step(stream: Stream) -> Stream:
        windowed = stream.key_by("key", key_of).window(Tumbling(100), time=at_s)
        aggregated = windowed.aggregate("aggregate", aggregate, parallelism=2)
        return aggregated if shown is None else aggregated.map("shown", lambda row: (*row[:3], shown(row[3])))

    wanted = [(key, start, start + 100, truth(group)) for (key, start), group in groups.items()]
    check_exact(items, step, wanted, kills=2)


def check_written(folder: Path, sink: Callable[[Path], Any], read: Callable[[Path], list[Any]]) -> None:
    """Counts by key and window that a sink writes to a place outside are all there once, across kills and rescales."""
    items = events(seed=3)
    truth = Counter((key, at // 60 * 60) for key, at, _ in items)
    wanted = [(key, start, start + 60, n) for (key, start), n in truth.items()]

    def counts(stream: Stream) -> Stream:
        return stream.key_by("key", key_of).window(Tumbling(60), time=at_s).count("count", parallelism=2)

    killed = moved = 0
    for seed in range(4200, 4206):
        path = folder / str(seed)
        built = topology(items, counts, sink=sink(path)).build()
        schedule = Rescaled(seed, Workload(built, lambda _, p=path: _difference(read(p), wanted)), None)  # type: ignore[misc]
        outcome = schedule.run()
        assert outcome.exact, (seed, outcome.verdict)
        killed, moved = killed + _kills(outcome), moved + schedule.moved
    assert killed, "no worker was killed: choose other seeds"
    assert moved, "no key changed hands: choose other seeds"


def _kills(outcome: Outcome) -> int:
    return sum(count for event, count in outcome.events.items() if event.startswith("crash"))


def _difference(found: list[Any], wanted: list[Any]) -> str:
    came, right = Counter(map(repr, found)), Counter(map(repr, wanted))
    if came == right:
        return ""
    extra, missing = next(iter(came - right), None), next(iter(right - came), None)
    return f"{len(found)} results, {len(wanted)} wanted; first extra {extra}, first missing {missing}"
