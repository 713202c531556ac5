"""Pushed records arrive exactly once, whoever crashes; and the simulation notices it when a rule is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rstream.core import intake, order
from rstream.core.source_task import SourceTask
from rstream.errors import RunError
from rstream.lab.fault_checkpoints import CheckpointSchedule
from rstream.lab.fault_senders import PushedSchedule
from rstream.operators.ingest import IngestReader

SEEDS = range(12)
SEEDS_MAX = 100
"""So many schedules at most until a rule that is left out is noticed."""


def test_everything_pushed_counts_once_although_workers_and_senders_die() -> None:
    events: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = PushedSchedule(seed).run()
        assert outcome.exact, (seed, outcome.verdict)
        events.update(outcome.events)
    assert events["sender dies"] > 5
    assert events["crash"] + events["crash of several"] + events["zombie"] > 5


class Checkpointed(PushedSchedule, CheckpointSchedule):
    """The same with `state.backend: checkpoint`."""


def test_everything_pushed_counts_once_with_checkpoints_too() -> None:
    for seed in SEEDS:
        outcome = Checkpointed(seed).run()
        assert outcome.exact, (seed, outcome.verdict)


def _acknowledges_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intake._Place, "covered", lambda place, part: place.reader.taken(part))


def _does_not_wait_for_the_sender(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IngestReader, "ready", lambda reader, part, count: reader._decode(part, count) >= 0)


def _does_not_write_the_partition_down(patch: pytest.MonkeyPatch) -> None:
    begin = SourceTask._begin

    def forget(task: SourceTask, record: order.Record) -> None:
        kind, split, part, *rest = record
        if kind == order.READ and not task.replay:
            part = min(task.readers[split].offset, default=part)
        begin(task, (kind, split, part, *rest))  # type: ignore[arg-type]

    patch.setattr(SourceTask, "_begin", forget)


def _takes_what_it_has(patch: pytest.MonkeyPatch) -> None:
    push = IngestReader.push

    def take(reader: IngestReader, part: int, first: int, *rest: Any) -> bool:
        if part in reader._parts:
            reader._parts[part].received = first
        return push(reader, part, first, *rest)

    patch.setattr(IngestReader, "push", take)


@pytest.mark.parametrize(
    "break_it",
    [
        _acknowledges_too_early,
        _does_not_wait_for_the_sender,
        _does_not_write_the_partition_down,
        _takes_what_it_has,
    ],
)
def test_a_rule_that_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    for seed in range(20, 20 + SEEDS_MAX):
        try:
            if not PushedSchedule(seed).run().exact:
                return
        except (AssertionError, RunError):
            return
    raise AssertionError(f"all of {SEEDS_MAX} schedules are exact")
