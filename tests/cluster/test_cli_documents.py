"""Every command of the README and of the first steps does what it says, on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from rstream import connect
from tests.cluster.command import Command
from tests.cluster.conftest import TwoNodes
from tests.deadline import wait_until
from tests.documents import ROOT, blocks, commands

Cli = Callable[..., CompletedProcess[str]]


def test_every_command_of_the_readme_works(rstream: Cli, tmp_path: Path) -> None:
    [topology] = blocks("README.md", "python")
    (tmp_path / "first.py").write_text(topology)
    # The cluster of the tests stands for the one of `ray start --head`; a unit test looks at the make targets.
    for words in commands("README.md"):
        if words[0] == "make" or words == ["ray", "start", "--head"]:
            continue
        assert words[0] == "rstream", words
        if words[1] not in ("run", "submit", "list", "doctor"):
            wait_until(lambda: connect("first").state() in ("ACTIVE", "INACTIVE"), "the topology to settle")
        done = rstream(*words[1:], cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        if words[1] == "run":
            assert "be " in done.stdout, (words, done.stderr)
    assert connect("first").status()["state"] == "KILLED"


def test_every_command_of_the_first_steps_works(rstream: Cli, tmp_path: Path) -> None:
    [topology] = blocks("docs/getting-started.md", "python")
    (tmp_path / "tally.py").write_text(topology)
    for words in commands("docs/getting-started.md"):
        if words[0] == "rstream":
            done = rstream(*words[1:], cwd=tmp_path)
            assert done.returncode == 0, (words, done.stderr)
            total = 10 if "count=40" in words else 100
            assert done.stdout == f"cake: {total}\ncoffee: {total}\ntea: {total * 5}\n"


@pytest.mark.usefixtures("two_nodes")
def test_the_example_of_the_handle_runs() -> None:
    [example] = blocks("docs/operations.md", "python")
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "operations.md", "exec"), names)
    assert names["handle"].state() == "KILLED"
    assert names["handle"].results("out") is not None


def test_the_main_job_runs_as_make_run_does(two_nodes: TwoNodes) -> None:
    command = Command(ROOT, {"RAY_ADDRESS": two_nodes.address})
    done = command.run("run", "topologies/wordcount.py", "-o", "seconds=1", "-o", "lines_per_s=2000")
    assert done.returncode == 0, done.stderr
    assert "The most frequent words:" in done.stdout
    assert "Next: " in done.stdout
    assert "process tier" in done.stderr
    command.left_nothing()


def test_json_is_the_only_thing_on_standard_output(two_nodes: TwoNodes, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from rstream import Topology\n"
        "print(0)\n"
        "def build():\n"
        "    topology = Topology('printing')\n"
        "    topology.source('n', [1, 2]).sink('out', print)\n"
        "    return topology\n"
    )
    for extra in (["--local"], ["--address", two_nodes.address]):
        done = Command(tmp_path).run("run", "job.py", "--json", *extra)
        report = json.loads(done.stdout)
        assert report["state"] == "FINISHED"
        assert {"counts", "decisions", "restarts", "latency"} <= set(report)
        printed = [line for line in done.stderr.splitlines() if not line.startswith("rstream: ")]
        assert printed == ["0", "1", "2"]
