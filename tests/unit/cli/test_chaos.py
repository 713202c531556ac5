"""What `rstream chaos` refuses before it starts anything, and how it finds that results are wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rstream.chaos import SHARES, ChaosReport, Kill, Run, deal, differences
from rstream.cli import main as cli

TOPOLOGY = """
from rstream import Topology

def build(n=3):
    topology = Topology("few")
    topology.source("n", list(range(n))).sink("out")
    return topology
"""


@pytest.mark.parametrize(
    ("name", "truth", "line"),
    [
        ("untold", "", "untold: has no truth(); define it beside build()"),
        ("misnamed", "def truth(n=3): return {'sink': []}", "misnamed: truth() must give values by sink, one or more"),
        ("raising", "def truth(n=3): return 1 / 0", "raising: truth() raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_target_that_does_not_tell_the_truth_is_refused_in_one_line(
    name: str, truth: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(TOPOLOGY + truth)
    assert cli.run(["chaos", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rstream: {line}")
    assert error.count("\n") == 1


def test_every_kind_of_kill_is_dealt_and_the_same_seed_deals_the_same() -> None:
    dealt = deal(10, 2, random.Random(5))
    assert set(dealt) == set(SHARES)
    assert dealt == deal(10, 2, random.Random(5)) != deal(10, 2, random.Random(6))
    assert "node" not in deal(50, 1, random.Random(5))


def test_a_value_too_many_and_a_sink_that_is_empty_are_differences() -> None:
    assert differences({"out": [("a", 1)]}, {"out": [("a", 1)]}) == []
    assert differences({"out": [("a", 1)]}, {"out": [("a", 1), ("a", 1)]}) == [
        "sink 'out': 0 missing, 1 too many; first too many: ('a', 1)"
    ]
    assert differences({"out": [1, 2]}, {}) == ["sink 'out': 2 missing, 0 too many; first missing: 1"]


@pytest.mark.parametrize(("wrong", "unaffected", "exact"), [([], True, True), (["x"], True, False), ([], False, False)])
def test_a_report_is_exact_only_if_all_results_are_and_nobody_else_was_started_anew(
    wrong: list[str], unaffected: bool, exact: bool
) -> None:
    kill = Kill(1, 1, "worker", ["w"], 3, 0.5, 2.0, 1, unaffected)
    assert ChaosReport(0, 2, [kill], [Run(1, 1, wrong)]).exact is exact
