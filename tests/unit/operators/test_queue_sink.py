"""A queue of messages in a file: each value once, taken off by one reader only."""

from __future__ import annotations

from pathlib import Path

import pytest

from rstream.errors import DataError
from rstream.operators.queue_sinks import Queue, take
from rstream.testing import check_sink
from tests.unit.engine.test_sinks import run
from tests.windows_kit import check_written


def messages(path: Path) -> list[object]:
    """All that is on the queue, as tuples; nothing is, before the first commit."""
    return [tuple(message) for message in take(path, limit=10_000)] if path.exists() else []


def test_messages_are_on_it_once_each_although_workers_are_killed_and_tasks_change(tmp_path: Path) -> None:
    check_written(tmp_path, lambda path: Queue(path, commit_interval_s=0.02), messages)


def test_it_keeps_the_promises_of_a_transactional_sink(tmp_path: Path) -> None:
    seen: list[object] = []

    def read() -> list[object]:
        seen.extend(messages(tmp_path / "queue.db"))
        return seen

    check_sink(lambda: Queue(tmp_path / "queue.db"), read)


def test_the_oldest_come_first_and_each_is_taken_once(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    run(Queue(path), [{"n": n} for n in range(5)])
    assert take(path, limit=2) == [{"n": 0}, {"n": 1}]
    assert take(path) == [{"n": 2}, {"n": 3}, {"n": 4}]
    assert take(path) == []


def test_a_queue_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no queue at .* made by the first topology"):
        take(tmp_path / "none.db")
