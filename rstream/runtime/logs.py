"""What workers say: `ctx.logger`, Python's logging, and what user code prints, on its way to `rstream logs`.

A worker keeps its newest lines in a bounded `LogRing` and hands them to the coordinator with its reports, so that they
outlive it. The coordinator keeps the newest of a topology in a `LogBook`, also past the topology's end. Whoever reads
slower than lines come in learns how many were dropped.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import Any, TextIO

from rstream.clock import SystemClock
from rstream.core.channel import TaskId
from rstream.core.task import Task

RING_LINES_MAX = 5_000
BOOK_LINES_MAX = 20_000
TEXT_CHARS_MAX = 8_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, and who said it; `step` is empty for what no task said."""

    at_s: float
    level: str
    text: str
    step: str = ""
    task: int | None = None
    worker: str = ""
    node: str = ""
    dropped: int = 0
    """How many lines before this one are missing, because they came faster than they could be handed on."""

    def as_json(self) -> dict[str, Any]:
        """A row of `rstream logs --json`."""
        return asdict(self)


Keep = Callable[[str, list[str], TaskId | None], None]
"""Takes lines of one level that one task said, if it was one."""


class LogRing:
    """The newest lines of one worker; filled by any thread, emptied by the one that hands them on."""

    def __init__(self, worker: str, node: str, lines_max: int = RING_LINES_MAX) -> None:
        self.worker, self.node = worker, node
        self._clock = SystemClock()
        # Bare tuples until somebody takes them: a sink may print many more lines than are ever handed on.
        self._lines: deque[tuple[float, str, str, TaskId | None]] = deque()
        self._lines_max = lines_max
        self._lock = threading.Lock()
        self._dropped = 0

    def add(self, level: str, texts: list[str], task: TaskId | None) -> None:
        """Keep lines; the oldest go when there are too many."""
        at_s = self._clock.now()
        newest = texts[-self._lines_max :]
        with self._lock:
            self._dropped += len(texts) - len(newest)
            self._lines.extend([(at_s, level, text, task) for text in newest])
            while len(self._lines) > self._lines_max:
                self._lines.popleft()
                self._dropped += 1

    def take(self) -> list[LogLine]:
        """The lines since the last time; the first tells how many are missing before it."""
        with self._lock:
            taken, dropped = list(self._lines), self._dropped
            self._lines.clear()
            self._dropped = 0
        lines = []
        for at_s, level, text, task in taken:
            step, number = (task.operator, task.number) if task is not None else ("", None)
            shown = text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + " ... (cut)"
            lines.append(LogLine(at_s, level, shown, step, number, self.worker, self.node, dropped))
            dropped = 0
        return lines


class Outbox:
    """Hands lines of a ring on, and keeps those that could not be handed on for the next time."""

    def __init__(self, ring: LogRing) -> None:
        self._ring = ring
        self._unsent: list[LogLine] = []
        self._one_at_a_time = threading.Lock()

    def send(self, hand_on: Callable[[list[LogLine]], None]) -> None:
        """Hand on what is new; when that raises, it is tried again next time, as far as a ring would have kept it."""
        with self._one_at_a_time:
            lines = [*self._unsent, *self._ring.take()]
            if len(lines) > RING_LINES_MAX:
                missing = len(lines) - RING_LINES_MAX
                lines = lines[missing:]
                lines[0] = replace(lines[0], dropped=lines[0].dropped + missing)
            self._unsent = lines
            if lines:
                hand_on(lines)
                self._unsent = []


class LogBook:
    """The newest lines of one topology; each has a number, so that a reader can ask for what is new."""

    def __init__(self, lines_max: int = BOOK_LINES_MAX) -> None:
        self._lines: deque[LogLine] = deque(maxlen=lines_max)
        self._next = 0

    def add(self, lines: Iterable[LogLine]) -> None:
        """Keep lines, in order of arrival."""
        for line in lines:
            self._lines.append(line)
            self._next += 1

    def since(self, number: int) -> tuple[int, list[LogLine]]:
        """(the number to ask for next, the lines from `number` on); the first tells how many are not there any more."""
        first = self._next - len(self._lines)
        lines = list(self._lines)[max(0, number - first) :]
        if number < first:
            lines[0] = replace(lines[0], dropped=lines[0].dropped + first - number)
        return self._next, lines


def current_task() -> TaskId | None:
    """The task whose code is calling, found on the stack: nothing has to be noted while tuples flow."""
    return task_on(sys._getframe(1))


def task_on(frame: FrameType | None) -> TaskId | None:
    """The task whose code a stack is in, by its innermost frame."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Task):
            return owner.id
        frame = frame.f_back
    return None


class _Handler(logging.Handler):
    """Hands log records on as lines."""

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] in ("ray", "asyncio", "grpc"):
            return  # Ray keeps its own log, and the others speak of what carries it
        try:
            self._keep(record.levelname, [self.format(record)], current_task())
        except Exception:
            self.handleError(record)


class _Tee:
    """A text stream whose whole lines are also kept."""

    def __init__(self, stream: TextIO, level: str, keep: Keep) -> None:
        self._stream, self._level, self._keep = stream, level, keep
        self._rest = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write through, and keep every line that is now complete."""
        self._stream.write(text)
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if len(self._rest) > TEXT_CHARS_MAX:
                lines.append(self._rest)
                self._rest = ""
        if not lines:
            return len(text)
        self._keep(self._level, lines, current_task())
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As for any stream."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def capture(ring: LogRing) -> None:
    """From now on keep what this process logs and prints."""
    root = logging.getLogger()
    root.addHandler(_Handler(ring.add))
    root.setLevel(min(root.level, _level()) if root.level else _level())
    sys.stdout = _Tee(sys.stdout, "stdout", ring.add)
    sys.stderr = _Tee(sys.stderr, "stderr", ring.add)


def log_here() -> None:
    """Show what tasks log in this process, as the embedded host does; a program that set up logging keeps its way."""
    root = logging.getLogger()
    if root.handlers:
        return

    def keep(level: str, texts: list[str], task: TaskId | None) -> None:
        step, number = (task.operator, task.number) if task is not None else ("", None)
        for text in texts:
            show(LogLine(0.0, level, text, step, number))

    root.addHandler(_Handler(keep))
    root.setLevel(_level())


def _level() -> int:
    """From where on lines are kept; `rstream -v` wants the debug ones too, and workers of its own Ray inherit that."""
    return logging.DEBUG if "RSTREAM_VERBOSE" in os.environ else logging.INFO


def show(line: LogLine, out: TextIO | None = None) -> None:
    """A line on the terminal: printed ones as they were, logged ones with their level and task on standard error."""
    if line.dropped:
        print(f"rstream: {line.dropped} lines of worker {line.worker} came too fast and are missing", file=sys.stderr)
    if line.level == "stdout":
        print(line.text, file=out or sys.stdout, flush=True)
    elif line.level == "stderr":
        print(line.text, file=sys.stderr)
    else:
        said_by = f"{line.step}#{line.task}: " if line.step else ""
        print(f"{line.level} {said_by}{line.text}", file=sys.stderr)
