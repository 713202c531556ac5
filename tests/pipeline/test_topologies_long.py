"""The ready topologies on a million rows on Ray, a worker killed midway: they give what DuckDB gives."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rstream import submit
from tests.cluster.test_recovery import hosts
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until
from tests.pipeline.conftest import COUNTS, Ingest, MakeSet, maker, query, table
from tests.pipeline.topology_truth import ALERTS, TRUTHS, alerts, totals

MILLION = 1_000_000
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600), pytest.mark.usefixtures("two_nodes")]


@pytest.fixture(scope="module")
def million(spark: Any, run_ingest: Ingest, tmp_path_factory: pytest.TempPathFactory) -> MakeSet:
    return maker(spark, run_ingest, tmp_path_factory, MILLION)


def stored_files(folder: Path) -> list[Any]:
    return query(f"select * from read_parquet('{folder}/out/*.parquet')")


def stored_tweets(folder: Path) -> list[Any]:
    with sqlite3.connect(folder / "out") as connection:
        return connection.execute("select id, type, score, size from tweets").fetchall()


OUTSIDE: dict[str, tuple[str, Callable[[Path], list[Any]]]] = {
    "twitter": ("store", stored_files),
    "twitter_complex": ("database", stored_tweets),
    "dns": ("store", stored_files),
    "debs2024": ("database", lambda folder: totals(folder / "out")),
}
"""Topologies that write outside: the option that says where, and how to read it."""


@pytest.mark.parametrize("name", TRUTHS)
def test_a_million_rows_give_what_duckdb_gives_although_a_worker_is_killed_midway(
    name: str, million: MakeSet, tmp_path: Path
) -> None:
    truth = TRUTHS[name]
    data = million(truth.data)
    assert {key: data.ingest[key] for key in COUNTS} == {key: data.synth[key] for key in COUNTS}
    option, read = OUTSIDE.get(name, ("", None))
    options = {option: str(tmp_path / "out")} if option else {}
    if name == "debs2024":
        options["alerts"] = str(tmp_path / "alerts")
    rows = data.ingest["rows"]
    handle = submit(truth.build(data.table, **options), workers=3, spares=1, folder="")
    wait_until(lambda: handle.status()["emitted"] > rows // 5 and handle.status()["healed"], "a fifth", timeout_s=900)
    before = hosts(handle)
    os.kill(before[sorted(before)[-1]], signal.SIGKILL)
    emitted = handle.status()["emitted"]
    assert emitted < rows, "the kill came midway"
    assert handle.wait(1800) == "FINISHED"
    assert handle.status()["restarts"] == 1
    came = sorted(truth.results(handle.results()) if read is None else read(tmp_path))
    over(handle)
    assert came == sorted(query(truth.sql.replace("{table}", table(data.table))))
    if name == "debs2024":
        assert alerts(tmp_path / "alerts") == sorted(query(ALERTS.replace("{table}", table(data.table))))
