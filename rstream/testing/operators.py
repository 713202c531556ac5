"""The conformance kit for bolts: what exact recovery and rescaling rely on.

`check_operator(make, inputs)` builds bolts with `make()`, feeds them the inputs in ever different ways, and raises an
AssertionError that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, cast

import cloudpickle

from rstream import values
from rstream.api import DEAD_LETTERS, Bolt, Context
from rstream.core.channel import TaskId
from rstream.core.context import Collector, TaskContext
from rstream.core.logic import make_run

Make = Callable[[], Bolt]
Emitted = list[tuple[str, Any]]

CUTS = (1, 2, 3, 7)


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
    `outputs` are the declared side outputs. `recovers=False` leaves out the check that all that a bolt remembers is in
    `ctx.state`: right for sinks, wrong for bolts whose results must survive a crash.

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
        if output not in ("default", DEAD_LETTERS, *outputs):
            raise AssertionError(f"operator: emitted to output {output!r}, which is not declared")
    if recovers:
        for stop in sorted({1, len(items) // 2, len(items) - 1} & set(range(1, len(items)))):
            _same(trial.run_with_recovery(items, stop), whole, f"the output after a recovery at tuple {stop}")


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
        cut = before.ctx.state.begin_snapshot(full=True)
        entries: list[Any] = []
        while (some := cut.next_slice(1000)) is not None:
            entries += deepcopy(some)
        after = _Life(self, entries)
        return emitted + after.feed(items[stop:]) + after.end()


class _Life:
    """One instance of a bolt from its `open` on."""

    def __init__(self, trial: _Trial, entries: Sequence[Any] = ()) -> None:
        self.bolt = trial.make()
        self.ctx = TaskContext("check", TaskId("step", 0), 1, {}, trial.key, seed=0)
        self.ctx.state.restore(entries)
        self.out = Collector()
        self.ctx.begin_step(0.0, 0)
        self.bolt.open(cast(Context, self.ctx))
        self._run = make_run(self.bolt, self.out, self.ctx, trial.keyed, "fail", lambda *_: None)

    def feed(self, batch: list[Any]) -> Emitted:
        self.ctx.begin_step(0.0, 0)
        self._run(deepcopy(batch))
        return self._emitted()

    def end(self) -> Emitted:
        self.ctx.begin_step(0.0, 0)
        self.bolt.on_end(self.out)
        self.bolt.close()
        return self._emitted()

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
