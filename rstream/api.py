"""The classes that users subclass: `Bolt`, `Spout`, `Source` with its `Reader`, and what a running task is given.

A bolt is deterministic given its input order, `ctx.now()` and `ctx.random()`; that is what makes recovery exact.
"""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rstream.errors import SinkFenced

__all__ = [
    "DEAD_LETTERS",
    "DEFAULT_OUTPUT",
    "END",
    "Bolt",
    "Context",
    "Metrics",
    "Out",
    "Reader",
    "Share",
    "SinkFenced",
    "Source",
    "Spout",
    "TransactionalSink",
]

DEFAULT_OUTPUT = "default"
DEAD_LETTERS = "dead_letters"
"""The output that gets tuples whose processing failed, with `on_error="dead_letter"`."""


class Out(Protocol):
    """Where a bolt or spout puts what it emits."""

    emit: Callable[[Any], None]
    """Emit one value on the default output."""

    extend: Callable[[Sequence[Any]], None]
    """Emit many values on the default output."""

    def extend_pairs(self, lefts: Sequence[Any], rights: Sequence[Any]) -> None:
        """Emit `(left, right)` for each of two sequences of one length: the fast way for whole batches of pairs."""

    def emit_to(self, output: str, value: Any) -> None:
        """Emit on a named side output."""

    def emit_direct(self, task: int, value: Any, output: str = DEFAULT_OUTPUT) -> None:
        """Emit to one task of the receivers that subscribed with the direct grouping."""


class Metrics(Protocol):
    """A task's own counters and gauges, shown by `rstream status --json`."""

    def count(self, name: str, by: float = 1.0) -> None: ...

    def gauge(self, name: str, value: float) -> None: ...


class Context(Protocol):
    """What a task knows and may use; handed to `open`."""

    topology: str
    run: str
    """Names this run of the topology; recovery and moves keep it, a new submission has a new one."""
    step: str
    task: int
    parallelism: int
    config: Mapping[str, Any]
    logger: logging.Logger | logging.LoggerAdapter[Any]
    metrics: Metrics
    state: Any
    key_of: Callable[[Any], Any] | None
    """The key function of the input, for bolts on a keyed stream; None means that the value is its own key."""

    def now(self) -> float:
        """Seconds since the epoch; the same for all tuples of a step, and the same again when a step is replayed."""

    def random(self) -> random.Random:
        """Randomness that is the same again when a step is replayed."""

    def occupy(self, ms: float) -> None:
        """Hold this replica busy for a time, without burning a core and without blocking others on its worker."""

    def set_timer(self, at_s: float, name: str = "") -> None:
        """Call `on_timer(name, out)` once `now()` has reached `at_s`; on a keyed stream, for the current key."""

    def watermark(self) -> float:
        """The task's watermark: tuples of times before it have all come, except late ones."""

    def set_event_timer(self, at_s: float, name: str = "") -> None:
        """Call `on_event_timer(at_s, name, out)` once the watermark has reached `at_s`; for the current key."""

    def cancel_event_timer(self, at_s: float, name: str = "") -> None:
        """Take an event timer of the current key back."""


class Share(Protocol):
    """Which part of a step's input comes to a task: for dealing state out anew."""

    task: int
    tasks: int

    def owns(self, value: Any) -> bool:
        """Whether a value of the input would come to this task; without keys, to some task always the same."""


class Bolt:
    """One step of processing. Override `process`, or `process_batch` for speed.

    >>> class Double(Bolt):
    ...     def process(self, value, out):
    ...         out.emit(value * 2)
    """

    def open(self, ctx: Context) -> None:
        """Called once on the worker, before the first tuple."""

    def process(self, value: Any, out: Out) -> None:
        """Handle one tuple."""
        raise TypeError(f"{type(self).__name__} overrides neither process nor process_batch")

    def process_batch(self, values: list[Any], out: Out) -> None:
        """Handle many tuples in order; the result must not depend on where batches are cut."""
        process = self.process
        for value in values:
            process(value, out)

    def on_tick(self, out: Out) -> None:
        """Called every `tick_s` seconds, where the step sets it."""

    def on_timer(self, name: str, out: Out) -> None:
        """Called when a timer set with `ctx.set_timer` is due."""

    def on_event_timer(self, at_s: float, name: str, out: Out) -> None:
        """Called when the watermark has reached a timer of `ctx.set_event_timer`, or all inputs have ended."""

    def on_watermark(self, at_s: float, out: Out) -> None:
        """Called when the task's watermark has moved on, after the timers that it made due."""

    def on_end(self, out: Out) -> None:
        """Called once when all inputs have ended, before `close`."""

    def snapshot(self) -> Any:
        """What recovery has to bring back of this object beside `ctx.state`; None for nothing."""
        return None

    def restore(self, snapshot: Any) -> None:
        """Take back what `snapshot` gave; called after `open`."""

    def redeal(self, snapshots: Sequence[Any], share: Share) -> Any:
        """What `restore` gets when a savepoint is started with another number of tasks: this task's share of what
        the `snapshot` of each task gave. Only called where it is overridden; a `snapshot` that gives a list of
        `rstream.state.parts.Part` needs no such method, its parts are dealt out."""
        raise TypeError(f"{type(self).__name__} does not override redeal")

    def close(self) -> None:
        """Called once on the worker, at the end."""


