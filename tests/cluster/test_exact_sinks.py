"""Exactly once to the outside: files and tables written across kills of real processes, compared with the input."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sqlite3
from typing import Any

import pytest

from rstream import Topology, groupings, submit
from rstream.operators import sinks
from tests.cluster.gated import Gated
from tests.cluster.test_recovery import Numbered, _tagged_a, _tagged_b, flowing
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")

EACH = 2_500


def interleaved(folder: pathlib.Path) -> Topology:
    """Two sources meet in an operator whose output depends on their interleaving; a table and files observe it."""
    topology = Topology("written", backup={"interval_s": 0.3})
    left = topology.source("a", Gated(_tagged_a, 600.0, EACH, folder / "gate"))
    right = topology.source("b", Gated(_tagged_b, 600.0, EACH, folder / "gate"))
    both = left.merge("both", right).grouped(groupings.Shuffle()).process("number", Numbered(), parallelism=2)
    table = sinks.Sqlite(folder / "out.db", "rows", ("task", "seen", "value", "at"), commit_interval_s=0.1)
    both.grouped(groupings.All()).sink("table", table)
    both.grouped(groupings.All()).sink("files", sinks.JsonLines(folder / "files", commit_interval_s=0.1))
    return topology


def test_a_table_and_files_agree_on_an_interleaving_across_kills(tmp_path: pathlib.Path, gate: pathlib.Path) -> None:
    handle = submit(interleaved(tmp_path), workers=3, spares=1, folder="")
    for kills, victim in enumerate(("number#1", "table#0")):
        wait_until(lambda: flowing(handle, 400), "tuples to flow with backups in place", timeout_s=90)
        found = next(worker for worker in handle.status()["workers"] if victim in worker["tasks"])
        os.kill(found["pid"], signal.SIGKILL)
        wait_until(lambda k=kills: handle.status()["restarts"] > k, "the death to be noticed")  # type: ignore[misc]
    gate.touch()
    assert handle.wait(90) == "FINISHED"
    over(handle)
    with sqlite3.connect(tmp_path / "out.db") as connection:
        rows = sorted(connection.execute("SELECT task, seen, value, at FROM rows").fetchall())
    lines: list[Any] = []
    for path in (tmp_path / "files").glob("*.jsonl"):
        text = path.read_text(encoding="utf-8")
        assert text.endswith("\n"), "a file has whole lines only"
        lines += [tuple(json.loads(line)) for line in text.splitlines()]
    assert sorted(lines) == rows
    truth = [_tagged_a(n) for n in range(EACH)] + [_tagged_b(n) for n in range(EACH)]
    assert sorted(value for _, _, value, _ in rows) == sorted(truth)
    for task in (0, 1):
        numbers = [seen for number, seen, _, _ in rows if number == task]
        assert numbers == list(range(1, len(numbers) + 1))
