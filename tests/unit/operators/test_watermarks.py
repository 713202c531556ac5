"""Watermarks: the least over a task's inputs, idle ones left out, in-band and never going back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rstream import Bolt, Topology
from rstream.api import Context, Out
from rstream.clock import ManualClock
from rstream.core.event_time import InputTime
from rstream.errors import TopologyError
from rstream.event_time import EventTime
from rstream.groupings import Shuffle
from rstream.operators.sources import Rate
from rstream.operators.windows import Tumbling
from rstream.testing import run
from tests.windows_kit import at_s, check_exact, events, key_of


class Watermarks(Bolt):
    """Says where the watermark stands, whenever it moves."""

    def open(self, ctx: Context) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Out) -> None:
        pass

    def on_watermark(self, at_s: float, out: Out) -> None:
        assert at_s == self.ctx.watermark()
        out.emit(at_s)


def test_it_is_the_least_of_all_inputs_and_trails_by_the_delay() -> None:
    topology = Topology("least")
    slow = topology.source("slow", [1, 2, 3], max_pending=1, event_time=EventTime(int, every_s=0.0))
    fast = topology.source("fast", [10, 20, 30], max_pending=1, event_time=EventTime(int, delay_s=5, every_s=0.0))
    slow.merge("both", fast).process("watch", Watermarks).sink("out")
    came = run(topology)["out"]
    assert came == sorted(set(came))
    assert came[:1] == [1]
    assert came[-1] == float("inf")
    assert set(came) <= {1, 2, 3, 5, 15, 25, float("inf")}


def test_an_input_that_brings_nothing_is_waited_for_without_an_idle_time() -> None:
    assert watched(idle_s=None) == [0.0, float("inf")]  # the quiet one speaks last


def test_an_input_that_brings_nothing_is_left_out_after_the_idle_time() -> None:
    came = watched(idle_s=1.0)
    assert came[-1] == float("inf")
    assert came == sorted(came)
    assert 3.0 <= came[-2] <= 4.0  # the busy input's watermark goes on to its end
    assert len(came) > 3


def watched(idle_s: float | None) -> list[float]:
    """A busy input of four seconds beside one that first speaks after five."""
    clock = ManualClock(0.0)
    topology = Topology("idle")
    busy = topology.source("busy", Rate(lambda n: n / 10, per_s=10, limit=40), event_time=EventTime(float, every_s=0.1))
    quiet = topology.source("quiet", Rate(lambda n: n * 1.0, per_s=0.2, limit=1))
    stamped = quiet.event_time("stamp", float, idle_s=idle_s, every_s=0.1)
    busy.merge("both", stamped).process("watch", Watermarks).sink("out")
    came: list[float] = run(topology, clock=clock)["out"]
    return came


def test_a_source_that_brings_nothing_is_left_out_too() -> None:
    topology = Topology("idle")
    busy = topology.source("busy", Rate(lambda n: n / 10, per_s=10, limit=40), event_time=EventTime(float, every_s=0.1))
    stamp = EventTime(float, idle_s=1.0, every_s=0.1)
    quiet = topology.source("quiet", Rate(lambda n: 100.0, per_s=0.2, limit=1), event_time=stamp)
    busy.merge("both", quiet).map("same", float).process("watch", Watermarks).sink("out")
    came = run(topology, clock=ManualClock(0.0))["out"]
    assert came == sorted(came)
    assert len([at for at in came if 0 < at < 4]) > 3


class Sum(Bolt):
    """A bolt of a user's own with event timers: the sum of a key's numbers, told every ten seconds of event time."""

    def open(self, ctx: Context) -> None:
        self.ctx = ctx
        self.sum = ctx.state.value("sum", default=0)

    def process(self, value: Any, out: Out) -> None:
        if not self.sum.get():
            self.ctx.set_event_timer(value[1] // 50 * 50 + 50, "tell")
        self.sum.set(self.sum.get() + 1)

    def on_event_timer(self, at_s: float, name: str, out: Out) -> None:
        assert name == "tell"
        out.emit((self.ctx.state.current, self.sum.get()))
        self.sum.clear()


def test_event_timers_of_a_users_own_bolt_survive_kills() -> None:
    """The first fifty seconds of each key, told once the watermark is there; all values are of that time."""
    items = events(count=200, span_s=49, seed=8)
    totals: dict[str, int] = {}
    for key, _, _ in items:
        totals[key] = totals.get(key, 0) + 1
    check_exact(
        items,
        lambda stream: (
            stream.grouped(Shuffle()).map("m", same).key_by("key", key_of).process("sum", Sum, parallelism=2)
        ),
        list(totals.items()),
    )


def same(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    "options", [{"delay_s": -1}, {"idle_s": 0}, {"every_s": -0.1}, {"time": "at"}], ids=lambda o: next(iter(o))
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match="event time"):
        EventTime(**{"time": int, **options})


def test_a_watermark_that_overtakes_keys_on_the_move_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sender says behind the mark of a change must not close windows that are still to be handed over."""
    monkeypatch.setattr(InputTime, "marked", lambda self, lane, version: None)
    items = events(count=200, seed=5)
    wanted = Counter((key, at // 100 * 100) for key, at, _ in items)
    with pytest.raises(AssertionError, match="rescaled"):
        check_exact(
            items,
            lambda stream: stream.key_by("key", key_of).window(Tumbling(100), time=at_s).count("count", parallelism=2),
            [(key, start, start + 100, n) for (key, start), n in wanted.items()],
        )