class TransactionalSink(Bolt):
    """A sink that commits what it writes together with how far it has read, so that a crash neither loses nor doubles.

    `process` turns a tuple into what is to be written, and emits it. Now and then the engine calls `commit` with what
    was emitted since. There is no snapshot of such a sink: what it has committed is all that recovery asks for.

    >>> class Ledger(TransactionalSink):
    ...     rows, claims = [], {}
    ...     def open(self, ctx):
    ...         self.id = ctx.run, ctx.step, ctx.task
    ...     def claim(self, token):
    ...         _, progress = self.claims.get(self.id, (token, None))
    ...         self.claims[self.id] = token, progress
    ...         return progress
    ...     def commit(self, records, progress, token):
    ...         if self.claims[self.id][0] != token:
    ...             raise SinkFenced("another process has taken over")
    ...         self.rows.extend(records)
    ...         self.claims[self.id] = token, progress
    """

    commit_interval_s: float = 1.0
    """The longest that a record waits for its commit."""

    commit_records: int = 10_000
    """So many records are committed at once, whatever the time."""

    def process_batch(self, values: list[Any], out: Out) -> None:
        """Write every tuple as it is."""
        out.extend(values)

    def claim(self, token: int) -> bytes | None:
        """Take this task's place in the store: from now on only `token` may commit. Gives the progress of the last
        commit of this `ctx.run`, None before the first. Raises `SinkFenced` where a larger token has claimed it."""
        raise TypeError(f"{type(self).__name__} does not override claim")

    def commit(self, records: list[Any], progress: bytes, token: int) -> None:
        """Write records and progress in one transaction; raises `SinkFenced` if another token has claimed the place.

        It is called again after a recovery with what was not committed, never with what was."""
        raise TypeError(f"{type(self).__name__} does not override commit")


class Reader(ABC):
    """Reads one split of a source from an offset on. Runs on the worker's loop, so `read` must not block."""

    idle_s: float = 0.01
    """How long to wait before asking again after `read` gave nothing."""

    now_s: float = 0.0
    """The time, set by the engine before each `read`: readers that pace themselves use it and no clock. It is infinite
    while a recovery reads again what was read before."""

    part: int = 0
    """Of which part of the split the last `read` was, where a split has several whose order is chance. The engine
    writes it down, and sets it before it reads the same again."""

    waiting_bytes: int = 0
    """How much was pushed to this reader and waits to be read."""

    @abstractmethod
    def read(self, limit: int) -> list[Any] | None:
        """Up to `limit` further values; an empty list for none now, None at the end."""

    @property
    @abstractmethod
    def offset(self) -> Any:
        """Where to read on from, after the values given so far: any value that can travel."""

    def ready(self, part: int, count: int) -> bool:
        """Whether a recovery can read these values again by now: what senders push must first have come again."""
        return True

    def covered(self, offset: Any) -> None:
        """Nothing before `offset` will ever be read again: whoever keeps it for that may let it go."""

    def close(self) -> None:
        """Let go of files and sockets."""


class Source(ABC):
    """Where tuples come from: splits, each with an offset. Splits are dealt out over the source's tasks."""

    replayable: bool = True
    """Whether a split can be read again from an earlier offset; a source that cannot says so at start."""

    @abstractmethod
    def splits(self, parallelism: int) -> Sequence[str]:
        """The names of the splits; the same on every worker."""

    @abstractmethod
    def reader(self, split: str, offset: Any) -> Reader:
        """A reader of one split from `offset` on; None is the beginning."""


END = object()
"""What `Spout.next_tuple` returns when there will be no more."""


class Spout:
    """A source in Storm's form: `next_tuple` is called again and again and emits what there is.

    >>> class Numbers(Spout):
    ...     def open(self, ctx):
    ...         self.n = 0
    ...     def next_tuple(self, out):
    ...         self.n += 1
    ...         out.emit(self.n)
    ...         return END if self.n == 3 else None
    """

    replayable: bool = False
    """Set it to True where `offset` and `seek` are overridden."""

    def open(self, ctx: Context) -> None:
        """Called once on the worker, before the first `next_tuple`."""

    def next_tuple(self, out: Out) -> object | None:
        """Emit zero or more tuples; return `END` for no more. Must not block."""
        raise TypeError(f"{type(self).__name__} does not override next_tuple")

    def offset(self) -> Any:
        """The position after all tuples emitted so far."""
        return None

    def seek(self, offset: Any) -> None:
        """Go back to a position that `offset` gave."""

    def close(self) -> None:
        """Called once on the worker, at the end."""
