"""The random topologies of the fault simulation, each with a check of what its sinks must hold.

Every topology has a merge whose output depends on the interleaving of its inputs and on the clock, a keyed count, and a
broadcast to two sinks, which must agree on everything that they were told.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rstream import groupings
from rstream.api import Bolt, Context, Out, TransactionalSink
from rstream.errors import SinkFenced
from rstream.event_time import EventTime
from rstream.graph import Graph
from rstream.groupings import Grouping
from rstream.lab.fault_bolts import TALLY, StateOf, check_state, check_tallies, make_tally, point_out
from rstream.operators.sinks import Collect
from rstream.operators.windows import Sliding
from rstream.topology import Topology


@dataclass(frozen=True)
class Workload:
    """A topology and what to hold its results against."""

    graph: Graph
    check: Callable[[Mapping[str, list[Any]]], str]
    """An empty string if the results are right, else what is wrong."""
    check_state: Callable[[StateOf], str] | None = None
    """The same for the state of keyed tasks at the end."""


class Number(Bolt):
    """Numbers what it gets, with the value before it and the clock: different for every interleaving."""

    def open(self, ctx: Context) -> None:
        self._ctx = ctx
        self._seen = 0
        self._before: Any = None

    def process(self, value: Any, out: Out) -> None:
        self._seen += 1
        out.emit((value, self._ctx.task, self._seen, self._before, self._ctx.now(), self._ctx.random().random()))
        self._before = value

    def snapshot(self) -> Any:
        return (self._seen, self._before)

    def restore(self, snapshot: Any) -> None:
        self._seen, self._before = snapshot


class CountKeys(Bolt):
    """A running count of each key, in keyed state."""

    def open(self, ctx: Context) -> None:
        self._count = ctx.state.value("count", default=0)
        self._state = ctx.state

    def process(self, value: Any, out: Out) -> None:
        n = self._count.get() + 1
        self._count.set(n)
        out.emit((self._state.current, n, value[1], value[2]))


class Linger(Bolt):
    """Keeps each value back until a timer of its key is due, or the stream ends: values neither lost nor doubled."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def open(self, ctx: Context) -> None:
        self._ctx = ctx
        self._kept = ctx.state.list("kept")

    def process(self, value: Any, out: Out) -> None:
        if not len(self._kept):
            self._ctx.set_timer(self._ctx.now() + self._wait_s)
        self._kept.append(value)

    def on_timer(self, name: str, out: Out) -> None:
        out.extend(list(self._kept))
        self._kept.clear()

    def on_end(self, out: Out) -> None:
        for _, values in self._ctx.state.items("kept"):
            out.extend(list(values))


