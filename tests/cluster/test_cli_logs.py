"""`logs`, `status` and `doctor` on a running cluster: what workers said, where settings came from, free slots."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rstream import Bolt, Topology, connect, submit
from rstream.api import Context, Out
from rstream.client import Handle
from rstream.core.records import OVER
from rstream.operators import sinks, sources
from tests.cluster.conftest import TwoNodes
from tests.deadline import wait_until

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


class Talk(Bolt):
    """Says something in every way there is."""

    def open(self, ctx: Context) -> None:
        self.ctx = ctx
        ctx.logger.info("opened")

    def process(self, value: Any, out: Out) -> None:
        import logging

        if value < 3:
            self.ctx.logger.warning("value %d", value)
            print(f"printed {value}")
            print(f"complained {value}", file=sys.stderr)
            logging.getLogger("a_library").info("noted %d", value)
        out.emit(value)


def talkative(name: str, source: Any) -> Topology:
    topology = Topology(name, policy="even")
    topology.source("n", source).process("talk", Talk()).sink("out", sinks.Discard())
    return topology


@pytest.fixture
def finished(two_nodes: TwoNodes) -> Handle:
    handle = submit(talkative("talked", list(range(5))), spares=0, folder="")
    assert handle.wait(60) == "FINISHED"
    return handle


def test_what_was_said_stays_after_the_end_with_step_task_worker_and_node(finished: Handle, rstream: Cli) -> None:
    rows = json.loads(rstream("logs", "talked", "--json").stdout)
    said = [(row["level"], row["text"]) for row in rows]
    assert said[0] == ("INFO", "opened")
    expected = [
        entry
        for n in range(3)
        for entry in (
            ("WARNING", f"value {n}"),
            ("stdout", f"printed {n}"),
            ("stderr", f"complained {n}"),
            ("INFO", f"noted {n}"),
        )
    ]
    assert said[1:] == expected
    [worker] = finished.status()["workers"]
    assert {(row["step"], row["task"], row["worker"], row["node"]) for row in rows} == {
        ("talk", 0, worker["id"], worker["node"])
    }
    assert [row["at_s"] for row in rows] == sorted(row["at_s"] for row in rows)


def test_logs_are_filtered_by_step_and_worker(finished: Handle, rstream: Cli) -> None:
    assert "value 2" in rstream("logs", "talked", "--step", "talk", "--worker", "w0").stdout
    assert rstream("logs", "talked", "--step", "out").stdout == ""
    assert rstream("logs", "talked", "--worker", "w7").stdout == ""
    wrong = rstream("logs", "talked", "--step", "tlak")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "rstream: topology 'talked' has no step 'tlak'; its steps: n, talk, out\n"


def test_a_line_for_people_tells_time_level_task_worker_and_node(finished: Handle, rstream: Cli) -> None:
    [first, *_] = rstream("logs", "talked").stdout.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    talk#0 talked/w0\.\d+ node \w{12}: opened", first
    )


@pytest.fixture
def slow(two_nodes: TwoNodes) -> Iterator[Handle]:
    handle = submit(talkative("slow", sources.Rate(abs, per_s=2)), spares=0, folder="")
    yield handle
    if handle.state() not in OVER:
        handle.kill()


def test_following_shows_lines_as_they_come_and_ends_with_the_topology(slow: Handle, two_nodes: TwoNodes) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rstream", "logs", "slow", "-f", "--json", "--address", two_nodes.address],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(json.loads(line)["text"])
        if "value 2" in seen:
            break
    assert seen[:3] == ["opened", "value 0", "printed 0"]
    slow.kill(drain=True)
    assert "noted 2" in process.stdout.read()
    assert process.wait(30) == 0


def test_what_a_killed_worker_said_is_not_lost(slow: Handle) -> None:
    wait_until(lambda: any(line.text == "value 0" for line in slow.logs()[1]), "the line to be handed on")
    pid = slow.status()["workers"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid), "the worker to be gone")
    assert any(line.text == "value 0" for line in connect("slow").logs()[1])


def test_status_tells_where_each_setting_came_from(rstream: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from rstream import Topology\n"
        "def build():\n"
        "    topology = Topology('origins', policy='even', seed=4)\n"
        "    topology.source('n', [1]).sink('out')\n"
        "    return topology\n"
    )
    (tmp_path / "site.yaml").write_text("seed: 5\nbatch: {window: 100}\n")
    done = rstream("submit", "job.py", "--config", "site.yaml", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["key"]: row for row in json.loads(rstream("status", "origins", "--json").stdout)["settings"]}
    assert rows["policy"] == {"key": "policy", "value": "even", "origin": "topology"}
    assert rows["seed"] == {"key": "seed", "value": 5, "origin": "file site.yaml"}
    assert rows["batch.window"]["value"] == 100
    assert rows["workers"] == {"key": "workers", "value": 1, "origin": "flag"}
    assert rows["spares"] == {"key": "spares", "value": 1, "origin": "default"}
    table = rstream("status", "origins").stdout
    assert re.search(r"seed +5 +file site\.yaml", table)
    assert "spares" not in table


def test_doctor_counts_the_free_slots_of_each_node(slow: Handle, rstream: Cli) -> None:
    wait_until(lambda: slow.state() == "ACTIVE", "the topology to run")
    done = rstream("doctor", "--json")
    assert done.returncode == 0, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["cluster"]["state"] == "ok"
    assert checks["cluster"]["found"].endswith("2 nodes")
    nodes = sorted(check["found"] for name, check in checks.items() if name.startswith("node "))
    assert [found.split(",")[0] for found in nodes] == ["7 of 8 slots free", "8 of 8 slots free"]


def test_doctor_fails_where_the_cluster_does_not_answer(rstream: Cli) -> None:
    done = rstream("doctor", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert "fail  cluster: no Ray cluster answers at 127.0.0.1:1" in done.stdout
    assert "remedy: " in done.stdout
