"""Ticks, timers, occupied replicas and back-pressure, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from rstream import END, Bolt, Spout, Topology
from rstream.clock import ManualClock
from rstream.config import BatchConfig, Config
from rstream.core.bolt_task import BoltTask
from rstream.errors import OperatorError
from rstream.groupings import Key, Shuffle
from rstream.operators.sources import Rate
from rstream.runtime.embedded import Embedded
from rstream.testing import run


class Opened(Bolt):
    def open(self, ctx: Any) -> None:
        self.ctx = ctx


class CountPerTick(Opened):
    """How many values came between two ticks, with the time."""

    def open(self, ctx: Any) -> None:
        super().open(ctx)
        self.count = 0

    def process(self, value: Any, out: Any) -> None:
        self.count += 1

    def on_tick(self, out: Any) -> None:
        out.emit((self.ctx.now(), self.count))
        self.count = 0

    def on_end(self, out: Any) -> None:
        out.emit(("rest", self.count))


@pytest.mark.parametrize("workers", [1, 2])
def test_ticks_come_at_their_interval_while_the_stream_runs(workers: int) -> None:
    topology = Topology("ticks")
    topology.source("numbers", Rate(lambda n: n, per_s=100.0, limit=1000)).process(
        "per second", CountPerTick, tick_s=1.0
    ).sink("out", parallelism=2)
    came = run(topology, clock=ManualClock(5000.0), workers=workers)["out"]
    ticks = sorted(tick for tick in came if tick[0] != "rest")
    assert sum(count for _, count in came) == 1000
    assert 9 <= len(ticks) <= 10
    for number, (at_s, count) in enumerate(ticks, start=1):
        assert at_s == pytest.approx(5000.0 + number, abs=0.1)
        assert count == pytest.approx(100, abs=3)


class AlarmClock(Opened):
    """Sets timers for each (name, seconds) and says when they went off."""

    def process(self, value: tuple[str, float], out: Any) -> None:
        name, after_s = value
        self.ctx.set_timer(self.ctx.now() + after_s, name)

    def on_timer(self, name: str, out: Any) -> None:
        out.emit((name, round(self.ctx.now(), 2), self.ctx.state.current))


def alarms(pairs: list[tuple[str, float]], keyed: bool, wait_s: float = 100.0) -> list[Any]:
    topology = Topology("timers")
    kept_open = topology.source("wait", Rate(lambda n: ("end", 1e9), per_s=1 / wait_s, limit=1))
    stream = topology.source("pairs", pairs).merge("all", kept_open)
    grouped = stream.grouped(Key(lambda pair: pair[0][:1])) if keyed else stream
    grouped.process("alarm", AlarmClock).sink("out")
    return run(topology)["out"]


def test_timers_go_off_in_order_of_time_not_of_setting() -> None:
    came = alarms([("c", 30.0), ("a", 10.0), ("b", 20.0), ("again", 10.0)], keyed=False)
    assert came == [("a", 10.0, None), ("again", 10.0, None), ("b", 20.0, None), ("c", 30.0, None)]


def test_a_timer_on_a_keyed_stream_belongs_to_its_key() -> None:
    came = alarms([("x1", 5.0), ("y1", 7.0), ("x2", 9.0)], keyed=True)
    assert came == [("x1", 5.0, "x"), ("y1", 7.0, "y"), ("x2", 9.0, "x")]


def test_a_timer_in_the_past_goes_off_at_once() -> None:
    assert alarms([("late", -50.0)], keyed=False)[0][0] == "late"


def test_timers_that_are_not_due_at_the_end_do_not_keep_the_stream_alive() -> None:
    assert alarms([("far", 1e6)], keyed=False) == []


class Slow(Opened):
    """Takes `ms` for each value; says when it was done with it."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def process(self, value: Any, out: Any) -> None:
        self.ctx.occupy(self.ms)
        out.emit((value, self.ctx.task))

    def results(self) -> list[Any]:
        return []


def test_an_occupied_replica_has_the_capacity_that_its_time_gives() -> None:
    for replicas in (1, 4):
        clock = ManualClock()
        topology = Topology("capacity")
        topology.source("numbers", range(400)).grouped(Shuffle()).process(
            "slow", Slow(100.0), parallelism=replicas
        ).sink("out")
        came = run(topology, clock=clock)["out"]
        assert sorted(value for value, _ in came) == list(range(400))
        assert clock.now() == pytest.approx(40.0 / replicas, rel=0.02)


