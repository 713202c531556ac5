"""Tuples that wait too long, or find no room, are dropped where the user allows it, and counted; nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from rstream import Bolt, Topology
from rstream.api import Context, Out
from rstream.clock import ManualClock
from rstream.config import Config
from rstream.operators import sinks, sources
from rstream.runtime.embedded import Embedded

TUPLES = 400


class Slow(Bolt):
    """Ten milliseconds a tuple, one tuple at a time."""

    def open(self, ctx: Context) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Out) -> None:
        self.ctx.occupy(10.0)
        out.emit(value)


def _same(n: int) -> int:
    return n


def _run(**config: Any) -> tuple[list[int], dict[str, Any]]:
    """Four times as many tuples a second as the step takes."""
    topology = Topology("overload")
    topology.source("numbers", sources.Rate(_same, 400.0, TUPLES)).process("slow", Slow()).sink("out", sinks.Collect())
    host = Embedded(topology.build(), Config(batch={"max_tuples": 4}, **config), clock=ManualClock())
    host.run()
    return host.results("out"), {each["name"]: each for each in host.status()["operators"]}


def test_without_limits_nothing_is_dropped() -> None:
    came, operators = _run()
    assert came == list(range(TUPLES))
    assert operators["slow"]["dropped"] == operators["numbers"]["dropped"] == 0


def test_what_is_older_than_t_out_is_dropped_when_its_turn_comes() -> None:
    came, operators = _run(t_out_s=0.5)
    dropped = operators["slow"]["dropped"]
    assert dropped > TUPLES / 3
    assert operators["slow"]["failed"] == dropped
    assert len(came) + dropped == TUPLES
    assert came == sorted(came)


@pytest.mark.parametrize("q_size", [1, 20])
def test_a_source_drops_the_newest_while_q_size_tuples_wait(q_size: int) -> None:
    came, operators = _run(q_size=q_size)
    dropped = operators["numbers"]["dropped"]
    assert dropped > TUPLES / 2
    assert operators["slow"]["dropped"] == 0
    assert len(came) + dropped == TUPLES
    assert came[:q_size] == list(range(q_size)), "the oldest stay"


def test_what_is_queued_when_a_bolt_is_emptied_is_dropped_and_what_comes_later_is_not() -> None:
    topology = Topology("emptied")
    topology.source("numbers", sources.Rate(_same, 400.0, TUPLES)).process("slow", Slow()).sink("out", sinks.Collect())
    host = Embedded(topology.build(), Config(batch={"max_tuples": 4}), clock=ManualClock())
    host.start()
    while len(host.results("out")) < 20:
        if not host.turn():
            host.idle()
    queued = next(each["queue"] for each in host.status()["operators"] if each["name"] == "slow")
    for machine in host.machines.values():
        machine.empty()
    while not host.finished:
        if not host.turn():
            host.idle()
    dropped = next(each["dropped"] for each in host.status()["operators"] if each["name"] == "slow")
    came = host.results("out")
    assert 0 < dropped <= queued
    assert len(came) + dropped == TUPLES
    assert came[-1] == TUPLES - 1
