"""Bolts, spouts and functions of the behavioural suite: at module level, so that they travel to workers by name."""

from __future__ import annotations

import functools
import socket
import threading
from collections import Counter
from typing import Any

from rstream import END, Bolt, Spout


def first(pair: Any) -> Any:
    return pair[0]


def second(pair: Any) -> Any:
    return pair[1]


def key_of_tagged(tagged: Any) -> Any:
    """Of (task, (number, key, value))."""
    return tagged[1][1]


def by_length(word: str, tasks: int) -> int:
    return len(word) % tasks


def to_first_and_last(word: str, tasks: int) -> list[int]:
    return sorted({0, tasks - 1})


def to_nobody(word: str, tasks: int) -> list[int]:
    return []


def out_of_range(word: str, tasks: int) -> int:
    return tasks


class Tag(Bolt):
    """(task, value) for each value."""

    def open(self, ctx: Any) -> None:
        self.task = ctx.task

    def process(self, value: Any, out: Any) -> None:
        out.emit((self.task, value))


class CountTask(Bolt):
    """(task, how many values it got), once at the end."""

    def open(self, ctx: Any) -> None:
        self.task, self.count = ctx.task, 0

    def process_batch(self, values: list[Any], out: Any) -> None:
        self.count += len(values)

    def on_end(self, out: Any) -> None:
        out.emit((self.task, self.count))


class CountWords(Bolt):
    """(word, n) of the words that this task got, at the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def process_batch(self, values: list[str], out: Any) -> None:
        self.counts.update(values)

    def on_end(self, out: Any) -> None:
        out.extend(sorted(self.counts.items()))


class AddUp(Bolt):
    """(word, sum) of pairs (word, n), at the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, value: tuple[str, int], out: Any) -> None:
        self.counts[value[0]] += value[1]

    def on_end(self, out: Any) -> None:
        out.extend(sorted(self.counts.items()))


class SumByKey(Bolt):
    """(key, running sum) in keyed state; the number is the value's last part."""

    def open(self, ctx: Any) -> None:
        self.state, self.sum = ctx.state, ctx.state.value("sum", default=0)

    def process(self, value: Any, out: Any) -> None:
        self.sum.set(self.sum.get() + value[-1])
        out.emit((self.state.current, self.sum.get()))


class SendDirect(Bolt):
    """Each (task, value) to that task, and the value with its task on the default output too."""

    def process(self, value: tuple[int, Any], out: Any) -> None:
        out.emit_direct(value[0], value)


class Spoil(Bolt):
    """Changes what it gets, and passes it on under its task's number."""

    def open(self, ctx: Any) -> None:
        self.task = ctx.task

    def process(self, value: Any, out: Any) -> None:
        value["list"].append(f"spoilt by {self.task}")
        value["dict"][self.task] = True
        value["set"].add(self.task)
        out.emit((self.task, value))


class SpoilBatch(Bolt):
    """Empties the very list that it was handed."""

    def process_batch(self, values: list[Any], out: Any) -> None:
        while values:
            out.emit(values.pop(0))


class EmitThenChange(Bolt):
    """Goes on changing what it has emitted."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process(self, value: Any, out: Any) -> None:
        self.seen.append(value)
        out.emit(self.seen)
        out.emit_to("side", self.seen)
        self.seen.append("after")


class Sides(Bolt):
    """Odd numbers to `odd`, multiples of three to `three`, everything to the default output."""

    def process(self, value: int, out: Any) -> None:
        out.emit(value)
        if value % 2:
            out.emit_to("odd", value)
        if value % 3 == 0:
            out.emit_to("three", value)


class EmitTo(Bolt):
    """To an output named by the value."""

    def process(self, value: str, out: Any) -> None:
        out.emit_to(value, value)


class Inverse(Bolt):
    """100 / value, with something emitted before it can fail."""

    def process(self, value: int, out: Any) -> None:
        out.emit(("trying", value))
        out.emit_to("tried", value)
        out.emit(("inverse", 100 / value))


class BatchInverse(Bolt):
    def process_batch(self, values: list[int], out: Any) -> None:
        for value in values:
            out.emit(100 / value)


class Life(Bolt):
    """Says what was called on it, in order."""

    def open(self, ctx: Any) -> None:
        self.calls = [f"open {ctx.topology} {ctx.step} {ctx.task}/{ctx.parallelism} {ctx.config['colour']}"]

    def process(self, value: Any, out: Any) -> None:
        self.calls.append(f"process {value}")

    def on_end(self, out: Any) -> None:
        out.extend([*self.calls, "end"])


class OnThread(Bolt):
    """(value, name of the thread that ran it)."""

    def process(self, value: Any, out: Any) -> None:
        out.emit((value, threading.current_thread().name))


class Fail(Bolt):
    """Fails wherever it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, ctx: Any) -> None:
        self._maybe("open")

    def process(self, value: Any, out: Any) -> None:
        self._maybe("process")

    def on_tick(self, out: Any) -> None:
        self._maybe("on_tick")

    def on_end(self, out: Any) -> None:
        self._maybe("on_end")

    def close(self) -> None:
        self._maybe("close")

    def _maybe(self, where: str) -> None:
        if self.where == where:
            raise RuntimeError(f"no luck in {where}")


class Emit(Bolt):
    """Emits what it was made with, for each value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def process(self, value: Any, out: Any) -> None:
        out.emit(self.value())


class Dice(Bolt):
    """A random number for each value."""

    def open(self, ctx: Any) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Any) -> None:
        out.emit((self.ctx.task, value, self.ctx.random().randrange(10**9)))


class Countdown(Spout):
    """n, n - 1, ... 1: each task its own, on the default output and even ones on a side output."""

    def __init__(self, n: int) -> None:
        self.n = n

    def open(self, ctx: Any) -> None:
        self.task = ctx.task

    def next_tuple(self, out: Any) -> object:
        if self.n == 0:
            return END
        out.emit((self.task, self.n))
        if self.n % 2 == 0:
            out.emit_to("even", self.n)
        self.n -= 1
        return None


class DirectSpout(Spout):
    """0 to n - 1, each to the task that it names."""

    def __init__(self, n: int, tasks: int) -> None:
        self.n, self.tasks, self.at = n, tasks, 0

    def next_tuple(self, out: Any) -> object:
        if self.at == self.n:
            return END
        out.emit_direct(self.at % self.tasks, self.at)
        self.at += 1
        return None


class Beats(Bolt):
    """`tick` for each tick until the end, and `timer NAME` for each timer; sets one a little after each value."""

    def open(self, ctx: Any) -> None:
        self.ctx = ctx

    def process(self, value: int, out: Any) -> None:
        self.ctx.set_timer(self.ctx.now() + 0.01, f"of {value}")

    def on_tick(self, out: Any) -> None:
        out.emit("tick")

    def on_timer(self, name: str, out: Any) -> None:
        out.emit(f"timer {name}")


class Measured(Bolt):
    """Counts what it gets in a metric of its own, and gauges the newest value."""

    def open(self, ctx: Any) -> None:
        self.metrics = ctx.metrics

    def process(self, value: int, out: Any) -> None:
        self.metrics.count("seen")
        self.metrics.gauge("newest", value)
        out.emit(value)


TCP_LINES = [f"line {n}" for n in range(50)]


@functools.cache
def line_server() -> int:
    """The port of a server on this machine that sends `TCP_LINES` to whoever connects, as long as the tests run."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall("".join(f"{line}\n" for line in TCP_LINES).encode())

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])