def test_an_occupied_replica_does_not_hold_up_the_others_of_its_worker() -> None:
    clock = ManualClock()
    topology = Topology("others")
    numbers = topology.source("numbers", range(10))
    numbers.process("slow", Slow(10_000.0)).sink("slow out")
    done_s: list[float] = []
    numbers.process("quick", lambda value, out: done_s.append(clock.now()))
    host = Embedded(topology.build(), clock=clock)
    host.run()
    assert max(done_s) < 0.1
    assert clock.now() >= 100.0


def test_a_tick_that_falls_due_while_a_replica_is_occupied_waits_without_spinning() -> None:
    clock = ManualClock()
    topology = Topology("both")
    topology.source("numbers", range(3)).process("slow", Slow(60_000.0), tick_s=0.5).sink("out")
    host = Embedded(topology.build(), clock=clock)
    host.start()
    turns = 0
    while not host.finished:
        turns += 1
        if not host.turn():
            host.idle()
    assert turns < 100
    assert clock.now() == pytest.approx(180.0, abs=1.0)


def test_the_output_of_an_occupied_step_leaves_when_its_time_is_over() -> None:
    clock = ManualClock()
    topology = Topology("held")
    topology.source("one", ["x"]).process("slow", Slow(5_000.0)).sink("out")
    host = Embedded(topology.build(), clock=clock)
    host.start()
    while clock.now() < 4.9:
        host.turn()
        assert host.results() == []
        clock.advance(0.1)
    clock.advance(0.2)
    for _ in range(5):
        host.turn()
    assert host.results() == [("x", 0)]
    host.close()


# Back-pressure.


class SlowSink(Slow):
    def __init__(self, ms: float) -> None:
        super().__init__(ms)
        self.values: list[Any] = []

    def process(self, value: Any, out: Any) -> None:
        self.ctx.occupy(self.ms)
        self.values.append(value)

    def results(self) -> list[Any]:
        return self.values


def held_tuples(host: Embedded) -> int:
    """Every tuple that is queued, on its way or retained, anywhere."""
    queued = pending = retained = 0
    for machine in host.machines.values():
        for task in machine.tasks:
            if isinstance(task, BoltTask):
                queued += sum(channel.recv - channel.cons for channel in task.in_channels.values())
            for channel in task.out_channels:
                pending += len(channel.pending)
                retained += channel.next - channel.base
    return queued + pending + retained


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_sink_100_times_slower_than_its_source_holds_memory_flat_and_loses_nothing(workers: int) -> None:
    tuples, window, batch = 3000, 100, 50
    clock = ManualClock()
    topology = Topology("pressure")
    source = topology.source("numbers", Rate(lambda n: n, per_s=10_000.0, limit=tuples))
    source.map("pass", abs).sink("slow", SlowSink(10.0))  # 100 a second
    host = Embedded(
        topology.build(), Config(batch=BatchConfig(window=window, max_tuples=batch)), workers=workers, clock=clock
    )
    host.start()
    most = 0
    while not host.finished:
        if not host.turn():
            host.idle()
        most = max(most, held_tuples(host))
        host.validate()
    # Two edges, each with a window and one step's output beyond it, queued and retained; batches are let go whole.
    assert most <= 2 * (2 * (window + batch) + batch)
    assert host.results() == list(range(tuples))
    assert clock.now() == pytest.approx(30.0, rel=0.02)


def test_large_tuples_are_bounded_by_their_bytes() -> None:
    topology = Topology("bytes")
    topology.source("blobs", lambda: (bytes(10_000) for _ in range(300))).sink("slow", SlowSink(1.0))
    host = Embedded(topology.build(), Config(batch=BatchConfig(window_bytes=100_000)), clock=ManualClock())
    host.start()
    most = 0
    while not host.finished:
        if not host.turn():
            host.idle()
        channels = [
            channel for machine in host.machines.values() for task in machine.tasks for channel in task.out_channels
        ]
        most = max(most, sum(channel.bytes_retained for channel in channels))
    assert most <= 100_000 + 16 * 10_100  # a read may begin just below the bound, and the first one has 16 tuples
    assert len(host.results()) == 300


