"""The fault simulation: seeded faults of the real core give exact results, and a seed replays identically."""

from __future__ import annotations

from collections import Counter

from rstream.lab.faults import FAULTS, Schedule, run_schedules

SEEDS = 24


def test_every_schedule_of_a_fixed_set_is_exact() -> None:
    outcomes = list(run_schedules(1000, SEEDS))
    assert [(each.seed, each.verdict) for each in outcomes if not each.exact] == []
    happened: Counter[str] = sum((each.events for each in outcomes), Counter())
    assert set(FAULTS) <= set(happened)


def test_a_source_that_replays_a_change_of_receivers_sends_its_watermarks_where_it_sent_them_before() -> None:
    outcome = Schedule(127).run()
    assert (outcome.verdict, outcome.events["windows"]) == ("exact", 1)


def test_a_seed_replays_identically() -> None:
    first, again = Schedule(1003).run(), Schedule(1003).run()
    assert (first.verdict, first.events, first.virtual_s) == (again.verdict, again.events, again.virtual_s)
