"""Lines on their way: bounded rings that tell what is missing, numbered books, and who said what."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rstream import Topology
from rstream.config import Config
from rstream.runtime import logs
from rstream.runtime.embedded import Embedded
from rstream.runtime.logs import LogBook, LogLine, LogRing, Outbox


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


def test_a_ring_gives_each_line_once_and_in_order() -> None:
    ring = LogRing("w", "n")
    ring.add("INFO", ["a"], None)
    ring.add("INFO", ["b"], None)
    assert texts(ring.take()) == ["a", "b"]
    assert ring.take() == []


def test_a_full_ring_keeps_the_newest_and_tells_how_many_are_missing() -> None:
    ring = LogRing("w", "n", lines_max=3)
    for n in range(5):
        ring.add("INFO", [str(n)], None)
    lines = ring.take()
    assert texts(lines) == ["2", "3", "4"]
    assert [line.dropped for line in lines] == [2, 0, 0]


def test_more_lines_at_once_than_fit_are_counted_too() -> None:
    ring = LogRing("w", "n", lines_max=3)
    ring.add("INFO", ["0"], None)
    ring.add("stdout", [str(n) for n in range(1, 11)], None)
    lines = ring.take()
    assert texts(lines) == ["8", "9", "10"]
    assert lines[0].dropped == 8


def test_lines_that_could_not_be_handed_on_come_again_before_newer_ones() -> None:
    ring = LogRing("w", "n")
    outbox = Outbox(ring)
    ring.add("INFO", ["a"], None)

    def away(lines: list[LogLine]) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        outbox.send(away)
    ring.add("INFO", ["b"], None)
    got: list[LogLine] = []
    outbox.send(got.extend)
    assert texts(got) == ["a", "b"]
    outbox.send(got.extend)
    assert texts(got) == ["a", "b"]


def test_an_outbox_keeps_no_more_than_a_ring_while_nobody_takes_its_lines() -> None:
    ring = LogRing("w", "n")
    outbox = Outbox(ring)
    got: list[LogLine] = []

    def away(lines: list[LogLine]) -> None:
        raise ConnectionError

    for _ in range(2):
        ring.add("INFO", ["x"] * logs.RING_LINES_MAX, None)
        with pytest.raises(ConnectionError):
            outbox.send(away)
    outbox.send(got.extend)
    assert len(got) == logs.RING_LINES_MAX
    assert got[0].dropped == logs.RING_LINES_MAX


def test_a_very_long_line_is_cut() -> None:
    ring = LogRing("w", "n")
    ring.add("INFO", ["x" * 100_000], None)
    [line] = ring.take()
    assert len(line.text) < 10_000
    assert line.text.endswith("(cut)")


def test_a_book_gives_what_is_new_since_a_number() -> None:
    book = LogBook(lines_max=3)
    book.add([LogLine(0.0, "INFO", text) for text in "ab"])
    number, lines = book.since(0)
    assert texts(lines) == ["a", "b"]
    book.add([LogLine(0.0, "INFO", text) for text in "cd"])
    assert texts(book.since(number)[1]) == ["c", "d"]
    assert book.since(number)[1][0].dropped == 0
    late = book.since(0)[1]
    assert texts(late) == ["b", "c", "d"]
    assert late[0].dropped == 1
    assert book.since(book.since(0)[0])[1] == []


@contextmanager
def listening() -> Iterator[tuple[LogRing, io.StringIO]]:
    """A ring that keeps what this process says inside the block, and the stream behind standard output."""
    root = logging.getLogger()
    handlers, level, streams, seen = list(root.handlers), root.level, (sys.stdout, sys.stderr), io.StringIO()
    sys.stdout, sys.stderr = seen, io.StringIO()
    ring = LogRing("w", "n")
    try:
        logs.capture(ring)
        yield ring, seen
    finally:
        root.handlers, root.level, (sys.stdout, sys.stderr) = handlers, level, streams


def test_what_code_of_a_task_logs_and_prints_carries_its_step_and_task() -> None:
    def talk(n: int) -> int:
        print("printed")
        logging.getLogger("some.library").info("logged")
        return n

    topology = Topology("talk")
    topology.source("n", [1]).map("talk", talk).sink("out")
    with listening() as (ring, _):
        Embedded(topology.build(), Config()).run()
        print("outside")
    lines = ring.take()
    assert [(line.level, line.text, line.step, line.task) for line in lines] == [
        ("stdout", "printed", "talk", 0),
        ("INFO", "logged", "talk", 0),
        ("stdout", "outside", "", None),
    ]
    assert {(line.worker, line.node) for line in lines} == {("w", "n")}


def test_half_a_line_waits_for_its_end() -> None:
    with listening() as (ring, _):
        print("a", end="")
        assert ring.take() == []
        print("b\nc")
    assert texts(ring.take()) == ["ab", "c"]


def test_an_exception_is_logged_with_its_traceback_and_rays_own_log_is_left_out() -> None:
    with listening() as (ring, _):
        logging.getLogger("ray.worker").warning("internal")
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("mine").exception("failed")
    [line] = ring.take()
    assert line.level == "ERROR"
    assert line.text.startswith("failed\nTraceback")
    assert line.text.endswith("ValueError: no")


def test_the_original_stream_still_gets_everything() -> None:
    with listening() as (_, seen):
        print("seen")
    assert seen.getvalue() == "seen\n"


def test_a_line_is_shown_as_it_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    logs.show(LogLine(0.0, "stdout", "plain"))
    logs.show(LogLine(0.0, "WARNING", "careful", "parse", 3, dropped=2, worker="w1"))
    captured = capsys.readouterr()
    assert captured.out == "plain\n"
    assert captured.err.splitlines() == [
        "rstream: 2 lines of worker w1 came too fast and are missing",
        "WARNING parse#3: careful",
    ]
