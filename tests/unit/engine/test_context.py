"""What a task is given: its randomness, time, state, metrics and logger."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rstream import Bolt, Topology
from rstream.clock import ManualClock
from rstream.config import Config
from rstream.core.context import Collector
from rstream.groupings import Key, Shuffle
from rstream.operators import sources
from rstream.runtime.embedded import Embedded
from rstream.testing import run
from tests.behaviour.parts import Dice


def rolls(seed: int = 0, workers: int = 1) -> list[Any]:
    topology = Topology("dice")
    topology.source("numbers", range(200)).grouped(Shuffle()).process("dice", Dice, parallelism=2).sink("out")
    return sorted(run(topology, workers=workers, config=Config(seed=seed))["out"])


def test_the_same_seed_rolls_the_same_and_another_one_not() -> None:
    assert rolls() == rolls()
    assert rolls(seed=1) == rolls(seed=1)
    assert rolls(seed=1) != rolls(seed=2)


def test_each_task_rolls_dice_of_its_own() -> None:
    by_task = [{roll for task, _, roll in rolls() if task == number} for number in (0, 1)]
    assert by_task[0].isdisjoint(by_task[1])
    assert min(map(len, by_task)) > 50


class Now(Bolt):
    """The time at each value, read twice."""

    def open(self, ctx: Any) -> None:
        self.ctx = ctx

    def process(self, value: Any, out: Any) -> None:
        out.emit((self.ctx.now(), self.ctx.now()))


def test_time_stands_still_within_a_step() -> None:
    topology = Topology("now")
    topology.source("numbers", range(50)).process("now", Now).sink("out")
    came = run(topology, clock=ManualClock(1234.0))["out"]
    assert all(first == second >= 1234.0 for first, second in came)
    assert [first for first, _ in came] == sorted(first for first, _ in came)


class Everything(Bolt):
    """Uses metrics, logger and state."""

    def open(self, ctx: Any) -> None:
        self.ctx = ctx
        self.seen = ctx.state.value("seen", default=0)
        self.items = ctx.state.map("items")

    def process(self, value: Any, out: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        self.items.set(value, True)
        self.ctx.metrics.count("values")
        self.ctx.metrics.gauge("newest", value[1])
        self.ctx.logger.info("got %s", value)
        out.emit((self.ctx.state.current, self.seen.get(), len(self.items)))


def test_metrics_and_logs_carry_the_name_of_the_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    topology = Topology("tools")
    topology.source("pairs", [("a", 1), ("b", 5), ("a", 2)]).grouped(Key(lambda pair: pair[0])).process(
        "all", Everything
    ).sink("out")
    host = Embedded(topology.build(), clock=ManualClock())
    host.run()
    assert host.results() == [("a", 1, 1), ("b", 1, 1), ("a", 2, 2)]
    [task] = [task for machine in host.machines.values() for task in machine.bolts if task.id.operator == "all"]
    assert task.ctx.metrics.values == {"values": 3.0, "newest": 2}
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("rstream.tools.all", f"got {pair}") for pair in [("a", 1), ("b", 5), ("a", 2)]
    ]


class Remember(Bolt):
    """Its state on a stream without keys is its own."""

    def open(self, ctx: Any) -> None:
        self.count = ctx.state.value("count", default=0)

    def process(self, value: Any, out: Any) -> None:
        self.count.set(self.count.get() + 1)
        out.emit(self.count.get())


def test_state_without_a_key_belongs_to_the_task() -> None:
    topology = Topology("unkeyed")
    topology.source("numbers", range(6)).grouped(Shuffle()).process("remember", Remember, parallelism=2).sink("out")
    assert sorted(run(topology)["out"]) == [1, 1, 2, 2, 3, 3]


def test_pairs_emitted_as_two_columns_are_the_pairs_themselves() -> None:
    out = Collector()
    out.extend_pairs(["a", "b"], [1, 2])
    assert out.buffer == [("a", 1), ("b", 2)]
    assert out.flat == 2
    out.emit("c")
    out.extend_pairs(["d"], [4])  # after something else nothing is known of the whole any more
    assert out.buffer == [("a", 1), ("b", 2), "c", ("d", 4)]
    assert out.flat == 2


def test_pairs_that_hold_something_changeable_are_copied_like_any_other_value() -> None:
    out, held = Collector(), [1]
    out.extend_pairs(["a"], [held])
    held.append(2)
    assert out.buffer == [("a", [1])]
    assert out.flat == 0


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Collector().extend_pairs(["a", "b"], [1])


def test_a_rollback_takes_back_what_is_known_of_the_pairs() -> None:
    out = Collector()
    mark = out.mark()
    out.extend_pairs(["a"], [1])
    out.rollback(mark)
    out.emit("b")
    assert (out.buffer, out.flat) == (["b"], 0)


class Seen(Bolt):
    """Remembers every value for 10 s."""

    def open(self, ctx: Any) -> None:
        self.seen = ctx.state.value("seen", default=False, ttl_s=10.0)

    def process(self, value: Any, out: Any) -> None:
        self.seen.set(True)


def test_state_that_has_expired_is_let_go_although_nobody_asks_for_it_again() -> None:
    topology = Topology("expiring")
    numbers = topology.source("numbers", sources.Rate(int, per_s=100, limit=6000))
    numbers.key_by("n").process("seen", Seen()).sink("out")
    host = Embedded(topology.build(), clock=ManualClock())
    host.run()
    [machine] = host.machines.values()
    [task] = [bolt for bolt in machine.bolts if bolt.id.operator == "seen"]
    assert 1000 <= task.ctx.state.cell_count() < 1300, "the keys of the last 10 of 60 seconds"
