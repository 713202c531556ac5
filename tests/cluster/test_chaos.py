"""Chaos as a user starts it: its own Ray of two nodes, real SIGKILL, results held against a count of the input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.command import ROOT, Command

pytestmark = pytest.mark.cluster


def chaos(folder: Path, target: str, kills: int, seed: int, *options: str, timeout_s: float) -> dict[str, Any]:
    """The report of a run, which must have left nothing behind."""
    command = Command(folder)
    arguments = ["chaos", str(ROOT / target), "--kills", str(kills), "--seed", str(seed), "--json"]
    done = command.run(*arguments, *(part for option in options for part in ("-o", option)), timeout_s=timeout_s)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, [run["differences"] for run in report["runs"] if run["differences"]]) == (0, [])
    command.left_nothing()
    return report


def check(report: dict[str, Any], kills: int) -> None:
    assert report["exact"]
    assert len(report["kills"]) == kills
    assert all(kill["unaffected"] for kill in report["kills"])
    for kill in report["kills"]:
        lost = [victim for victim in kill["victims"] if victim != "coordinator"]
        assert kill["restarts"] <= len(lost), kill


def test_a_worker_a_node_and_the_coordinator_are_killed_and_the_counts_are_exact(tmp_path: Path) -> None:
    options = ("parallelism=4", "lines_per_s=400", "seconds=25")
    report = chaos(tmp_path, "topologies/wordcount.py", 3, 11, *options, timeout_s=300)
    check(report, 3)
    assert {kill["kind"] for kill in report["kills"]} == {"worker", "node", "coordinator"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("topologies/wordcount.py", ("parallelism=4", "lines_per_s=1000", "seconds=120")),
        ("topologies/top_n.py", ("split=4", "count=4", "lines_per_s=500", "seconds=120")),
    ],
)
def test_fifty_kills_over_wordcount_and_top_n_leave_every_count_exact(
    target: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    check(chaos(tmp_path, target, 25, 50, *options, timeout_s=3600), 25)
