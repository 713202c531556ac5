"""`state.backend: checkpoint` on real processes: after a kill all tasks go back, and the counts are exact."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from pathlib import Path

import pytest

from rstream import Topology, submit
from rstream.errors import ConfigError, UsageError
from rstream.operators import sinks
from tests.cluster.gated import Gated
from tests.cluster.test_recovery import LINES, counting, flowing, hosts, line, truth
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")


def test_counts_are_exact_after_a_kill_and_a_sink_outside_holds_every_update_once(tmp_path: Path, gate: Path) -> None:
    database = tmp_path / "updates.db"
    topology = Topology("checkpointed", backup={"interval_s": 0.5})
    lines = topology.source("lines", Gated(line, 500.0, LINES, gate), parallelism=2)
    counts = lines.flat_map("split", str.split, parallelism=3).key_by("word").count("count", parallelism=3)
    counts.sink("out", sinks.Latest())
    counts.sink("updates", sinks.Sqlite(database, "updates", ("word", "n")))
    store = {"state.backend": "checkpoint", "state.store": f"file://{tmp_path}/checkpoints"}
    handle = submit(topology, workers=4, spares=1, folder="", **store)  # type: ignore[arg-type]
    for kill in range(2):
        wait_until(lambda: flowing(handle, 300), "tuples to flow", timeout_s=90)
        before = handle.status()["survives"]["what"]
        wait_until(lambda b=before: handle.status()["survives"]["what"] != b, "another checkpoint")  # type: ignore[misc]
        assert re.fullmatch(r"any failure: all tasks go back to checkpoint \d+", handle.status()["survives"]["what"])
        found = hosts(handle)
        victim = sorted(found)[kill]
        os.kill(found[victim], signal.SIGKILL)
        wait_until(lambda k=kill: handle.status()["restarts"] == k + 1, "the death to be noticed")  # type: ignore[misc]
        wait_until(lambda v=victim: v not in hosts(handle), "a spare to take over")  # type: ignore[misc]
        assert {name: pid for name, pid in found.items() if name != victim}.items() <= hosts(handle).items()
    with pytest.raises(UsageError, match=r"state.backend: checkpoint, and cannot change while it runs"):
        handle.rebalance({"count": 4})
    gate.touch()
    assert handle.wait(90) == "FINISHED"
    assert dict(handle.results("out")) == truth()
    rows = sqlite3.connect(database).execute("select word, n from updates").fetchall()
    assert sorted(rows) == sorted((word, n) for word, count in truth().items() for n in range(1, count + 1))
    over(handle)
    wait_until(lambda: not list(tmp_path.rglob("checkpoints/*/*/*")), "old checkpoints to be removed")


def test_checkpoints_without_a_store_are_refused(gate: Path) -> None:
    with pytest.raises(ConfigError, match=r"state.backend checkpoint needs state.store"):
        submit(counting("storeless", gate), workers=1, folder="", **{"state.backend": "checkpoint"})  # type: ignore[arg-type]
