"""`rstream lab` from the command line: results on stdout, one clear line for every mistake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rstream.cli import main as cli


@pytest.fixture(autouse=True)
def in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    path.write_text("time_s,rate\n0,600\n30,1500\n60,900\n")
    return path


def test_list_gives_every_experiment_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["lab", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["experiments"]
    assert {"E10", "R6", "P0", "M4", "S1"} <= {row["id"] for row in rows}


def test_run_prints_series_and_checks_and_writes_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    assert cli.run(["lab", "run", "--experiment", "E10", "--seed", "1", "--json", "--report", str(report)]) == 0
    printed = json.loads(capsys.readouterr().out)
    series = printed["series"][0]
    assert series["policy"] == "es"
    lengths = {len(series[name]) for name in ("time", "instances", "nodes", "rate", "latency")}
    assert lengths == {239}
    assert [check["verdict"] for check in printed["checks"]] == ["fitted", "fitted"]
    assert report.read_text().startswith("<!doctype html>")


def test_compare_says_who_would_have_served_best_and_at_what_cost(
    capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path
) -> None:
    topology = tmp_path / "shop.yaml"
    topology.write_text(
        "name: shop\nnodes: 6\noperators:\n- {name: read, service_ms: 0.5, parallelism: 1}\n"
        "- {name: count, service_ms: 2.0, parallelism: 2, keyed: true, state_mb: 1}\n"
    )
    arguments = ["lab", "compare", str(trace), "--topology", str(topology), "--policies", "static,es", "--json"]
    assert cli.run(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["best"] == "es"  # two instances of count are saturated at 1500 tuples/s
    assert {row["policy"] for row in printed["policies"]} == {"static", "es"}
    assert all(row["node_hours"] > 0 for row in printed["policies"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,rate\n0,1\n1,2\n", "needs the columns time_s,rate"),
        ("time_s,rate\n0,1\n1,-2\n", "line 3: rate must be 0 or more tuples/s, got -2"),
        ("time_s,rate\n0,1\n0,2\n", "line 3: time_s must grow"),
        ("time_s,rate\n0,1\n1,many\n", "line 3: time_s and rate must be numbers"),
        ("time_s,rate\n0,1\n1,inf\n", "line 3: time_s and rate must be finite"),
        ("time_s,rate\n0,1\n", "needs at least 2 rows"),
        ("", "needs the columns time_s,rate"),
    ],
)
def test_a_wrong_trace_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    assert cli.run(["lab", "compare", str(path), "--topology", "commcount"]) == 2
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1
    assert said in shown[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--experiment", "X1"], "no experiment 'X1'"),
        (["run", "--experiment", "E10", "--policies", "ess"], "unknown policy 'ess' (did you mean 'es'?)"),
        (["run", "--experiment", "E10", "--policies", ","], "needs at least one name"),
        (["run"], "Missing option '--experiment'"),
        (["run", "--experiment", "E10", "--seed", "-1"], "-1 is not in the range x>=0"),
        (["compare", "TRACE", "--topology", "commcount", "--seed", "-3"], "-3 is not in the range x>=0"),
        (["compare", "TRACE", "--topology", "nowhere"], "neither a file nor a built-in topology"),
        (["compare", "TRACE", "--topology", "BROKEN"], "operators.0.service_ms: Input should be greater than 0"),
        (["compare", "no-such.csv", "--topology", "commcount"], "cannot be read"),
    ],
)
def test_wrong_usage_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: x\noperators:\n- {name: a, service_ms: -1}\n")
    names = {"TRACE": str(trace), "BROKEN": str(broken)}
    assert cli.run(["lab", *(names.get(argument, argument) for argument in arguments)]) == 2
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1
    assert said in shown[0]
