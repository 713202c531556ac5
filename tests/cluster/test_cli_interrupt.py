"""Ctrl-C on `run`: drains, reports, exits as shells expect, and leaves no process, socket or file behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.command import Command, files_in, lines
from tests.deadline import wait_until

ENDLESS = """
from rstream import Topology
from rstream.operators import sinks, sources

def build(slow: bool = False):
    topology = Topology("endless")
    numbers = topology.source("numbers", sources.Rate(abs, per_s=500))
    numbers.process("say", say).key_by("seventh", seventh).count("count", parallelism=2).sink("out", sinks.Latest())
    if slow:
        topology.source("one", [1]).map("stuck", stuck, blocking=True).sink("never")
    return topology

def seventh(n):
    return n % 7

def stuck(n):
    import time
    time.sleep(600)

def say(n, out):
    if n == 20:
        print("flowing")
    out.emit(n)
"""

HASHES = """
from rstream import Topology
from rstream.operators import sinks

def build():
    topology = Topology("hashes")
    topology.source("words", ["word"] * 8).map("hash", hash, parallelism=2).sink("out", sinks.Stdout())
    return topology
"""


class Running:
    """A command whose standard error is read while it runs."""

    def __init__(self, command: Command, *arguments: str) -> None:
        self.process: subprocess.Popen[str] = command.start(*arguments)
        self.err: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.err.extend(iter(self.process.stderr.readline, ""))

    def said(self, text: str) -> bool:
        return any(text in line for line in list(self.err))

    def end(self) -> tuple[int, str]:
        """(exit status, standard output)"""
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        status = self.process.wait(60)
        self._reader.join(10)
        return status, out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "endless.py").write_text(ENDLESS)
    return tmp_path


@pytest.fixture
def command(folder: Path) -> Iterator[Command]:
    """A command with a place of its own for temporary files; a short one, for sockets are in it."""
    with tempfile.TemporaryDirectory() as temp:
        yield Command(folder, {"TMPDIR": temp, "RAY_TMPDIR": tempfile.gettempdir()})


@pytest.mark.parametrize(
    ("host", "number"),
    [
        ("embedded", signal.SIGINT),
        ("embedded", signal.SIGTERM),
        ("ray", signal.SIGINT),
        pytest.param("ray", signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_ctrl_c_drains_reports_and_leaves_nothing(
    folder: Path, command: Command, host: str, number: signal.Signals
) -> None:
    running = Running(command, "run", "endless.py", "--json", *(["--local"] if host == "embedded" else []))
    wait_until(lambda: running.said("flowing"), "tuples to flow", timeout_s=90)
    running.process.send_signal(number)
    status, out = running.end()
    assert status == 130, running.err
    assert running.said("interrupted: draining")
    report = json.loads(out)
    assert report["state"] == "KILLED"
    counts = report["counts"]
    assert counts["numbers"]["emitted"] == counts["count"]["processed"] == counts["out"]["processed"] > 20
    assert not running.said("Traceback")
    command.left_nothing()
    assert list(files_in(folder)) == ["endless.py"]


@pytest.mark.parametrize("host", ["embedded", "ray"])
def test_a_second_ctrl_c_stops_at_once(command: Command, host: str) -> None:
    local = ["--local"] if host == "embedded" else []
    running = Running(command, "run", "endless.py", "-o", "slow=true", "--json", *local)
    wait_until(lambda: running.said("flowing"), "tuples to flow", timeout_s=90)
    running.process.send_signal(signal.SIGINT)
    wait_until(lambda: running.said("interrupted: draining"), "the first Ctrl-C to be seen")
    running.process.send_signal(signal.SIGINT)
    status, out = running.end()
    assert (status, out) == (130, ""), running.err
    assert lines(running.err[-1]) == ["rstream: interrupted"]
    assert not running.said("Traceback")
    command.left_nothing()


def test_a_run_that_is_killed_takes_its_own_ray_with_it(command: Command) -> None:
    running = Running(command, "run", "endless.py")
    wait_until(lambda: len(command.alive()) > 3, "Ray to be running", timeout_s=60)
    running.process.kill()
    assert running.end()[0] == -signal.SIGKILL
    wait_until(lambda: not command.alive(), "every process of the command to be gone", timeout_s=40)


def test_ctrl_c_while_ray_starts_leaves_nothing(command: Command) -> None:
    running = Running(command, "run", "endless.py")
    wait_until(lambda: len(command.alive()) > 1, "Ray to be starting", timeout_s=60)
    running.process.send_signal(signal.SIGINT)
    status, out = running.end()
    assert (status, out) == (130, ""), running.err
    assert not running.said("Traceback"), running.err
    command.left_nothing()


def test_a_run_on_a_ray_of_its_own_leaves_nothing(folder: Path, command: Command) -> None:
    done = command.run("run", "endless.py", "--duration", "1", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "flowing\n"
    assert "KILLED" in done.stderr
    command.left_nothing()
    assert list(files_in(folder)) == ["endless.py"]


def test_a_failing_run_on_a_ray_of_its_own_leaves_nothing(folder: Path, command: Command) -> None:
    (folder / "bad.py").write_text(ENDLESS.replace('print("flowing")', "1 / 0"))
    done = command.run("run", "bad.py")
    assert done.returncode == 1, done.stderr
    assert "rstream: step 'say', task 0, node " in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    command.left_nothing()


def test_workers_of_a_ray_of_its_own_hash_alike(folder: Path, command: Command) -> None:
    (folder / "hashes.py").write_text(HASHES)
    done = command.run("run", "hashes.py", "--workers", "2")
    assert done.returncode == 0, done.stderr
    seeded = {**os.environ, "PYTHONHASHSEED": "0"}
    wanted = subprocess.run([sys.executable, "-c", "print(hash('word'))"], env=seeded, capture_output=True, text=True)
    assert done.stdout.split() == [wanted.stdout.strip()] * 8
