"""`ray up cluster.yaml` for real: three machines over SSH, a topology across them, `ray down`, and nothing left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.machines import Machines, machines, missing
from tests.conftest import ROOT
from tests.deadline import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

TOPOLOGY = """
from rstream import Topology
from rstream.operators import sinks, sources

def build(limit: int = 0):
    topology = Topology("across")
    numbers = topology.source("numbers", sources.Rate(abs, per_s=2000, limit=limit or None), parallelism=3)
    numbers.key_by("seventh", seventh).count("count", parallelism=3).sink("out", sinks.Latest())
    return topology

def seventh(n):
    return n % 7

def summary(results):
    return sorted(results["out"])
"""


def edited(folder: Path, found: Machines) -> Path:
    """The cluster file of the repository, with the two lines edited that are to be edited, and the key."""
    head, *workers = found.addresses
    lines = []
    for line in (ROOT / "cluster.yaml").read_text(encoding="utf-8").splitlines():
        if "head_ip:" in line:
            line = f"  head_ip: {head}"
        elif "worker_ips:" in line:
            line = f"  worker_ips: [{', '.join(workers)}]"
        elif "ssh_private_key:" in line:
            line = f"  ssh_private_key: {found.key}"
        lines.append(line)
    path = folder / "cluster.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_cluster_over_ssh_comes_up_runs_a_topology_on_the_node_tier_and_goes(tmp_path: Path) -> None:
    if missing():
        pytest.skip(missing())  # a container without privileges cannot make machines
    with machines(tmp_path, 3) as found:
        file = str(edited(tmp_path, found))

        def said(*command: str) -> str:
            done = found.call(*command, cwd=ROOT)
            assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
            return done.stdout

        def on_head(command: str) -> str:
            return said("ray", "exec", file, command)

        def check(name: str) -> dict[str, Any]:
            answer = found.call("rstream", "doctor", "--cluster", file, "--json", cwd=ROOT).stdout
            return next(each for each in json.loads(answer) if each["name"] == name)

        said("ray", "get-auth-token", "--generate")
        said("ray", "up", "-y", "--no-config-cache", file)
        wait_until(lambda: "3 of 3 nodes" in check("cluster")["found"], "both workers to join", timeout_s=180)
        for address in found.addresses:
            assert check(f"machine {address}")["state"] == "ok", check(f"machine {address}")

        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "across.py").write_text(TOPOLOGY)
        said("ray", "rsync-up", file, f"{tmp_path}/mine/", "~/mine/")
        done = on_head("rstream run ~/mine/across.py --workers 3 -o limit=10000")
        assert str(sorted((n, len(range(n, 10_000, 7))) for n in range(7))) in done

        on_head("rstream submit ~/mine/across.py --workers 3")

        def status() -> dict[str, Any]:
            text = on_head("rstream status across --json")
            return dict(json.loads(text[text.index("{") : text.rindex("}") + 1]))

        wait_until(lambda: status()["emitted"] > 0, "tuples to flow")
        assert "node" in {edge["tier"] for edge in status()["edges"]}
        assert len({worker["node"] for worker in status()["workers"] if worker["tasks"]}) == 3

        said("ray", "down", "-y", file)
        # The head is stopped; the others leave by themselves a minute later, and Ray's own agents there after one more.
        wait_until(lambda: not found.commands("raylet"), "Ray to be gone from every machine", timeout_s=240)
        wait_until(lambda: not found.commands("ray::Worker"), "every worker of the topology to be gone", timeout_s=30)
        wait_until(lambda: not found.commands("ray::"), "Ray's agents to be gone", timeout_s=240)
