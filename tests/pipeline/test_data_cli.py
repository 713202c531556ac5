"""`rstream data` as a user meets it: counts on stdout, one clear line on stderr, the right exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rstream.cli import main as cli
from rstream.errors import RunError
from rstream.spark.failures import spark_failures


def test_synth_then_ingest_from_the_command_line(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, target = str(tmp_path / "raw"), str(tmp_path / "table")
    assert cli.run(["data", "synth", "text", raw, "--rows", "2000", "--seed", "4"]) == 0
    shown = capsys.readouterr()
    assert "2,000 lines, 1,996 rows, 0 duplicates, 4 quarantined" in shown.out
    assert "making 2,000 lines" in shown.err, "progress goes to stderr"
    assert cli.run(["data", "ingest", "text", raw, target, "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert (manifest["status"], manifest["rows"]) == ("ingested", 1996)
    assert cli.run(["data", "ingest", "text", raw, target]) == 0
    assert "is up to date" in capsys.readouterr().out


def test_a_wrong_schema_is_one_line_and_exit_status_2(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("one,two\n1,2\n")
    assert cli.run(["data", "ingest", "tianchi", str(tmp_path / "a.csv"), str(tmp_path / "table")]) == 2
    complaints = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rstream:")]
    assert len(complaints) == 1
    assert "wrong schema for 'tianchi'" in complaints[0]


def test_a_location_that_spark_cannot_open_is_one_line(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["data", "ingest", "tianchi", "gopher://host/x", str(tmp_path / "table")]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("rstream: gopher://host/x: this Spark cannot open such a location")
    assert "\n" not in line


def test_a_failure_inside_spark_is_one_line_that_names_cause_and_log(spark: Any) -> None:
    with pytest.raises(RunError) as caught, spark_failures("some.log"):
        spark.range(3).selectExpr("raise_error(concat('disk ', id))").collect()
    line = str(caught.value)
    assert "disk 0" in line or "disk 1" in line or "disk 2" in line
    assert line.endswith("the full log: some.log")
    assert "\n" not in line
    assert "\tat " not in line
