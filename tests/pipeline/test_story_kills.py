"""The story with everybody killed once: a Spark executor, a source worker, the replay itself; counts stay equal."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rstream import submit
from rstream.spark.story import Story, page_views
from rstream.topologies import commcount
from tests.cluster.test_topologies_on_ray import over
from tests.conftest import TwoNodes
from tests.deadline import wait_until
from tests.pipeline.conftest import Ingest, maker
from tests.pipeline.test_long import command

ROWS = 60_000
EXECUTOR = "CoarseGrainedExecutorBackend"

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def executors(pid: int) -> list[psutil.Process]:
    """The Java processes of a replay that do Spark's work."""
    below = psutil.Process(pid).children(recursive=True)
    return [each for each in below if any(EXECUTOR in part for part in each.cmdline()) and "java" in each.name()]


def test_counts_are_equal_although_executor_source_worker_and_replay_are_killed(
    two_nodes: TwoNodes, spark: Any, run_ingest: Ingest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = maker(spark, run_ingest, tmp_path_factory, ROWS)("tianchi")
    topology = commcount.build(table="ingest", read=2, split=2, count=2, work_ms=1.0)
    handle = submit(topology, policy="es", workers=3, spares=1, folder="", control=Story(0.1).settings)
    replay = (
        *("replay", str(data.table), "--to", "commcount", "--address", two_nodes.address, "--json"),
        *("--master", "local-cluster[2,1,1024]", "--rate", "1000"),
    )

    def came(share: float) -> Callable[[], bool]:
        def enough() -> bool:
            assert first.poll() is None, f"the replay lives on, unlike {first.communicate()}"
            status = handle.status()
            return status["emitted"] >= share * data.ingest["rows"] and bool(status["healed"])

        return enough

    first = command(tmp_path, *replay)
    wait_until(came(0.1), "a tenth of the rows", timeout_s=300)
    executors(first.pid)[0].kill()
    wait_until(came(0.3), "rows after the executor's death", timeout_s=300)
    victim = next(worker for worker in handle.status()["workers"] if "read#0" in worker["tasks"])
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: handle.status()["restarts"] == 1, "the death to be noticed")
    wait_until(came(0.5), "rows after the source worker's death", timeout_s=300)
    first.kill()
    first.communicate(timeout=60)
    covered = handle.status()["emitted"]
    assert covered < data.ingest["rows"], "the kill came midway"

    out, err = command(tmp_path, *replay).communicate(timeout=900)
    report = json.loads(out)
    assert (report["errors"], report["refused"]) == ([], 0), err
    assert report["sent_before"] > 0
    assert report["sent_before"] + report["sent"] == report["rows"] == data.ingest["rows"]
    handle.kill(drain=True)
    assert handle.wait(120) == "KILLED"
    assert dict(handle.results("counts")) == page_views(spark, data.table)
    over(handle)
