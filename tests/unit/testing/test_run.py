"""`rstream.testing.run`: a topology in virtual time."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import pytest

from rstream import Bolt, Topology
from rstream.clock import ManualClock
from rstream.errors import TopologyError
from rstream.operators.sinks import JsonLines, Latest
from rstream.operators.sources import Rate
from rstream.testing import run


class NapThenPass(Bolt):
    """Takes an hour for each value."""

    def open(self, ctx: Any) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Any) -> None:
        self.ctx.occupy(3_600_000)
        out.emit((value, self.ctx.now()))


def test_hours_pass_in_no_time() -> None:
    topology = Topology("slow")
    topology.source("numbers", [1, 2, 3]).process("nap", NapThenPass).sink("out")
    clock = ManualClock(1000.0)
    outputs = run(topology, clock=clock)
    assert [value for value, _ in outputs["out"]] == [1, 2, 3]
    assert clock.now() >= 1000.0 + 3 * 3600


def test_inputs_replace_the_named_sources_and_leave_the_others() -> None:
    topology = Topology("two")
    left, right = topology.source("left", ["l"]), topology.source("right", ["r"])
    topology.merge("both", left, right).sink("out")
    assert sorted(run(topology, inputs={"left": ["x", "y"]})["out"]) == ["r", "x", "y"]


def test_inputs_for_a_step_that_is_no_source_are_refused_with_the_list_of_sources() -> None:
    topology = Topology("one")
    topology.source("words", ["a"]).sink("out")
    with pytest.raises(TopologyError, match="'out' is no source of this topology; its sources: words"):
        run(topology, inputs={"out": []})


def test_a_sink_that_writes_outside_writes_nothing_in_a_test(tmp_path: pathlib.Path) -> None:
    topology = Topology("file")
    topology.source("words", ["a", "b"]).sink("out", JsonLines(tmp_path))
    assert run(topology) == {"out": ["a", "b"]}
    assert list(tmp_path.iterdir()) == []


def test_a_sink_with_results_of_its_own_gives_those() -> None:
    topology = Topology("latest")
    topology.source("pairs", [("a", 1), ("b", 1), ("a", 2)]).sink("out", Latest)
    assert run(topology) == {"out": [("a", 2), ("b", 1)]}


def test_a_graph_can_be_run_again_and_on_several_workers() -> None:
    topology = Topology("again")
    topology.source("numbers", range(100), parallelism=3).map("double", lambda n: n * 2, parallelism=2).sink("out")
    graph = topology.build()
    wanted = list(range(0, 200, 2))
    for workers in (1, 2, 3, 4):
        assert sorted(run(graph, workers=workers)["out"]) == wanted


def test_a_source_that_never_ends_runs_for_the_given_virtual_time() -> None:
    topology = Topology("endless")
    topology.source("ticks", Rate(lambda n: n, per_s=100.0)).sink("out")
    came = run(topology, duration_s=60.0)["out"]
    assert came == list(range(len(came)))
    assert 5900 <= len(came) <= 6000


def test_a_topology_under_test_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    topology = Topology("threads")
    topology.source("numbers", [1]).sink("out")
    run(topology, workers=2)
    assert threading.active_count() == before
