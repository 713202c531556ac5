"""Savepoints on a cluster: results go on exactly, at another parallelism too; what is wrong is refused."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rstream import Topology, connect, submit
from rstream.operators import sinks, sources
from tests.cluster.test_recovery import counting, flowing, hosts, truth
from tests.cluster.test_topologies_on_ray import over
from tests.deadline import wait_until

pytestmark = pytest.mark.usefixtures("two_nodes")


def test_a_run_from_a_savepoint_at_another_parallelism_ends_with_the_exact_counts(tmp_path: Path, gate: Path) -> None:
    first = submit(counting("saved", gate), workers=3, folder="")
    wait_until(lambda: flowing(first, 500), "tuples to flow", timeout_s=90)
    result = first.savepoint(str(tmp_path / "saved"), stop=True)
    assert result["tasks"] == 10
    assert first.wait(30) == "KILLED"
    gate.touch()
    tasks = (3, 2, 5, 1)
    again = submit(counting("saved", gate, tasks), workers=2, folder="", start_from=str(tmp_path / "saved"))
    assert again.wait(90) == "FINISHED"
    assert dict(again.results("out")) == truth()
    over(again)


def test_a_topology_with_checkpoints_is_saved_with_what_its_sinks_have_committed(tmp_path: Path) -> None:
    def lines(per_s: float) -> Topology:
        topology = Topology("checkpointed", backup={"interval_s": 0.5})
        numbers = topology.source("numbers", sources.Rate(int, per_s=per_s, limit=3000), parallelism=2)
        numbers.sink("out", sinks.JsonLines(tmp_path / "out"), parallelism=2)
        return topology

    options: dict[str, Any] = {
        "state.backend": "checkpoint",
        "state.store": str(tmp_path / "store"),
        "workers": 2,
        "folder": "",
    }
    first = submit(lines(300), **options)
    wait_until(lambda: first.status()["emitted"] > 300, "tuples to flow", timeout_s=90)
    first.savepoint(str(tmp_path / "place"), stop=True)
    again = submit(lines(3000), start_from=str(tmp_path / "place"), **options)
    assert again.wait(90) == "FINISHED"
    found = [int(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().split()]
    assert sorted(found) == list(range(3000))
    over(again)


@pytest.mark.parametrize("backend", ["upstream", "checkpoint"])
def test_a_restart_at_another_parallelism_leaves_each_record_once_in_a_sink_outside(
    tmp_path: Path, backend: str
) -> None:
    topology = Topology(f"restarted-{backend}", backup={"interval_s": 0.5})
    numbers = topology.source("numbers", sources.Rate(int, per_s=300, limit=3000), parallelism=2)
    numbers.map("same", int, parallelism=2).sink("out", sinks.JsonLines(tmp_path / "out"), parallelism=2)
    places = {"state.store": str(tmp_path / "store"), "control.restart_uri": str(tmp_path)}
    flags: dict[str, Any] = {"state.backend": backend, **places, "workers": 2}
    handle = submit(topology, folder="", **flags)
    wait_until(lambda: handle.status()["emitted"] > 300, "tuples to flow", timeout_s=90)
    handle.restart({"same": 3})
    assert handle.wait(120) == "FINISHED"
    assert handle.status()["restarts"] == 1
    found = [int(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().split()]
    assert sorted(found) == list(range(3000)), "nothing was done a second time"
    over(handle)


def test_a_topology_goes_on_exactly_after_a_savepoint_that_a_crash_disturbed(tmp_path: Path, gate: Path) -> None:
    handle = submit(counting("disturbed", gate), workers=3, spares=1, folder="")
    wait_until(lambda: flowing(handle, 300), "tuples to flow with backups in place", timeout_s=90)
    victim = sorted(hosts(handle).items())[0][1]
    os.kill(victim, signal.SIGKILL)
    result = handle.savepoint(str(tmp_path / "disturbed"))
    assert result["tasks"] == 10
    gate.touch()
    assert handle.wait(90) == "FINISHED"
    assert dict(handle.results("out")) == truth()
    again = submit(counting("disturbed", gate), workers=2, folder="", start_from=str(tmp_path / "disturbed"))
    assert again.wait(90) == "FINISHED"
    assert dict(again.results("out")) == truth()
    over(again)


def test_a_topology_that_lost_more_than_its_backups_cover_goes_back_to_its_savepoint_and_says_so(
    tmp_path: Path, gate: Path
) -> None:
    handle = submit(counting("lost", gate), workers=2, spares=0, folder="")
    wait_until(lambda: flowing(handle, 300), "tuples to flow with backups in place", timeout_s=90)
    handle.savepoint(str(tmp_path / "kept"))
    assert handle.status()["savepoint"] == str(tmp_path / "kept")
    for pid in hosts(handle).values():
        os.kill(pid, signal.SIGKILL)
    gate.touch()
    assert handle.wait(120) == "FINISHED"
    assert dict(handle.results("out")) == truth()
    said = [error["error"] for error in handle.errors()]
    assert any(f"starting again from savepoint {tmp_path / 'kept'}" in line for line in said), said
    over(handle)


TOPOLOGY = """
from rstream import Topology
from rstream.operators import sinks, sources

def build(name="kept", step="count", tasks=2, per_s=2000):
    topology = Topology(name)
    numbers = topology.source("numbers", sources.Rate(lambda n: n % 7, per_s=per_s, limit=1000))
    numbers.key_by("n").count(step, parallelism=tasks).sink("out", sinks.Latest())
    return topology

def summary(results):
    return sorted(results["out"])
"""


def test_the_command_line_saves_goes_on_and_refuses_what_does_not_fit(
    rstream: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "kept.py").write_text(TOPOLOGY)
    place = tmp_path / "place"
    slowly = rstream("submit", "kept.py", "--workers", "2", "-o", "per_s=10", cwd=tmp_path)
    assert slowly.returncode == 0, slowly.stderr
    wait_until(lambda: connect("kept").status()["emitted"] > 20, "tuples to flow", timeout_s=60)
    saved = rstream("savepoint", "kept", "place", "--stop", cwd=tmp_path)
    assert saved.returncode == 0, saved.stderr
    assert "saved to" in saved.stdout
    done = rstream("run", "kept.py", "--from", "place", "-o", "tasks=3", cwd=tmp_path)
    expected = sorted((n, len(range(n, 1000, 7))) for n in range(7))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == str(expected)

    def refused(*arguments: str) -> str:
        answer = rstream(*arguments, cwd=tmp_path)
        assert answer.returncode == 2, answer
        assert "Traceback" not in answer.stderr
        return answer.stderr.strip().splitlines()[-1]

    assert "of topology 'kept', not of 'other'" in refused("run", "kept.py", "-o", "name=other", "--from", "place")
    assert "holds state of step 'count'" in refused("submit", "kept.py", "-o", "step=counts", "--from", "place")
    assert "no savepoint" in refused("run", "kept.py", "--local", "--from", "nowhere")
    assert "there is nothing to save" in refused("savepoint", "kept", "elsewhere")
    state = next(place.glob("count-0.*"))
    state.write_bytes(state.read_bytes()[:-1])
    assert f"file {state.name} has" in refused("run", "kept.py", "--from", "place")
