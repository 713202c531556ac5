"""Savepoints on the embedded host: a run from one gives what one without it would have, whatever has changed since."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rstream import Bolt, Spout, Topology
from rstream.api import END, Share
from rstream.clock import ManualClock
from rstream.config import load
from rstream.core.savepoint import FORMAT
from rstream.errors import SavepointError, UsageError
from rstream.event_time import EventTime
from rstream.graph import Graph
from rstream.groupings import Custom
from rstream.operators import sinks, sources, windows
from rstream.runtime.embedded import Embedded
from rstream.state.parts import Part

NUMBERS = 600
Tasks = tuple[int, int, int]
PLACES: list[Tasks] = [(2, 3, 2), (1, 1, 1), (4, 2, 3)]


def started(graph: Graph, workers: int = 2, start_from: Path | None = None) -> Embedded:
    config = load(flags={"batch.max_tuples": 8}).config  # so that the sources are read in many steps
    host = Embedded(graph, config, workers, ManualClock(), str(start_from or ""))
    host.start()
    return host


def run_until(host: Embedded, done: Callable[[], bool]) -> None:
    while not done():
        if not host.turn():
            host.idle()


def saved(graph: Graph, place: Path, emitted: int = NUMBERS // 3) -> Embedded:
    """A host that has read that much and was saved then."""
    host = started(graph, workers=3)
    run_until(host, lambda: read_by(host) >= emitted)
    host.savepoint(str(place))
    host.validate()
    return host


def read_by(host: Embedded) -> int:
    return sum(source.counters.emitted for machine in host.machines.values() for source in machine.sources)


def finish(host: Embedded) -> Embedded:
    run_until(host, lambda: host.finished)
    return host


def first(pair: Any) -> Any:
    return pair[0]


def counting(tasks: Tasks = (2, 3, 2), name: str = "counts", step: str = "count") -> Graph:
    topology = Topology(name)
    numbers = topology.source("numbers", [n * n % 97 for n in range(NUMBERS)], parallelism=tasks[0])
    counts = numbers.key_by("n").count(step, parallelism=tasks[1])
    counts.key_by("key", first).sink("out", sinks.Latest(), parallelism=tasks[2])
    return topology.build()


TRUTH = dict(collections.Counter(n * n % 97 for n in range(NUMBERS)))


@pytest.mark.parametrize("tasks", PLACES)
def test_counts_go_on_exactly_at_any_parallelism_and_so_does_the_run_that_was_saved(
    tmp_path: Path, tasks: Tasks
) -> None:
    before = saved(counting(), tmp_path / "place")
    assert dict(before.results("out")) != TRUTH
    assert dict(finish(started(counting(tasks), start_from=tmp_path / "place")).results("out")) == TRUTH
    assert dict(finish(before).results("out")) == TRUTH


def test_a_savepoint_of_a_run_that_began_with_one_is_as_good(tmp_path: Path) -> None:
    saved(counting(), tmp_path / "one")
    host = started(counting((1, 2, 1)), start_from=tmp_path / "one")
    run_until(host, lambda: read_by(host) >= 100)
    host.savepoint(str(tmp_path / "two"))
    assert dict(finish(started(counting((3, 4, 2)), start_from=tmp_path / "two")).results("out")) == TRUTH


class Alarms(Bolt):
    """Emits a key 10 s after its first tuple, with how many came until then."""

    def open(self, ctx: Any) -> None:
        self.ctx = ctx
        self.count = ctx.state.value("count", default=0)

    def process(self, value: Any, out: Any) -> None:
        if self.count.get() == 0:
            self.ctx.set_timer(self.ctx.now() + 10.0, "over")
        self.count.set(self.count.get() + 1)

    def on_timer(self, name: str, out: Any) -> None:
        out.emit((self.ctx.state.current, self.count.get()))


@pytest.mark.parametrize("tasks", [2, 5])
def test_timers_that_were_set_before_fire_after_and_no_time_passes_while_it_is_saved(
    tmp_path: Path, tasks: int
) -> None:
    def alarms(tasks: int) -> Graph:
        topology = Topology("alarms")
        numbers = topology.source("numbers", sources.Rate(lambda n: n % 40, 20, 400))
        numbers.key_by("n").process("alarm", Alarms(), parallelism=tasks).sink("out")
        return topology.build()

    saved(alarms(2), tmp_path / "place", emitted=100)
    host = finish(started(alarms(tasks), start_from=tmp_path / "place"))
    # The clock of the second run begins anew, so its timers are due when the first run's were.
    assert {key for key, _ in host.results("out")} == set(range(40))


@pytest.mark.parametrize("tasks", PLACES)
def test_event_time_windows_have_every_tuple_once(tmp_path: Path, tasks: Tasks) -> None:
    def windowed(tasks: Tasks) -> Graph:
        topology = Topology("windowed")
        stamped = EventTime(lambda row: row[1], delay_s=2, every_s=0)
        items = [(n % 5, n / 10) for n in range(NUMBERS)]
        rows = topology.source("rows", items, parallelism=tasks[0], event_time=stamped)
        per_10_s = rows.key_by("k", first).window(windows.Tumbling(10.0), time=lambda row: row[1])
        per_10_s.count("count", parallelism=tasks[1]).sink("out", parallelism=tasks[2])
        return topology.build()

    saved(windowed((2, 3, 2)), tmp_path / "place")
    host = finish(started(windowed(tasks), start_from=tmp_path / "place"))
    expected = collections.Counter((n % 5, n // 100 * 10) for n in range(NUMBERS))
    assert sorted(host.results("out")) == sorted((k, at, at + 10, count) for (k, at), count in expected.items())


class Parts(Bolt):
    """Remembers each value in a part of its own."""

    def __init__(self) -> None:
        self.parts: dict[str, int] = {}

    def process(self, value: Any, out: Any) -> None:
        self.parts[str(value)] = self.parts.get(str(value), 0) + 1

    def on_end(self, out: Any) -> None:
        for part, count in self.parts.items():
            out.emit((part, count))

    def snapshot(self) -> Any:
        return [Part(name, count) for name, count in self.parts.items()]

    def restore(self, snapshot: Any) -> None:
        self.parts = {part.id: part.contents for part in snapshot}


class Whole(Parts):
    """The same as one value."""

    def snapshot(self) -> Any:
        return self.parts

    def restore(self, snapshot: Any) -> None:
        self.parts = snapshot


class Dealt(Whole):
    """The same, dealt out by itself."""

    def redeal(self, snapshots: Sequence[Any], share: Share) -> Any:
        merged: dict[str, int] = {}
        for each in snapshots:
            merged.update(each)
        return merged if share.task == 0 else {}


def own(bolt: Bolt, tasks: int) -> Graph:
    topology = Topology("own")
    numbers = topology.source("numbers", [n % 12 for n in range(NUMBERS)])
    # Each value always comes to the same task, so that parts are of one task each.
    numbers.grouped(Custom(lambda value, tasks: value % tasks)).process("keep", bolt, parallelism=tasks).sink("out")
    return topology.build()


@pytest.mark.parametrize(("bolt", "tasks"), [(Parts(), 2), (Whole(), 3), (Dealt(), 2), (Parts(), 3)])
def test_what_a_bolt_keeps_itself_is_dealt_out_by_its_parts_or_by_its_own_rule(
    tmp_path: Path, bolt: Bolt, tasks: int
) -> None:
    saved(own(bolt, 3), tmp_path / "place")
    results = finish(started(own(bolt, tasks), start_from=tmp_path / "place")).results("out")
    totals: collections.Counter[str] = collections.Counter()
    for part, count in results:
        totals[part] += count
    assert totals == {str(n): NUMBERS // 12 for n in range(12)}


def test_state_that_cannot_be_divided_is_refused_at_fewer_tasks(tmp_path: Path) -> None:
    saved(own(Whole(), 3), tmp_path / "place")
    with pytest.raises(SavepointError, match=r"step 'keep': .* cannot be divided .* start it with parallelism 3"):
        started(own(Whole(), 2), start_from=tmp_path / "place")


class Counter(Spout):
    """Numbers up to a limit, from a position on."""

    replayable = True

    def open(self, ctx: Any) -> None:
        self.n = 0

    def next_tuple(self, out: Any) -> object | None:
        if self.n == NUMBERS:
            return END
        out.emit(self.n % 97)
        self.n += 1
        return None

    def offset(self) -> Any:
        return self.n

    def seek(self, offset: Any) -> None:
        self.n = offset


def test_a_spout_goes_on_and_inputs_that_have_ended_stay_ended(tmp_path: Path) -> None:
    def build(spouts: int = 1) -> Graph:
        topology = Topology("spout")
        short = topology.source("short", [1, 2, 3])
        short.key_by("n").count("done").sink("over")
        topology.source("numbers", Counter(), parallelism=spouts).sink("out")
        return topology.build()

    saved(build(), tmp_path / "place")
    host = finish(started(build(), start_from=tmp_path / "place"))
    assert host.results("out") == [n % 97 for n in range(NUMBERS)]
    assert sorted(host.results("over")) == [(1, 1), (2, 1), (3, 1)]
    with pytest.raises(SavepointError, match="a spout has one position for each task"):
        started(build(2), start_from=tmp_path / "place")


def test_transactional_sinks_hold_every_record_once_over_both_runs(tmp_path: Path) -> None:
    def build() -> Graph:
        topology = Topology("lines")
        numbers = topology.source("numbers", range(NUMBERS), parallelism=2)
        numbers.sink("out", sinks.JsonLines(tmp_path / "out"), parallelism=2)
        return topology.build()

    host = saved(build(), tmp_path / "place")
    host.close()  # as `savepoint --stop` does: nothing is committed after the savepoint
    finish(started(build(), start_from=tmp_path / "place"))
    lines = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().split()]
    assert sorted(lines) == list(range(NUMBERS))


def test_a_new_step_starts_empty_and_one_without_state_may_go(tmp_path: Path) -> None:
    def build(doubled: bool) -> Graph:
        topology = Topology("changed")
        numbers = topology.source("numbers", [n % 10 for n in range(NUMBERS)])
        stream = numbers.map("double", lambda n: 2 * n) if doubled else numbers
        counts = stream.key_by("n").count("count")
        counts.sink("out", sinks.Latest())
        if not doubled:
            counts.sink("new")
        return topology.build()

    saved(build(True), tmp_path / "place")
    host = finish(started(build(False), start_from=tmp_path / "place"))
    assert sum(count for _, count in host.results("out")) == NUMBERS
    assert 0 < len(host.results("new")) < NUMBERS


def test_what_is_damaged_or_foreign_is_refused_with_the_reason(tmp_path: Path) -> None:
    place = tmp_path / "place"
    host = saved(counting(), place)

    def refusal(graph: Graph | None = None) -> str:
        with pytest.raises(SavepointError) as caught:
            started(graph or counting(), start_from=place)
        assert caught.value.exit_status == 2
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "it is one of topology 'counts', not of 'other'" in refusal(counting(name="other"))
    assert "holds state of step 'count', which the topology does not have" in refusal(counting(step="counter"))
    with pytest.raises(SavepointError, match="there is one already"):
        host.savepoint(str(place))

    state = next(place.glob("count-1.*"))
    content = state.read_bytes()
    state.write_bytes(content[:-5])
    assert f"file {state.name} has {len(content) - 5} bytes of {len(content)}" in refusal()
    state.write_bytes(content[:-5] + b"spoil")
    assert f"file {state.name}" in refusal()
    state.unlink()
    assert f"file {state.name} is missing" in refusal()

    manifest = place / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    assert f"it has format {FORMAT + 1}" in refusal()
    manifest.write_text(whole.replace('"count"', '"counted"'))
    assert "its checksum is wrong" in refusal()
    manifest.write_text(whole[:100])
    assert "not whole JSON" in refusal()
    manifest.write_text("{}")
    assert "is not one of rstream's" in refusal()
    manifest.unlink()
    assert "it is no savepoint, or was never completed" in refusal()


def test_a_finished_topology_and_a_wrong_place_are_refused(tmp_path: Path) -> None:
    host = finish(started(counting()))
    with pytest.raises(UsageError, match="there is nothing to save"):
        host.savepoint(str(tmp_path / "late"))
    with pytest.raises(SavepointError, match="not a place that can be used"):
        started(counting()).savepoint("nonsense://somewhere")
