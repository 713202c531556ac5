"""A machine that is cut off, and whose workers go on as if nothing had happened, changes nothing in the results.

Two machines with a Ray node each, made of namespaces. The cable of one is pulled, for longer than a lease: its workers
live on, and write as long as their leases last. Their tasks are brought back on the other machine, not before the
leases are over. Then the cable is put back, and the workers that were cut off find out and end.
"""

from __future__ import annotations

import collections
import contextlib
import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rstream.runtime import cluster
from tests.cluster.machines import Machines, machines, missing
from tests.conftest import ROOT
from tests.deadline import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]

LEASE_S = 10.0
REPORTS_S = 0.5
CUT_S = 20.0
LINES = 40_000
WORDS = [f"word{n}" for n in range(50)]

TARGET = """
from pathlib import Path

from rstream import Topology
from rstream.operators import sinks
from tests.cluster.gated import Gated
from tests.cluster.test_partition import LEASE_S, LINES, REPORTS_S, line

def build(folder: str):
    topology = Topology("parted", backup={"interval_s": 0.5}, lease_s=LEASE_S, stats_interval_s=REPORTS_S)
    lines = topology.source("lines", Gated(line, 200.0, LINES, Path(folder) / "gate"), parallelism=2)
    counts = lines.flat_map("split", str.split, parallelism=2).key_by("word").count("count", parallelism=4)
    table = sinks.Sqlite(Path(folder) / "out.db", "counts", ("word", "n"), commit_interval_s=0.1)
    counts.sink("table", table, parallelism=4)
    return topology
"""

WATCH = """
import json, os, sys
from rstream import connect
from rstream.clock import sleep

handle = connect("parted")
while True:
    with open("status.new", "w") as file:
        json.dump(handle.status(), file)
    os.replace("status.new", "status.json")
    sleep(0.2)
"""

LISTEN = """
import os, threading
from rstream.runtime.links import GrpcListener

listener = GrpcListener("{far}", lambda connection: None, lambda connection, frame: open("arrived", "w").close())
with open("endpoint.new", "w") as file:
    file.write(listener.endpoint)
os.replace("endpoint.new", "endpoint")
threading.Event().wait()
"""

DIAL = """
import os, threading
from pathlib import Path
from rstream.clock import sleep
from rstream.core.messages import Frame
from rstream.runtime.links import dial_grpc, start_daemon

links = [dial_grpc(Path("endpoint").read_text(), lambda connection, frame: None, start_daemon) for _ in range(4)]
while not Path("cut").exists():
    for link in links:
        link.send([Frame(b"header", bytes(10_000))])
    sleep(0.02)
for link in links:
    link.send([Frame(b"header", bytes(1_000_000)) for _ in range(20)])
sleep(1.0)
closed = threading.Thread(target=lambda: [link.close() for link in links], daemon=True)
closed.start()
closed.join(5.0)
os._exit(1 if closed.is_alive() else 0)
"""


def line(n: int) -> str:
    return " ".join(WORDS[(n * step) % len(WORDS)] for step in (1, 7, 11, 13))


def truth() -> list[tuple[str, int]]:
    """Every update of every count, once."""
    counts = collections.Counter(word for n in range(LINES) for word in line(n).split())
    return sorted((word, n) for word, count in counts.items() for n in range(1, count + 1))


