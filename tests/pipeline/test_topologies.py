"""The ready topologies on synthesised and ingested data give what DuckDB gives for the same Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from rstream import run
from rstream.lab.fault_topologies import Workload
from rstream.lab.faults import Schedule
from rstream.testing import run as run_test
from rstream.testing.running import _for_test
from tests.pipeline.conftest import MakeSet, query, table
from tests.pipeline.topology_truth import ALERTS, TRUTHS, Results, Truth, alerts, totals

COLLECTED = [name for name in TRUTHS if name != "debs2024"]


def wanted(truth: Truth, source: str) -> list[Any]:
    rows = query(truth.sql.replace("{table}", source))
    assert len(rows) > 5
    return rows


@pytest.mark.parametrize("name", COLLECTED)
def test_a_topology_gives_what_duckdb_gives(name: str, made: MakeSet) -> None:
    truth = TRUTHS[name]
    data = made(truth.data)
    came = truth.results(run_test(truth.build(data.table), workers=2))
    right = wanted(truth, table(data.table))
    assert sorted(came) == sorted(right) if name not in ("top_n", "top_n_wide") else came == right


def test_debs2024_fills_its_database_and_its_alert_queue(made: MakeSet, tmp_path: Path) -> None:
    truth = TRUTHS["debs2024"]
    data = made(truth.data)
    run(truth.build(data.table, database=str(tmp_path / "d.db"), alerts=str(tmp_path / "a.db")), local=True)
    assert sorted(totals(tmp_path / "d.db")) == sorted(wanted(truth, table(data.table)))
    hot = query(ALERTS.replace("{table}", table(data.table)))
    assert hot
    assert alerts(tmp_path / "a.db") == sorted(hot)


@pytest.mark.parametrize("name", TRUTHS)
def test_a_topology_gives_the_same_although_workers_are_killed(name: str, made: MakeSet, tmp_path: Path) -> None:
    """In the fault simulation, on some hundred rows."""
    truth = TRUTHS[name]
    few = tmp_path / "few.parquet"
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(
            f"copy (select * exclude (filename, file_row_number) from {table(made(truth.data).table)} "
            f"order by filename, file_row_number limit 600) to '{few}' (row_group_size 100)"
        )
    right = wanted(truth, f"read_parquet('{few}')")

    def check(results: Results) -> str:
        came = truth.results(results)
        return "" if sorted(came) == sorted(right) else f"{len(came)} rows, {len(right)} wanted"

    killed = 0
    for seed in range(11, 20):
        workload = Workload(_for_test(truth.build(few).build(), {}), check)
        outcome = Schedule(seed, workload=workload).run()
        assert outcome.exact, (seed, outcome.verdict)
        killed += any(event.startswith("crash") for event in outcome.events)
        if killed == 2:
            return
    raise AssertionError("hardly a worker was killed: choose other seeds")