def test_max_pending_bounds_what_a_source_has_under_way() -> None:
    topology = Topology("pending")
    source = topology.source("numbers", range(200), max_pending=5)
    source.process("slow", Slow(10.0)).sink("out")
    host = Embedded(topology.build(), clock=ManualClock())
    host.start()
    while not host.finished:
        if not host.turn():
            host.idle()
        for machine in host.machines.values():
            for task in machine.sources:
                assert sum(channel.outstanding for channel in task.out_channels) <= 6  # the end is an element too
    assert [value for value, _ in host.results()] == list(range(200))


# Slow and broken user code is told of.


class Stuck(Bolt):
    """Moves the clock on itself, as a call that blocks would."""

    clock = ManualClock()

    def process(self, value: Any, out: Any) -> None:
        self.clock.advance(3.0)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_call_that_takes_long_is_named_with_the_remedy_unless_it_is_marked(blocking: bool) -> None:
    Stuck.clock = ManualClock()
    topology = Topology("stuck")
    topology.source("one", [1]).process("call", Stuck, blocking=blocking).sink("out")
    host = Embedded(topology.build(), clock=Stuck.clock)
    host.run()
    causes = [(str(complaint.task), complaint.cause) for complaint in host.complaints]
    if blocking:
        assert causes == []
    else:
        [(task, cause)] = causes
        assert task == "call#0"
        assert cause.startswith(
            "slow call: 3000 ms for 1 tuple, and every task of this worker waited; mark the step bl"
        )


def test_a_skipped_tuple_is_told_of_with_its_value_and_traceback() -> None:
    topology = Topology("skip")
    topology.source("numbers", [1, 0]).map("inverse", lambda n: 1 / n, on_error="skip").sink("out")
    host = Embedded(topology.build(), clock=ManualClock())
    host.run()
    [complaint] = host.complaints
    assert (str(complaint.task), complaint.cause, complaint.value) == (
        "inverse#0",
        "ZeroDivisionError: division by zero",
        "0",
    )
    assert "lambda n: 1 / n" in complaint.traceback
    [task] = [task for machine in host.machines.values() for task in machine.tasks if task.id.operator == "inverse"]
    assert (task.counters.failed, task.counters.processed, task.counters.emitted) == (1, 2, 1)


def test_what_is_kept_of_complaints_is_bounded() -> None:
    topology = Topology("many")
    topology.source("numbers", [0] * 500).map("inverse", lambda n: 1 / n, on_error="skip").sink("out")
    host = Embedded(topology.build(), Config(errors_max=7), clock=ManualClock())
    host.run()
    assert len(host.complaints) == 7


class Boom(Spout):
    def next_tuple(self, out: Any) -> object:
        raise ValueError("no more water")


class Quiet(Spout):
    """Has nothing at first."""

    def open(self, ctx: Any) -> None:
        self.ctx, self.calls, self.start_s = ctx, 0, ctx.now()

    def next_tuple(self, out: Any) -> object:
        self.calls += 1
        if self.ctx.now() - self.start_s < 60.0:
            return None
        out.emit(self.calls)
        return END


def test_a_spout_with_nothing_to_say_is_asked_again_after_a_pause() -> None:
    topology = Topology("quiet")
    topology.spout("quiet", Quiet()).sink("out")
    [calls] = run(topology)["out"]
    assert 5_000 <= calls <= 6_100


def test_a_failing_spout_names_its_step() -> None:
    topology = Topology("boom")
    topology.spout("well", Boom(), parallelism=2).sink("out")
    with pytest.raises(OperatorError, match=r"step 'well', task [01]: ValueError: no more water"):
        run(topology)


class Open(Bolt):
    """Notes that it was opened and closed."""

    log: list[str] = []  # noqa: RUF012 - shared by all copies on purpose

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def open(self, ctx: Any) -> None:
        if self.fails:
            raise ValueError("cannot open")
        self.log.append(f"open {ctx.step}")
        self.name = ctx.step

    def process(self, value: Any, out: Any) -> None:
        out.emit(1 / value)

    def close(self) -> None:
        self.log.append(f"close {self.name}")


@pytest.mark.parametrize("fails", [True, False])
def test_whatever_was_opened_is_closed_when_the_topology_fails(fails: bool) -> None:
    Open.log.clear()
    topology = Topology("close")
    topology.source("zero", [0]).process("first", Open).process("second", Open(fails)).sink("out")
    with pytest.raises(OperatorError):
        run(topology)
    opened = [line.split()[1] for line in Open.log if line.startswith("open")]
    closed = [line.split()[1] for line in Open.log if line.startswith("close")]
    assert opened == (["first"] if fails else ["first", "second"])
    assert sorted(closed) == sorted(opened)
