"""Following a topology from its driver: status and log lines as they come, the drain at a time limit or Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rstream.clock import SystemClock, sleep
from rstream.core.records import OVER
from rstream.runtime.logs import LogLine

POLL_S = 0.05
POLL_MAX_S = 0.25
POLL_SHARE = 0.02
"""A run that has lasted long is asked less often whether it is over: asking takes time from its workers."""
SHOW_S = 0.25
END_MAX_S = 15.0
"""How long the driver waits for workers to end before it leaves them to Ray."""


class Followed(Protocol):
    """What following needs of a topology's handle."""

    def status(self) -> dict[str, Any]: ...

    def state(self) -> str: ...

    def ended(self) -> bool: ...

    def kill(self, drain: bool = False) -> None: ...

    def logs(self, since: int = 0) -> tuple[int, list[LogLine]]: ...


class Follower:
    """Watches one topology until it is over and its workers are gone."""

    def __init__(
        self,
        handle: Followed,
        on_status: Callable[[dict[str, Any]], None] | None,
        on_log: Callable[[LogLine], None],
    ) -> None:
        self._handle, self._on_status, self._on_log = handle, on_status, on_log
        self._clock = SystemClock()
        self._lines_shown = 0
        self._interruption = Interruption()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._interruption.pressed

    def follow(self, duration_s: float | None) -> str:
        """Wait for the end of the topology, after a drain at `duration_s` or Ctrl-C; gives its last state.

        The time counts from when the topology runs: how long its workers take to start is not the user's matter.
        """
        with self._interruption.watched():
            return self._follow(duration_s)

    def _follow(self, duration_s: float | None) -> str:
        end_s: float | None = None
        draining = False
        shown_s = 0.0
        begun_s = self._clock.monotonic()
        while True:
            state = self._handle.state()
            if state in OVER:
                return state
            now_s = self._clock.monotonic()
            if end_s is None and duration_s is not None and state == "ACTIVE":
                end_s = now_s + duration_s
            if not draining and (self.interrupted or (end_s is not None and now_s >= end_s)):
                draining = True
                self._handle.kill(drain=True)
            if now_s - shown_s > SHOW_S:
                shown_s = now_s
                self.show()
            sleep(min(POLL_MAX_S, max(POLL_S, POLL_SHARE * (now_s - begun_s))))

    def show(self) -> None:
        """Hand on the newest status and the lines logged since the last time."""
        self._lines_shown, lines = self._handle.logs(self._lines_shown)
        for line in lines:
            self._on_log(line)
        if self._on_status is not None:
            self._on_status(self._handle.status())

    def end(self) -> None:
        """Leave nothing of the topology running, whatever happened; then show what it said last."""
        if self._handle.state() not in OVER:
            self._handle.kill()
        give_up_s = self._clock.monotonic() + END_MAX_S
        while not self._handle.ended() and self._clock.monotonic() < give_up_s:
            sleep(POLL_S)
        self.show()


class Interruption:
    """Ctrl-C or SIGTERM during a run. The first leaves a mark, which the run looks at between two steps: an exception
    could end a step half done, or be lost where Ray's own code runs. The second stops the run at once.
    """

    def __init__(self) -> None:
        self.pressed = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take both signals for as long as the block lasts."""
        with on_signal(signal.SIGINT, self._press), on_signal(signal.SIGTERM, self._press):
            yield

    def _press(self, number: int, _: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        line = "rstream: interrupted: draining (Ctrl-C again to stop at once)"
        try:
            print(line, file=sys.stderr, flush=True)
        except RuntimeError:  # the signal came while something else was being printed
            os.write(2, f"{line}\n".encode())


@contextmanager
def on_signal(number: signal.Signals, handle: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle a signal in this way for as long as the block lasts."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals only ever reach the main thread
        return
    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done, so that nothing is started that nobody then stops."""
    pressed: list[int] = []
    with on_signal(signal.SIGINT, lambda number, _: pressed.append(number)):
        yield
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does; Ray's own way leaves the topology running on its cluster."""

    def interrupt(number: int, _: Any) -> None:
        raise KeyboardInterrupt

    with on_signal(signal.SIGTERM, interrupt):
        yield