class Store:
    """A database outside the topology: it outlives every worker, and knows who may commit."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.places: dict[int, tuple[int, bytes | None]] = {}
        """For each task the token that claimed it, and the progress of its last commit."""


class StoreSink(TransactionalSink):
    """Commits to a store that all copies of the sink share."""

    def __init__(self, store: Store, interval_s: float, records: int) -> None:
        self.store = store
        self.commit_interval_s, self.commit_records = interval_s, records

    def __deepcopy__(self, memo: Any) -> StoreSink:
        return StoreSink(self.store, self.commit_interval_s, self.commit_records)

    def open(self, ctx: Context) -> None:
        self._task = ctx.task

    def claim(self, token: int) -> bytes | None:
        newest, progress = self.store.places.get(self._task, (0, None))
        if newest > token:
            raise SinkFenced(f"task {self._task}: {newest} has claimed it, this is {token}")
        self.store.places[self._task] = token, progress
        return progress

    def commit(self, records: list[Any], progress: bytes, token: int) -> None:
        newest, _ = self.store.places[self._task]
        if newest != token:
            raise SinkFenced(f"task {self._task}: {newest} has claimed it, this is {token}")
        self.store.rows.extend(records)
        self.store.places[self._task] = token, progress


KEYS = 13


def key_of(value: Any) -> Any:
    """The key of a numbered value."""
    return value[0][1] % KEYS


def second(value: Any) -> Any:
    """The key of a value as its source makes it."""
    return value[1] % KEYS


def index_of(value: Any) -> Any:
    """The event time of a value as its source makes it."""
    return value[1]


def numbered_index_of(value: Any) -> Any:
    """The event time of a numbered value."""
    return value[0][1]


WINDOW = Sliding(60, 20)
VARIETY = 0.2
"""So many topologies have a direct grouping, and so many state of other kinds."""


def make_workload(
    rng: random.Random,
    extras: random.Random | None = None,
    windows: random.Random | None = None,
    variety: random.Random | None = None,
) -> Workload:
    """A random topology of 4 to 7 operators.

    `extras` draws timers for some, `windows` windows by event time, `variety` direct grouping and state of other kinds:
    the rest of a seed stays the same.
    """
    topology = Topology("faulty")
    stamp = None
    if windows is not None and windows.random() < 0.5:
        stamp = EventTime(index_of, every_s=windows.choice([0.0, 0.001, 0.02]))
    sizes = [rng.randint(1, 3) for _ in range(rng.randint(1, 2))]
    per_source = rng.randint(300, 400) // len(sizes) + 1
    streams = []
    for number, size in enumerate(sizes):
        items = [(f"s{number}", index) for index in range(per_source)]
        streams.append(topology.source(f"s{number}", items, parallelism=size, event_time=stamp))
    if rng.random() < 0.5:
        waits_s = [0.001, 0.02, 0.1] if extras is not None and extras.random() < 0.5 else []
        mapped = []
        for number, stream in enumerate(streams):
            grouping, tasks = _any_grouping(rng), rng.randint(1, 3)
            if extras is not None and waits_s:
                keyed = stream.key_by(f"second{number}", second)
                mapped.append(keyed.process(f"map{number}", Linger(extras.choice(waits_s)), parallelism=tasks))
                stamp = None  # what lingers comes too late for its windows, as it should
            else:
                mapped.append(stream.grouped(grouping).map(f"map{number}", _same, parallelism=tasks))
        streams = mapped
    merged = topology.merge("merge", *streams) if len(streams) > 1 else streams[0]
    grouped, tasks = merged.grouped(_any_grouping(rng)), rng.randint(1, 3)
    if variety is not None and variety.random() < VARIETY:
        grouped = point_out(grouped, variety, tasks)
    numbered = grouped.process("number", Number(), parallelism=tasks)
    counted = numbered.key_by("key", key_of).process("count", CountKeys(), parallelism=rng.randint(1, 4))
    sinks = {"counts": counted, "left": numbered.grouped(groupings.All()), "right": numbered.grouped(groupings.All())}
    if windows is not None and stamp is not None:
        cut = numbered.key_by("window key", key_of).window(WINDOW, time=numbered_index_of)
        sinks["windows"] = cut.count("window", parallelism=windows.randint(1, 4))
    tally = make_tally(variety) if variety is not None and variety.random() < VARIETY else None
    if tally is not None and variety is not None:
        sinks["tallies"] = numbered.key_by("tally key", key_of).process(TALLY, tally, parallelism=variety.randint(1, 3))
    stores: dict[str, Store] = {}
    for name, grouped in sinks.items():
        if rng.random() < 0.6:
            stores[name] = Store()
            interval_s = rng.choice([0.0, 0.02, 0.1])
            grouped.sink(name, StoreSink(stores[name], interval_s, rng.choice([1, 10, 100])))
        else:
            grouped.sink(name, Collect())
    expected = {(f"s{number}", index) for number in range(len(sizes)) for index in range(per_source)}
    totals = Counter(index % KEYS for _, index in expected)

    def check_all(results: Mapping[str, list[Any]]) -> str:
        found = {**results, **{name: store.rows for name, store in stores.items()}}
        problem = check(found, expected)
        return problem or (check_tallies(found["tallies"], tally.ttl_s, totals) if tally is not None else "")

    return Workload(topology.build(), check_all, lambda state_of: check_state(state_of, totals, tally is not None))


def _same(value: Any) -> Any:
    return value


def _any_grouping(rng: random.Random) -> Grouping:
    return rng.choice(
        [
            groupings.Shuffle(),
            groupings.LocalOrShuffle(),
            groupings.NoGrouping(),
            groupings.PartialKey(),
            groupings.Global(),
            groupings.LoadBalanced(),
            groupings.Custom(_choose),
        ]
    )


def _choose(value: Any, tasks: int) -> int:
    return int(value[1]) % tasks


def check(results: Mapping[str, list[Any]], expected: set[Any]) -> str:
    """What is wrong with the results, or nothing."""
    left, right = sorted(results.get("left", []), key=repr), sorted(results.get("right", []), key=repr)
    if left != right:
        return f"the two broadcast sinks differ: {len(left)} and {len(right)} tuples"
    values = [item[0] for item in left]
    if len(values) != len(set(values)):
        return f"duplicates: {len(values) - len(set(values))} of {len(values)}"
    if set(values) != expected:
        return f"lost: {len(expected - set(values))} of {len(expected)}"
    by_task: dict[int, list[Any]] = defaultdict(list)
    for item in left:
        by_task[item[1]].append(item)
    for task, items in by_task.items():
        items.sort(key=lambda item: item[2])
        if [item[2] for item in items] != list(range(1, len(items) + 1)):
            return f"number#{task}: its own numbers are not 1 to {len(items)}"
        if [item[3] for item in items] != [None, *(item[0] for item in items[:-1])]:
            return f"number#{task}: the values before do not form one order"
    counts: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for key, *rest in results.get("counts", []):
        counts[key].append(tuple(rest))
    truth: dict[Any, int] = defaultdict(int)
    for value in values:
        truth[value[1] % KEYS] += 1
    for key, total in truth.items():
        counted = sorted(counts[key])
        if [n for n, _, _ in counted] != list(range(1, total + 1)):
            return f"key {key}: counts are not 1 to {total}"
        for task in by_task:
            seen = [number for _, sender, number in counted if sender == task]
            if seen != sorted(seen):
                return f"key {key}: what came from number#{task} was counted out of order"
    return _check_windows(results["windows"], expected) if "windows" in results else ""


def _check_windows(rows: list[Any], expected: set[Any]) -> str:
    """Each window of each key has come once, with all of its values."""
    wanted: dict[tuple[int, Any], int] = defaultdict(int)
    for _, index in expected:
        for start in WINDOW.starts(index):
            wanted[index % KEYS, start] += 1
    truth = sorted((key, start, start + WINDOW.size_s, n) for (key, start), n in wanted.items())
    wrong = [row for row in truth if row not in rows] or [row for row in rows if row not in truth]
    if wrong or len(rows) != len(truth):
        return f"windows: {len(rows)} rows where {len(truth)} were wanted, {len(wrong)} wrong, as {wrong[:1]}"
    return ""
