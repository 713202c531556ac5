"""What a bolt is handed: its context, and the collector of what it emits."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rstream import values as codec
from rstream.api import DEFAULT_OUTPUT
from rstream.core.channel import TaskId
from rstream.event_time import BEFORE_ALL
from rstream.keys import SLOTS, slot_of
from rstream.state.keyed import KeyedState
from rstream.state.timers import EVENT_TIMERS, Timers


def fixed(value: Any) -> Any:
    """The value in a form that whoever emitted it cannot change any more; a copy where it could be changed."""
    if type(value) in codec.ATOMS or codec.kind_of([value]) == codec.FLAT:
        return value
    kind, body = codec.encode([value])
    return codec.decode(kind, 1, body)[0] if kind == codec.GENERAL else value


class Collector:
    """Gathers what a step emits.

    A bolt may go on changing a list after it has emitted it, so such values are copied at once. That costs a call for
    each value; once a step's output has turned out to hold nothing that can be changed, `fast` makes `emit` and
    `extend` those of the list itself, the cheapest there is, until a value comes that can be changed.
    """

    __slots__ = ("buffer", "careful", "direct", "emit", "extend", "flat", "sides")

    def __init__(self) -> None:
        self.buffer: list[Any] = []
        self.flat = 0
        """So many values at the start of `buffer` are known to be flat tuples."""
        self.emit: Callable[[Any], None]
        self.extend: Callable[[Any], None]
        self.sides: dict[str, list[Any]] = {}
        self.direct: list[tuple[str, int, Any]] = []
        self.go_careful()

    def go_careful(self) -> None:
        """Copy at once what could be changed after it was emitted."""
        append, extend = self.buffer.append, self.buffer.extend
        self.careful = True
        self.emit = lambda value: append(fixed(value))
        self.extend = lambda values: extend(map(fixed, values))

    def go_fast(self) -> None:
        """Take values as they are."""
        self.careful = False
        self.emit, self.extend = self.buffer.append, self.buffer.extend

    def extend_pairs(self, lefts: Sequence[Any], rights: Sequence[Any]) -> None:
        """Emit pairs; two lists of one type each are looked at in half the time that their pairs would take."""
        pairs = list(zip(lefts, rights, strict=True))
        if self.flat == len(self.buffer) and codec.kind_of(lefts) == codec.PLAIN == codec.kind_of(rights):
            self.buffer += pairs
            self.flat += len(pairs)
        else:
            self.extend(pairs)

    def emit_to(self, output: str, value: Any) -> None:
        """Emit on a side output; on the default one too, by its name."""
        if output == DEFAULT_OUTPUT:
            self.emit(value)
        else:
            self.sides.setdefault(output, []).append(fixed(value))

    def emit_direct(self, task: int, value: Any, output: str = DEFAULT_OUTPUT) -> None:
        """Emit to one task of the direct receivers of an output."""
        self.direct.append((output, task, fixed(value)))

    def count(self) -> int:
        """How many values were emitted, on all outputs together."""
        sides = sum(map(len, self.sides.values())) if self.sides else 0
        return len(self.buffer) + len(self.direct) + sides

    def mark(self) -> tuple[int, dict[str, int], int]:
        """Where the collector stands, for `rollback`."""
        return len(self.buffer), {output: len(side) for output, side in self.sides.items()}, len(self.direct)

    def rollback(self, mark: tuple[int, dict[str, int], int]) -> None:
        """Forget what was emitted since a mark."""
        emitted, sides, direct = mark
        del self.buffer[emitted:]
        self.flat = min(self.flat, emitted)
        for output, side in self.sides.items():
            del side[sides.get(output, 0) :]
        del self.direct[direct:]

    def clear(self) -> None:
        """Forget everything."""
        self.buffer.clear()
        self.flat = 0
        self.sides.clear()
        self.direct.clear()


class KeyOfInput:
    """The key function of a bolt whose inputs are keyed differently: that of the edge which the step reads."""

    __slots__ = ("by_edge", "current")

    def __init__(self, by_edge: Mapping[int, Callable[[Any], Any] | None]) -> None:
        self.by_edge = dict(by_edge)
        self.current: Callable[[Any], Any] | None = None

    def __call__(self, value: Any) -> Any:
        return value if self.current is None else self.current(value)


def fresh_state() -> KeyedState:
    """Keyed state with nothing in it."""
    return KeyedState(slot_of)


class TaskMetrics:
    """A task's own counters and gauges."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def count(self, name: str, by: float = 1.0) -> None:
        """Add to a counter."""
        self.values[name] = self.values.get(name, 0.0) + by

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        self.values[name] = value


class TaskContext:
    """The `Context` of one task. The engine moves `now_s` and `position` before each step."""

    def __init__(
        self,
        topology: str,
        task: TaskId,
        parallelism: int,
        config: Mapping[str, Any],
        key_of: Callable[[Any], Any] | None,
        seed: int,
        state: KeyedState | None = None,
        run: str = "",
    ) -> None:
        self.run = run
        self.topology, self.step, self.task = topology, task.operator, task.number
        self.parallelism, self.config, self.key_of = parallelism, config, key_of
        self.logger = logging.LoggerAdapter(
            logging.getLogger(f"rstream.{topology}.{task.operator}"), {"task": task.number}
        )
        self.metrics = TaskMetrics()
        self.state = fresh_state() if state is None else state
        self.now_s = 0.0
        self.position = 0
        self.occupied_ms = 0.0
        self.watermark_s = BEFORE_ALL
        self.timers = Timers(self.state)
        self.event_timers = Timers(self.state, EVENT_TIMERS)
        self.draws_from = 0
        """So many steps were taken before the savepoint that this run began with: randomness goes on from there."""
        self._seed = seed
        self._random: random.Random | None = None

    def begin_step(self, now_s: float, position: int) -> None:
        """A step begins: its clock reading and its place in the order of steps."""
        self.now_s = self.state.now_s = now_s
        self.position = position
        self._random = None

    def now(self) -> float:
        """The step's clock reading."""
        return self.now_s

    def random(self) -> random.Random:
        """Randomness that depends on the task and the step alone."""
        if self._random is None:
            self._random = random.Random(f"{self._seed}/{self.step}/{self.task}/{self.draws_from + self.position}")
        return self._random

    def occupy(self, ms: float) -> None:
        """Hold this replica busy; the engine releases the step's output when the time is over."""
        self.occupied_ms += ms

    def set_timer(self, at_s: float, name: str = "") -> None:
        """Call `on_timer` when due, for the current key."""
        self.timers.set(self.state.current, at_s, name)

    def watermark(self) -> float:
        """The task's watermark."""
        return self.watermark_s

    def set_event_timer(self, at_s: float, name: str = "") -> None:
        """Call `on_event_timer` when the watermark is there, for the current key."""
        self.event_timers.set(self.state.current, at_s, name)

    def cancel_event_timer(self, at_s: float, name: str = "") -> None:
        """Take an event timer of the current key back."""
        self.event_timers.cancel(self.state.current, at_s, name)

    def adopt_timers(self, lo: int = 0, hi: int = SLOTS) -> None:
        """Find the timers that came with restored state or with a range of slots."""
        self.timers.adopt(lo, hi)
        self.event_timers.adopt(lo, hi)
