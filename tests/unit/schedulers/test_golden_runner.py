"""The vector runner: passes what is right, fails what is wrong, and ends with its one line."""

from __future__ import annotations

import copy
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import golden

PAPER = golden.ROOT / "tests" / "vectors" / "paper.json"


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PAPER.read_text())["cases"]
    return found


def test_the_worked_examples_of_the_papers_come_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.main([str(PAPER)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(cases())} passed, 0 failed"


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_a_wrong_expectation_fails(case: dict[str, Any]) -> None:
    wrong = copy.deepcopy(case)
    key = next(iter(wrong["expect"]))
    wrong["expect"][key] = "something else"
    assert golden.failures(wrong, golden.adapters())


def test_null_means_no_answer_and_not_any_answer() -> None:
    case = {"id": "x", "fn": "es_mmk", "input": {"lam": 1, "mu": 2, "k": 1}, "expect": {"wp": None}, "tol": 1e-9}
    assert golden.failures(case, golden.adapters())


def test_numbers_are_compared_with_a_relative_tolerance_and_a_floor_of_one() -> None:
    assert not list(golden.differences(1e6, 1e6 + 0.5, 1e-6))
    assert list(golden.differences(1e6, 1e6 + 2, 1e-6))
    assert not list(golden.differences(0.0, 5e-7, 1e-6))
    assert list(golden.differences(True, 1, 1e-6))
    assert not list(golden.differences(float("inf"), float("inf"), 1e-6))


def test_a_vector_without_an_adapter_has_failed() -> None:
    case = {"id": "x", "fn": "nobody_wrote_this", "input": {}, "expect": {}}
    assert golden.failures(case, golden.adapters()) == ["no adapter for nobody_wrote_this"]


def test_a_file_that_is_no_vector_file_is_refused_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text("[]")
    assert golden.main([str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_it_runs_as_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["golden.py", str(PAPER)])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(golden.ROOT / "tests" / "golden.py"), run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("passed, 0 failed")


@pytest.mark.parametrize(
    ("fn", "given", "wanted"),
    [
        ("es_place", {"nodes": {}, "used": [], "need": [0.1] * 3, "cap": [0.8] * 3, "decision": "in_place"}, "node"),
        ("ra_fitness", {"avail": {}, "need": [0.1] * 3, "gamma": 0.5, "delta": 0.35}, "node"),
        ("rstorm_distance", {"task": [50, 512], "nodes": {}, "ref": None, "racks": {}}, "node"),
        ("sl_deploy", {"free": [], "need": [[0.1, 0.1]], "mu": 0.5}, "total"),
        ("ra_min_bins", {"sizes": [0.8, 0.1], "cap": 0.75}, "bins"),
        ("es_stable_index", {"samples": []}, "index"),
        ("me_effective", {"t": [], "y": [], "w": 0, "b": 0}, "Tr"),
    ],
)
def test_nothing_to_choose_from_is_no_answer(fn: str, given: dict[str, Any], wanted: str) -> None:
    assert golden.failures({"fn": fn, "input": given, "expect": {wanted: None}}, golden.adapters()) == []


@pytest.mark.parametrize(
    ("fn", "given", "wanted"),
    [
        ("ras_sort_nodes", {"nodes": {}, "have": {}}, {"order": [], "effective": {}}),
        ("hungarian", {"cost": []}, {"total": 0.0}),
        (
            "ra_schedule_subgraphs",
            {"avail": {"n1": [1, 1, 1]}, "needs": [], "gamma": 0.5, "delta": 0.35},
            {"nodes": []},
        ),
        ("ra_min_bins", {"sizes": [0.3] * 12, "cap": 0.75, "max_tasks": 2}, {"bins": 6}),
        ("ra_best_partition", {"n": 3, "edges": [], "k": 2, "eps": 0.7}, {"r": 0.0}),
        ("es_repair_time", {"CI": 5, "IR": [9], "er": [0], "mu": [3]}, {"SR": "inf"}),
        ("es_repartition_time", {"S": 0, "k_star": 2, "ce": [0], "tr": [1]}, {"RT": 0.0}),
        ("psps_metrics", {"inp": [9], "out": [8], "active": [4], "r_over": 8, "received": 16}, {"processed": 0.5}),
        (
            "rstorm_distance",  # the node chosen last is full, but its rack is still the nearest
            {"task": [50, 512], "nodes": {"a": [50, 512], "b": [50, 512]}, "ref": "c", "racks": {"r": ["c", "b"]}},
            {"distance": {"a": 1.0, "b": 0.5}, "node": "b"},
        ),
    ],
)
def test_the_edges_of_the_arguments_have_an_answer(fn: str, given: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert golden.failures({"fn": fn, "input": given, "expect": wanted}, golden.adapters()) == []
