"""The fault simulation: seeded faults of the real core give exact results, and a seed replays identically."""

from __future__ import annotations

from collections import Counter

import pytest
from click.testing import CliRunner

from rstream.cli.faults import faults
from rstream.lab import fault_seeds
from rstream.lab.fault_seeds import FAULTS_MIN, Drawn, run_seed
from rstream.lab.fault_summary import Summary
from rstream.lab.faults import Outcome, Schedule

SEEDS = (*range(1000, 1020), 1022, 1036)
"""The last two for what is rare: the end of an old host during a move, and of an asked worker during a recovery."""


@pytest.fixture(scope="module")
def fixed_set() -> Summary:
    return Summary([run_seed(seed) for seed in SEEDS])


def test_every_schedule_of_a_fixed_set_is_exact_or_stops_loudly_beyond_the_guarantee(fixed_set: Summary) -> None:
    assert [(each.seed, each.verdict) for each in fixed_set.failed] == []
    assert fixed_set.exact + fixed_set.stopped == len(SEEDS)


def test_every_situation_comes_up_in_the_fixed_set_and_every_schedule_has_two_faults(fixed_set: Summary) -> None:
    assert fixed_set.rare == []
    assert fixed_set.few == []


def test_a_schedule_in_which_too_little_happened_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drawn, "_top_up", lambda self: None)
    attempts: list[int] = []
    first = Drawn.__init__

    def counted(self: Drawn, seed: int, attempt: int = 0) -> None:
        attempts.append(attempt)
        first(self, seed, attempt, **({"faults": 0} if not attempt else {}))

    monkeypatch.setattr(Drawn, "__init__", counted)
    assert run_seed(1002).faults >= FAULTS_MIN
    assert attempts == [0, 1]


def test_whatever_a_schedule_raises_is_a_failure_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TypeError("no such thing")

    monkeypatch.setattr(fault_seeds.Drawn, "_turn", refuse)
    summary = Summary([run_seed(1001)])
    assert [(each.seed, each.verdict) for each in summary.failed] == [(1001, "broke: TypeError('no such thing')")]


def test_the_command_prints_the_share_of_each_situation_and_ends_with_a_summary() -> None:
    result = CliRunner().invoke(faults, ["--seeds", "2", "--start", "1000", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["situation", "schedules", "share", "at", "least", "2", "%"]
    assert {"yes", "no"} == {line.split()[-1] for line in lines[1:-2]}
    assert lines[-2].startswith("beyond the guarantee: ")
    assert lines[-1] == "2 schedules: 2 exact, 0 failed"


def test_beyond_the_guarantee_a_loud_stop_passes_and_a_wrong_result_does_not() -> None:
    stopped = Outcome(1, False, "stopped loudly: too much is lost", Counter(), 0.1, 2, beyond=True)
    wrong = Outcome(2, False, "lost: 3 of 301", Counter(), 0.1, 2, beyond=True)
    kept = Outcome(3, False, "stopped loudly: too much is lost", Counter(), 0.1, 2)
    summary = Summary([stopped, wrong, kept])
    assert [each.seed for each in summary.failed] == [2, 3]
    assert summary.beyond_line == "beyond the guarantee: 2 schedules: 0 exact, 1 stopped loudly, 1 failed"
    assert summary.line == "3 schedules: 0 exact, 2 failed, 1 stopped loudly beyond the guarantee"


def test_a_source_that_replays_a_change_of_receivers_sends_its_watermarks_where_it_sent_them_before() -> None:
    outcome = Schedule(127).run()
    assert (outcome.verdict, outcome.events["windows"]) == ("exact", 1)


def test_a_seed_replays_identically() -> None:
    first, again = run_seed(1003), run_seed(1003)
    assert (first.verdict, first.events, first.virtual_s) == (again.verdict, again.events, again.virtual_s)
