"""Live change of the parallelism on real processes: no restart, exact counts, also with a SIGKILL in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rstream import submit
from rstream.client import Handle
from rstream.errors import UsageError
from tests.cluster.test_recovery import counting, hosts, truth
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")


def operator(handle: Handle, name: str) -> dict[str, Any]:
    return next(each for each in handle.status()["operators"] if each["name"] == name)


def changed(handle: Handle) -> bool:
    return handle.state() in ("ACTIVE", "FINISHED")


def test_a_keyed_step_grows_and_shrinks_while_it_runs_and_counts_stay_exact(gate: Path) -> None:
    handle = submit(counting("rescaled", gate), workers=3, spares=1, folder="")
    wait_until(lambda: handle.status()["emitted"] > 300 and handle.status()["healed"], "tuples to flow", timeout_s=90)
    before = hosts(handle)
    handle.rebalance({"count": 6})
    wait_until(lambda: changed(handle), "six tasks to own the keys", timeout_s=60)
    assert hosts(handle) == before, "nothing was restarted"
    count = operator(handle, "count")
    assert (count["parallelism"], count["active"], count["pool"]) == (6, 6, 0)
    wait_until(lambda: handle.status()["healed"], "backups of the new tasks", timeout_s=60)
    victim = next(worker for worker in handle.status()["workers"] if "count#5" in worker["tasks"])
    os.kill(victim["pid"], signal.SIGKILL)
    handle.rebalance({"count": 2, "split": 4})
    wait_until(lambda: handle.status()["restarts"] == 1 and changed(handle), "two tasks to own the keys", timeout_s=60)
    count = operator(handle, "count")
    assert (count["parallelism"], count["active"], count["pool"]) == (2, 2, 4)
    assert operator(handle, "split")["active"] == 4
    gate.touch()
    assert handle.wait(120) == "FINISHED"
    assert dict(handle.results("out")) == truth()
    over(handle)


def test_what_cannot_change_is_refused_in_one_line_and_changes_nothing(gate: Path) -> None:
    handle = submit(counting("kept", gate), workers=2, folder="")
    wait_until(lambda: handle.state() == "ACTIVE", "the topology to run", timeout_s=60)
    before = handle.status()["operators"]
    for wanted, why in (
        ({"cuont": 3}, "no step 'cuont'; its steps: lines, split, count, out"),
        ({"count": 0}, "between 1 and 10000, got 0"),
        ({"count": 10**9}, "between 1 and 10000"),
        ({"split": 2, "lines": 3}, "'lines': a source keeps its tasks"),
        ({"out": 3}, "a keyed sink keeps its tasks"),
    ):
        with pytest.raises(UsageError, match=why):
            handle.rebalance(wanted)
    assert [each["parallelism"] for each in handle.status()["operators"]] == [each["parallelism"] for each in before]
    over(handle)
