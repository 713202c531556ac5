"""Careful tasks note each tuple before it is processed, and what they emit is what it would have been."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from rstream import Topology
from rstream.clock import ManualClock
from rstream.core.channel import TaskId
from rstream.core.poison import CAREFUL_S, Evidence, be_careful, count_evidence, poisoned
from rstream.runtime.embedded import Embedded
from rstream.runtime.notes import NoteBook, take_note


def careful_host(note: Callable[[Evidence | None], None]) -> tuple[Embedded, ManualClock]:
    topology = Topology("careful")
    topology.source("numbers", list(range(300))).map("double", lambda n: 2 * n).sink("out")
    clock = ManualClock()
    host = Embedded(topology.build(), clock=clock)
    [machine] = host.machines.values()
    be_careful(next(bolt for bolt in machine.bolts if bolt.id.operator == "double"), note)
    return host, clock


def test_every_tuple_is_noted_with_its_offset_and_the_results_are_the_same() -> None:
    noted: list[Evidence | None] = []
    host, _ = careful_host(noted.append)
    host.run()
    assert host.results("out") == [2 * n for n in range(300)]
    seen = [each for each in noted if each is not None]
    assert [(each.offset, each.shown) for each in seen] == [(n, str(n)) for n in range(300)]
    assert noted[-1] is None, "a task that waits is at nothing"


def test_after_a_while_nothing_is_noted_any_more() -> None:
    noted: list[Evidence | None] = []
    host, clock = careful_host(noted.append)
    clock.advance(CAREFUL_S)
    host.run()
    assert noted == []
    assert len(host.results("out")) == 300


def at(offset: int) -> Evidence:
    return Evidence(TaskId("parse", 1), 0, 2, offset, f"<{offset}>")


def test_only_the_same_tuple_in_a_row_counts() -> None:
    evidence: list[Evidence] = []
    for found in (at(5), at(5), at(9), at(9), at(9)):
        evidence = count_evidence(evidence, found)
    assert evidence == [at(9)] * 3
    error = poisoned(evidence, "n1")
    assert "step 'parse', task 1, node n1" in str(error)
    assert "ended 3 times in a row at this tuple: <9>" in str(error)
    assert error.value == "<9>"


def test_a_note_is_read_once_by_whoever_comes_after(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    book = NoteBook("wc/w1.7")
    assert take_note("wc/w1.7") is None
    book(at(1))
    book(at(22))
    assert take_note("wc/w1.7") == at(22)
    assert take_note("wc/w1.7") is None
    other = NoteBook("wc/w2.8")
    other(at(3))
    other(None)
    assert take_note("wc/w2.8") is None
