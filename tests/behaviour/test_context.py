"""What the engine does for a step beside handing it tuples: ticks, timers, randomness, metrics, lines of a socket."""

from __future__ import annotations

from collections import Counter

from rstream import Topology
from rstream.operators import sources
from tests.behaviour import parts
from tests.behaviour.conftest import RunTopology

SENT = 30


def same(number: int) -> int:
    return number


def test_ticks_come_while_there_is_input_and_every_timer_once(run_topology: RunTopology) -> None:
    topology = Topology("beats")
    numbers = topology.source("numbers", sources.Rate(same, per_s=SENT, limit=SENT))
    numbers.process("beats", parts.Beats, tick_s=0.05).sink("out")
    came = Counter(run_topology(topology)["out"])
    assert came.pop("tick") >= 3
    # A worker that is late gets many values at once, and timers after the last value may find the stream at its end.
    assert came["timer of 0"] == 1
    assert set(came.values()) == {1}
    assert came.keys() <= {f"timer of {n}" for n in range(SENT)}


def test_every_task_has_randomness_of_its_own(run_topology: RunTopology) -> None:
    topology = Topology("dice")
    topology.source("n", range(60), parallelism=3).process("dice", parts.Dice, parallelism=3).sink("out")
    thrown = {(task, n): face for task, n, face in run_topology(topology)["out"]}
    assert len({task for task, _ in thrown}) == 3
    assert len(set(thrown.values())) == 60, "two of 60 throws of a billion are hardly ever equal"


def test_the_metrics_of_a_step_are_in_status(run_topology: RunTopology) -> None:
    topology = Topology("measured")
    topology.source("n", range(90), parallelism=3).process("measure", parts.Measured, parallelism=3).sink("out")
    came = run_topology(topology)
    [metrics] = [step["metrics"] for step in came.status["operators"] if step["name"] == "measure"]
    assert metrics["seen"] == len(came["out"]) == 90
    assert metrics["newest"] > 0


def test_lines_of_a_tcp_server_arrive_in_order(run_topology: RunTopology) -> None:
    topology = Topology("lines")
    topology.source("lines", sources.TcpLines("127.0.0.1", parts.line_server())).sink("out")
    assert run_topology(topology)["out"] == parts.TCP_LINES
