"""Progress: bars that follow the status tracker on a terminal, a line per phase elsewhere."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace

from rich.console import Console

from rstream.spark.progress import ProgressDisplay


class FakeTracker:
    """A session and its status tracker in one, with a stage of which three tasks in four are done."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.sparkContext = self

    def statusTracker(self) -> FakeTracker:
        return self

    def getActiveStageIds(self) -> list[int]:
        return [1]

    def getStageInfo(self, stage: int) -> SimpleNamespace:
        self.asked.set()
        return SimpleNamespace(numTasks=4, numCompletedTasks=3)


def test_a_terminal_gets_a_bar_that_counts_the_tasks_of_spark() -> None:
    tracker, screen = FakeTracker(), io.StringIO()
    display = ProgressDisplay(tracker, Console(file=screen, force_terminal=True, width=100))
    with display.phase("reading"):
        assert tracker.asked.wait(timeout=10)
    assert "reading" in screen.getvalue()
    assert "4/4" in screen.getvalue()


def test_a_file_gets_one_plain_line_per_phase() -> None:
    screen = io.StringIO()
    display = ProgressDisplay(FakeTracker(), Console(file=screen))
    with display.phase("reading"):
        pass
    assert screen.getvalue().startswith("reading: ")
    assert len(screen.getvalue().splitlines()) == 1
