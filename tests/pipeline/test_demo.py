"""The worked story, short: data replayed by the load of E10; COMMCount grows, and counts what Spark SQL counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rstream.cli.main import run
from rstream.spark.progress import Quiet
from rstream.spark.story import Story, tell
from rstream.topologies import commcount

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("two_nodes")
def test_the_topology_grows_with_the_load_and_counts_as_spark_sql_does(spark: Any, tmp_path: Path) -> None:
    said: list[str] = []
    topology = commcount.build(table="ingest", read=2, split=1, count=1, work_ms=4.0)
    # A row keeps `split` busy for 4 ms: one instance is too few for 270 rows/s, and all the more for 540.
    report = tell(spark, topology, "counts", tmp_path, Story(0.05, 0.15, workers=2), Quiet(), said.append)
    assert report["equal"]
    assert report["replay"]["sent"] == report["rows"] > 4_000
    assert report["replay"]["asked_per_s"] == pytest.approx(4_590 / 12, rel=0.05)
    splits = [each["instances"]["split"] for each in report["instances"]]
    assert splits[0] == 1
    assert max(splits) > 1, "es has grown the step that could not keep up"
    grown = next(decided for decided in report["decisions"] if decided["state"] == "done")
    assert any(text.startswith("split 1 -> ") for text in grown["resized"])
    assert "instances (read 2, split 1, count 1, counts 1)" in said[1]


def test_a_story_that_cannot_be_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, reason in (
        (["--time-scale", "0"], "--time-scale 0: wanted a number above 0"),
        (["--rate-scale", "-1"], "--rate-scale -1: wanted a number above 0"),
        (["--policy", "best"], "'best'"),
        (["--master", "locl"], "--master 'locl'"),
    ):
        assert run(["data", "demo", *arguments]) == 2
        [line] = capsys.readouterr().err.strip().splitlines()
        assert reason in line
