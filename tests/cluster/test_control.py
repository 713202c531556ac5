"""The controller on real workers: policies decide from what is measured, and say so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rstream import client
from rstream.config import ControlConfig
from rstream.schedulers import registry
from tests.cluster.conftest import TwoNodes
from tests.cluster.loads import chain, expected
from tests.deadline import wait_until

pytestmark = pytest.mark.cluster
Command = Callable[..., subprocess.CompletedProcess[str]]


def test_every_policy_decides_on_one_live_topology(two_nodes: TwoNodes, rstream: Command) -> None:
    handle = client.submit(chain("live-policies", 200.0, None), policy="static", workers=2)
    wait_until(lambda: handle.status()["emitted"] > 0, "the topology to run")
    for policy in registry.names():
        if policy == "ra":
            quick = ("--set", "control.interval_s=1", "--set", "control.dry_run=true")
            answer = rstream("rebalance", "live-policies", "--policy", policy, *quick)
            assert answer.returncode == 0, answer.stderr
        else:
            handle.set_policy(policy, ControlConfig(interval_s=1.0, dry_run=True))
        wait_until(partial(_decided_by, handle, policy), f"a decision of {policy}")
    decided = handle.explain()
    assert {entry["policy"] for entry in decided} == set(registry.names())
    by_policy = {entry["policy"]: entry for entry in decided}
    saw = by_policy["es"]["saw"]
    rates = {operator["name"]: operator["rate"] for operator in saw["operators"]}
    assert rates["work"] == pytest.approx(200, rel=0.5)
    service = {operator["name"]: operator["service_ms"] for operator in saw["operators"]}
    assert service["work"] == pytest.approx(4.0, rel=0.5)
    assert len(saw["nodes"]) == 2
    assert saw["nodes"].keys() == {worker["node"] for worker in handle.status()["workers"]}
    assert handle.status()["policy"] == registry.names()[-1]
    explained = rstream("explain", "live-policies", "--last", "3")
    assert explained.returncode == 0, explained.stderr
    assert "tuples/s from the sources" in explained.stdout
    lines = rstream("status", "live-policies", "--history").stdout.splitlines()
    assert json.loads(lines[-1])["operators"].keys() >= {"numbers", "work"}
    handle.kill()


def test_policies_that_place_start_topologies_in_their_own_way(two_nodes: TwoNodes) -> None:
    placements = {}
    for policy in ("es", "even", "rstorm"):
        topology = chain(f"placed-{policy}", 2000.0, 2000, ms=0.0, work=3, count=1)
        handle = client.submit(topology, policy=policy, workers=2)
        assert handle.wait(60) == "FINISHED"
        assert dict(handle.results("out")) == expected(2000)
        status = handle.status()
        placements[policy] = sorted(
            (worker["node"], worker["tasks"]) for worker in status["workers"] if worker["tasks"]
        )
    assert placements["even"] != placements["es"]
    assert placements["rstorm"] != placements["es"]


def test_es_grows_a_step_onto_another_node_and_counts_stay_exact(two_nodes: TwoNodes) -> None:
    control = {"interval_s": 2.0, "parameters": {"phi": 0.0}}  # growing goes to nodes that are not in use, if any
    topology = chain("grown-by-es", 200.0, ms=12.0, work=1, count=1, control=control)
    handle = client.submit(topology, policy="es", workers=1)
    wait_until(lambda: acts(handle, "activate"), "es to have grown the step", timeout_s=120)
    decided = acts(handle, "activate")[0]
    assert decided["state"] == "done"
    kinds = [step["kind"] for step in decided["steps"]]
    assert kinds.index("load") < kinds.index("activate")
    assert all(step["took_s"] < 30.0 for step in decided["steps"])
    wait_until(lambda: active(handle, "work") >= 3, "what 200 tuples/s of 12 ms need")
    assert {step["kind"] for each in handle.explain() for step in each["steps"]} >= {"workers", "load", "activate"}
    working = [worker for worker in handle.status()["workers"] if any(t.startswith("work#") for t in worker["tasks"])]
    assert len({worker["node"] for worker in working}) == 2
    assert len({(worker["node"], worker["slot"]) for worker in working}) == len(working)
    handle.kill(drain=True)
    assert handle.wait(120) == "KILLED"
    counts = dict(handle.results("out"))
    assert counts == expected(handle.status()["emitted"])


def active(handle: client.Handle, step: str) -> int:
    """How many tasks of a step take part."""
    return next(int(each["active"]) for each in handle.status()["operators"] if each["name"] == step)


def acts(handle: client.Handle, kind: str) -> list[dict[str, Any]]:
    """The decisions that were carried out with a step of this kind."""
    return [
        each
        for each in handle.explain()
        if each["state"] == "done" and any(step["kind"] == kind for step in each["steps"])
    ]


def _decided_by(handle: client.Handle, policy: str) -> bool:
    decisions = handle.explain()
    return bool(decisions) and decisions[-1]["policy"] == policy
