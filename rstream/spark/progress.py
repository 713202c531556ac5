"""Shows on stderr how far Spark is: a bar per phase on a terminal, one line per phase elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rstream.clock import SystemClock

_POLL_S = 0.25


class Phases(Protocol):
    """How the jobs tell which step they are at; `Quiet` says nothing."""

    def phase(self, title: str) -> Any:
        """A context manager around one step."""


class Quiet:
    """Shows nothing."""

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Say nothing."""
        yield


class ProgressDisplay:
    """Follows the stages of one Spark session by its status tracker."""

    def __init__(self, session: Any, console: Console) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._console = console

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Show this step until the block ends."""
        if not self._console.is_terminal:
            start_s = SystemClock.monotonic()
            yield
            self._console.print(f"{title}: {SystemClock.monotonic() - start_s:.1f} s", highlight=False)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
        with Progress(*columns, TimeElapsedColumn(), console=self._console) as bar:
            task = bar.add_task(title, total=None)
            done = threading.Event()
            follower = threading.Thread(target=self._follow, args=(bar, task, done), daemon=True)
            follower.start()
            try:
                yield
            finally:
                done.set()
                follower.join()

    def _follow(self, bar: Progress, task: TaskID, done: threading.Event) -> None:
        seen: dict[int, tuple[int, int]] = {}
        while not done.wait(_POLL_S):
            try:
                seen |= stage_counts(self._tracker)
            except Exception:  # the session may be going down; the failure itself is reported by the job
                return
            if seen:
                total, completed = (sum(column) for column in zip(*seen.values(), strict=True))
                bar.update(task, total=total, completed=completed)
        total = sum(stage[0] for stage in seen.values())
        bar.update(task, total=total or 1, completed=total or 1)


def stage_counts(tracker: Any) -> dict[int, tuple[int, int]]:
    """Tasks wanted and completed of every stage that is running."""
    counts = {}
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:
            counts[stage] = (info.numTasks, info.numCompletedTasks)
    return counts
