"""The conformance kit for bolts: what exact recovery and rescaling rely on.

`check_operator(make, inputs)` builds bolts with `make()`, feeds them the inputs in ever different ways, and raises an
AssertionError that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import cloudpickle

from rstream import values
from rstream.api import DEAD_LETTERS, Bolt, Context
from rstream.core.channel import TaskId
from rstream.core.context import Collector, TaskContext
from rstream.core.logic import make_run
from rstream.event_time import AFTER_ALL

Make = Callable[[], Bolt]
Emitted = list[tuple[str, Any]]

CUTS = (1, 2, 3, 7)
START_S = 1_700_000_000.0
RESULTS = "results()"
"""What a collecting sink holds at the end counts as emitted there."""


def check_operator(
    make: Make,
    inputs: Iterable[Any],
    *,
    key: Callable[[Any], Any] | None = None,
    keyed: bool = False,
    outputs: Sequence[str] = (),
    recovers: bool = True,
) -> None:
    """Run every check against the bolts that `make()` gives.

    `keyed` is for bolts that run on a keyed stream, with `key` as the key function or the value as its own key;
    `outputs` are the declared side outputs. Ticks, timers and event timers come as time passes, where the bolt has any.
    `recovers=False` leaves out the checks that a recovery brings back what a bolt remembers, by `ctx.state` or by
    `snapshot` and `restore`: right for sinks that remember nothing, wrong for bolts whose results must survive a crash.

    >>> from rstream.operators.transforms import Count
    >>> check_operator(Count, ["a", "b", "a"], keyed=True)
    """
    items = list(inputs)
    trial = _Trial(make, key, keyed or key is not None)
    whole = trial.run([items])
    _same(trial.run([items]), whole, "the same input gives the same output")
    for size in CUTS:
        came = trial.run([items[start : start + size] for start in range(0, len(items), size)])
        _same(came, whole, f"batches of {size} give the same output")
    travelled = _Trial(lambda: cloudpickle.loads(cloudpickle.dumps(make())), key, trial.keyed)
    _same(travelled.run([items]), whole, "the bolt gives the same output on another worker")
    for output, value in whole:
        values.encode([value])  # raises with the type where one cannot travel
        if output not in ("default", DEAD_LETTERS, RESULTS, *outputs):
            raise AssertionError(f"operator: emitted to output {output!r}, which is not declared")
    if recovers:
        for stop in sorted({1, len(items) // 2, len(items) - 1} & set(range(1, len(items)))):
            _same(trial.run_with_recovery(items, stop), whole, f"the output after a recovery at tuple {stop}")
    timeline = _timeline(items)
    timed = trial.run_timed(timeline)
    _same(trial.run_timed(timeline), timed, "the same input at the same times gives the same output")
    if recovers:
        for stop in range(1, len(timeline)):
            what = f"the output after a recovery at {timeline[stop].at_s - START_S:g} s"
            _same(trial.run_timed(timeline, stop), timed, what)


@dataclass(frozen=True, slots=True)
class _Moment:
    """Some values at a time; none where only time has passed."""

    at_s: float
    values: list[Any]


def _timeline(items: list[Any]) -> list[_Moment]:
    """The input in four parts, a second apart, and then hours in which nothing comes."""
    size = max(1, -(-len(items) // 4))
    parts = [items[start : start + size] for start in range(0, len(items), size)]
    moments = [_Moment(START_S + second, part) for second, part in enumerate(parts)]
    return [*moments, *(_Moment(START_S + 10.0**power, []) for power in range(1, 5))]


class _Trial:
    """Runs fresh bolts over batches, one step a batch, as a task would."""

    def __init__(self, make: Make, key: Callable[[Any], Any] | None, keyed: bool) -> None:
        self.make, self.key, self.keyed = make, key, keyed

    def run(self, batches: Sequence[list[Any]]) -> Emitted:
        """What a bolt emits for these batches and the end."""
        life = _Life(self)
        emitted = [each for batch in batches for each in life.feed(batch)]
        return emitted + life.end()

    def run_with_recovery(self, items: list[Any], stop: int) -> Emitted:
        """The same, with a crash after `stop` values: another instance goes on from the first one's snapshot."""
        before = _Life(self)
        emitted = before.feed(items[:stop])
        after = _Life(self, before.snapshot())
        return emitted + after.feed(items[stop:]) + after.end()

    def run_timed(self, moments: Sequence[_Moment], crash: int = 0) -> Emitted:
        """What comes of a timeline; with a crash before one of its moments, unless that is the first."""
        life = _Life(self)
        emitted: Emitted = []
        for number, moment in enumerate(moments):
            if crash and number == crash:
                life = _Life(self, life.snapshot())
            emitted += life.feed(moment.values, moment.at_s) if moment.values else []
            emitted += life.pass_time(moment.at_s + 0.5)
        return emitted + life.end(moments[-1].at_s + 1.0)


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a snapshot has: the entries of `ctx.state`, and what the bolt gave itself."""

    entries: list[Any]
    own: bytes


class _Life:
    """One instance of a bolt from its `open` on."""

    def __init__(self, trial: _Trial, saved: _Saved | None = None) -> None:
        self.bolt = trial.make()
        self.ctx = TaskContext("check", TaskId("step", 0), 1, {}, trial.key, seed=0)
        self.ctx.state.restore(saved.entries if saved is not None else ())
        self.ctx.adopt_timers()
        self.out = Collector()
        self.ctx.begin_step(0.0, 0)
        self.bolt.open(cast(Context, self.ctx))
        own = values.decode_one(saved.own) if saved is not None else None
        if own is not None:
            self.bolt.restore(own)
        self._run = make_run(self.bolt, self.out, self.ctx, trial.keyed, "fail", lambda *_: None)

    def snapshot(self) -> _Saved:
        """Everything that a recovery brings back; raises where a value of it cannot travel."""
        cut = self.ctx.state.begin_snapshot(full=True)
        entries: list[Any] = []
        while (some := cut.next_slice(1000)) is not None:
            entries += deepcopy(some)
        return _Saved(entries, values.encode_one(self.bolt.snapshot()))

    def feed(self, batch: list[Any], now_s: float = 0.0) -> Emitted:
        self.ctx.begin_step(now_s, 0)
        self._run(deepcopy(batch))
        return self._emitted()

    def pass_time(self, now_s: float) -> Emitted:
        """Every timer that is due by now, each in a step of its own, and a tick."""
        while (timer := self.ctx.timers.pop_due(now_s)) is not None:
            self.ctx.begin_step(now_s, 0)
            self.ctx.state.current = timer.key
            self.bolt.on_timer(timer.name, self.out)
        self.ctx.begin_step(now_s, 0)
        self.bolt.on_tick(self.out)
        return self._emitted()

    def end(self, now_s: float = 0.0) -> Emitted:
        self.ctx.begin_step(now_s, 0)
        self.ctx.watermark_s = AFTER_ALL
        while (timer := self.ctx.event_timers.pop_due(AFTER_ALL)) is not None:
            self.ctx.state.current = timer.key
            self.bolt.on_event_timer(timer.at_s, timer.name, self.out)
        self.bolt.on_watermark(AFTER_ALL, self.out)
        self.bolt.on_end(self.out)
        self.bolt.close()
        results = getattr(self.bolt, "results", None)
        return self._emitted() + ([] if results is None else [(RESULTS, deepcopy(results()))])

    def _emitted(self) -> Emitted:
        """By output; what went to one output stays in order, and so it is compared."""
        emitted = [("default", deepcopy(value)) for value in self.out.buffer]
        emitted += [(output, deepcopy(value)) for output, side in self.out.sides.items() for value in side]
        emitted += [(output, deepcopy((task, value))) for output, task, value in self.out.direct]
        self.out.clear()
        return emitted


def _same(came: Emitted, wanted: Emitted, what: str) -> None:
    outputs = dict.fromkeys(output for output, _ in (*wanted, *came))
    for output in outputs:
        left = [value for name, value in came if name == output]
        right = [value for name, value in wanted if name == output]
        if left != right:
            raise AssertionError(f"operator: {what}: wanted {right!r:.300}, got {left!r:.300} on {output!r}")