class Parted:
    """A topology on two machines, one of which can be cut off."""

    def __init__(self, folder: Path, found: Machines) -> None:
        self.folder, self.found = folder, found
        self.head, self.far = found.addresses
        self._environment = {**cluster.HEALTH_CHECKS, **cluster.HASH_SEED, "PYTHONPATH": str(ROOT)}
        self._environment |= {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}

    def start(self, backend: str) -> None:
        (self.folder / "target.py").write_text(TARGET)
        (self.folder / "watch.py").write_text(WATCH)
        ray = ("-m", "ray.scripts.scripts", "start", "--num-cpus=2", "--object-store-memory=100000000")
        head = ("--head", "--port=6379", "--include-dashboard=false", f"--node-ip-address={self.head}")
        self._python(self.head, *ray, *head)
        self._python(self.far, *ray, f"--address={self.head}:6379", f"--node-ip-address={self.far}")
        store = f"state.store=file://{self.folder}/checkpoints"
        kept = ("--set", f"state.backend={backend}", *(("--set", store) if backend == "checkpoint" else ()))
        submit = ("submit", "target.py", "--workers", "4", "-o", f"folder={self.folder}")
        self._python(self.head, "-m", "rstream", *submit, *kept)
        self.found.on(self.head, sys.executable, "watch.py", RAY_ADDRESS=f"{self.head}:6379", **self._environment)

    def _python(self, address: str, *arguments: str) -> None:
        environment = {**self._environment, "RAY_ADDRESS": f"{self.head}:6379"} if "rstream" in arguments else {}
        process = self.found.on(address, sys.executable, *arguments, **{**self._environment, **environment})
        assert process.wait(120) == 0, self.said()

    def said(self) -> str:
        """What was printed on the machines."""
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("log*")))

    def status(self) -> dict[str, Any]:
        """The newest status, as the head sees it."""
        path = self.folder / "status.json"
        return dict(json.loads(path.read_text())) if path.exists() else collections.defaultdict(int)

    def hosts(self) -> dict[str, str]:
        """The node of each worker that has tasks."""
        return {worker["id"]: worker["node"] for worker in self.status()["workers"] if worker["tasks"]}

    def far_workers(self) -> list[psutil.Process]:
        """The processes of workers on the far machine."""
        return self.found.processes(self.far, "ray::Worker")

    def rows(self) -> list[tuple[str, int]]:
        with contextlib.closing(sqlite3.connect(self.folder / "out.db")) as connection:
            return sorted(connection.execute("SELECT word, n FROM counts").fetchall())


@pytest.fixture(params=["upstream", "checkpoint"])
def parted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Parted]:
    if missing(ssh=False):
        pytest.skip(missing(ssh=False))  # a container without privileges cannot make machines
    with machines(tmp_path, 2, ssh=False) as found:
        parted = Parted(tmp_path, found)
        parted.start(request.param)
        yield parted


def lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_a_machine_that_is_cut_off_and_goes_on_changes_nothing_and_ends_when_it_is_back(parted: Parted) -> None:
    wait_until(lambda: parted.status()["emitted"] > 3000 and parted.status()["healed"], "tuples to flow, safe")
    before, zombies = parted.hosts(), parted.far_workers()
    assert len(set(before.values())) == 2, "there are tasks on both machines"
    assert zombies

    cut_s, cut_at_s = time.monotonic(), time.time()
    parted.found.plug(parted.far, connected=False)
    wait_until(lambda: parted.status()["restarts"] > 0, "the loss to be acted on", timeout_s=60)
    noticed_s = min(each["noticed_s"] for each in parted.status()["recoveries"]) - cut_at_s
    assert noticed_s >= LEASE_S - 2 * REPORTS_S, "before that they may still write"
    assert all(map(lives, zombies)), "those that are cut off go on"
    wait_until(lambda: parted.status()["healed"] and len(set(parted.hosts().values())) == 1, "the tasks to be back")
    healed_s = time.monotonic() - cut_s
    wait_until(lambda: time.monotonic() - cut_s > CUT_S, "the time to be over")
    assert all(map(lives, zombies)), "those that are cut off still go on"
    stayed = {worker for worker, node in before.items() if node in parted.hosts().values()}
    assert stayed <= parted.hosts().keys(), "nobody else was started anew"

    parted.found.plug(parted.far, connected=True)
    joined_s = time.monotonic()
    wait_until(lambda: not any(map(lives, zombies)), "those that were cut off to end", timeout_s=90)
    ended_s = time.monotonic() - joined_s
    (parted.folder / "gate").touch()
    wait_until(lambda: parted.status()["state"] == "FINISHED", "the end", timeout_s=120)
    assert parted.rows() == truth()
    print(f"acted on after {noticed_s:.1f} s, healed after {healed_s:.1f} s")
    print(f"those that were cut off ended {ended_s:.1f} s after the cable was back")


def test_a_link_to_a_machine_that_is_cut_off_ends_at_once_although_much_is_still_to_be_sent(tmp_path: Path) -> None:
    if missing(ssh=False):
        pytest.skip(missing(ssh=False))
    with machines(tmp_path, 2, ssh=False) as found:
        near, far = found.addresses
        (tmp_path / "listen.py").write_text(LISTEN.format(far=far))
        (tmp_path / "dial.py").write_text(DIAL)
        found.on(far, sys.executable, "listen.py", PYTHONPATH=str(ROOT))
        wait_until((tmp_path / "endpoint").exists, "somebody to listen")
        dialling = found.on(near, sys.executable, "dial.py", PYTHONPATH=str(ROOT))
        wait_until((tmp_path / "arrived").exists, "something to arrive")
        found.plug(far, connected=False)
        (tmp_path / "cut").touch()
        assert dialling.wait(60) == 0, "the run loop would wait for as long as the machine is cut off"
