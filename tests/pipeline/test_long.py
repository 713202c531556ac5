"""The long proofs: a million rows of each set, other masters, no Java, a killed run; each command its own process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rstream.spark.catalogue import SETS, find
from rstream.spark.location import Location
from rstream.spark.synth import synth
from tests.deadline import wait_until
from tests.pipeline.conftest import COUNTS, Ingest, quarantined, query, table
from tests.pipeline.judge import judge

REPOSITORY = Path(__file__).resolve().parents[2]
MILLION = 1_000_000
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def command(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`rstream data ...` as a process of its own, in an empty working directory."""
    cwd = tmp_path / "cwd"
    cwd.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "rstream", "data", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return json.loads(out), err


def said_besides_progress(err: str) -> list[str]:
    """Lines that are not of our own: a phase with its seconds, or what begins with our name."""
    ours = re.compile(r"rstream: .+|[a-z][a-z0-9 ,]+: [0-9.]+ s")
    return [line for line in err.splitlines() if not ours.fullmatch(line)]


def rows_of(files: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(file["path"], file["rows"], file["content"]) for file in files]


@pytest.mark.parametrize("name", SETS)
def test_a_million_rows_come_back_with_every_count_equal(
    name: str, spark: Any, run_ingest: Ingest, tmp_path: Path
) -> None:
    said = synth(spark, find(name), Location.parse(str(tmp_path / "raw")), MILLION, 11)
    found = run_ingest(name, tmp_path / "raw", tmp_path / "table")
    assert {key: found[key] for key in COUNTS} == {key: said[key] for key in COUNTS}
    assert query(f"select count(*) from {table(tmp_path / 'table')}") == [(said["rows"],)]
    assert quarantined(tmp_path / "table") == said["quarantined_by_reason"]
    if name == "tianchi":
        faults, repeats, good = judge(tmp_path / "raw")
        assert (dict(faults), repeats, len(good)) == (said["quarantined_by_reason"], said["duplicates"], said["rows"])


def test_a_million_rows_are_the_same_bytes_from_one_task_and_from_four(spark: Any, tmp_path: Path) -> None:
    one, four = (
        synth(spark, find("tianchi"), Location.parse(str(tmp_path / f"{n}")), MILLION, 5, n)["files"] for n in (1, 4)
    )
    assert len(one) == 4
    assert one == four


def test_executors_in_other_processes_give_the_same_files(run_ingest: Ingest, tmp_path: Path) -> None:
    raw = str(tmp_path / "raw")
    master = ("--master", "local-cluster[2,1,1024]", "--json")
    said, made = finish(command(tmp_path, "synth", "tianchi", raw, "--rows", "20000", "--seed", "3", *master))
    there, taken = finish(command(tmp_path, "ingest", "tianchi", raw, str(tmp_path / "there"), *master))
    assert said_besides_progress(made) == said_besides_progress(taken) == []
    here = run_ingest("tianchi", raw, tmp_path / "here")
    assert {key: there[key] for key in COUNTS} == {key: said[key] for key in COUNTS}
    for part in ("data", "quarantine"):
        assert rows_of(there[part]) == rows_of(here[part])
    assert list((tmp_path / "cwd").iterdir()) == []


def test_without_java_the_one_of_the_extra_is_used_and_named(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.name != "java":
            (tools / tool.name).symlink_to(tool)
    assert shutil.which("java", path=str(tools)) is None
    hidden = {"PATH": str(tools), "JAVA_HOME": ""}
    raw, target = str(tmp_path / "raw"), str(tmp_path / "table")
    said, err = finish(command(tmp_path, "synth", "doh", raw, "--rows", "3000", "--json", **hidden))
    assert "no Java 17 or newer was found: using Java" in err
    found, taken = finish(command(tmp_path, "ingest", "doh", raw, target, "--json", **hidden))
    assert said_besides_progress(err) == said_besides_progress(taken) == []
    assert "making 3,000 lines: " in err
    assert "reading and checking lines: " in taken
    assert {key: found[key] for key in COUNTS} == {key: said[key] for key in COUNTS}
    assert list((tmp_path / "cwd").iterdir()) == [], "nothing is left in the working directory"


def test_a_killed_run_leaves_the_old_data_whole_and_the_next_one_finishes(
    spark: Any, run_ingest: Ingest, tmp_path: Path
) -> None:
    raw, target = tmp_path / "raw", tmp_path / "table"
    synth(spark, find("tianchi"), Location.parse(str(raw)), 20_000, 1)
    old = run_ingest("tianchi", raw, target)
    synth(spark, find("tianchi"), Location.parse(str(raw)), 300_000, 2)

    process = command(tmp_path, "ingest", "tianchi", str(raw), str(target), "--json")
    wait_until(lambda: list(tmp_path.glob(".table.staging-*/data/_temporary/**/*.parquet")), "rows being written", 300)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert json.loads((target / "_manifest.json").read_text())["rows"] == old["rows"]
    assert query(f"select count(*) from {table(target)}") == [(old["rows"],)]
    assert list(tmp_path.glob(".table.staging-*")), "the kill came in the middle"
    new = run_ingest("tianchi", raw, target)
    assert (new["status"], new["lines"]) == ("ingested", 300_000)
    assert query(f"select count(*) from {table(target)}") == [(new["rows"],)]
    assert not list(tmp_path.glob(".table.*")), "what the killed run left is gone"


def test_a_spark_that_cannot_start_is_one_line_that_names_its_log(tmp_path: Path) -> None:
    process = command(tmp_path, "synth", "text", str(tmp_path / "raw"), "--rows", "10", "--driver-memory", "1k")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    [line] = err.strip().splitlines()
    assert line.startswith("rstream: Spark did not start: ")
    log = Path(line.rpartition("the full log: ")[2])
    assert log.read_text()
    log.unlink()
