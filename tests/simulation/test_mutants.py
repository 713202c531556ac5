"""The simulation can fail: with any one rule of the protocol left out, some schedule is not exact any more.

Each mutant is searched for in the placement, and among the faults, in which it shows. The long form leaves out the
digest where that is what found it, and runs the controls over more schedules.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rstream.core.channel import OutChannel
from rstream.errors import RStreamError
from rstream.lab.fault_places import EMPTY_HOLDER, MIXED, OWN_WORKERS, SINKS_APART
from rstream.lab.faults import FAULTS, Schedule
from tests.simulation import mutants
from tests.simulation.mutants import Mutate

FIRST_SEED = 2000
SCHEDULES_MAX = 120

ANY = tuple(FAULTS)
AGAIN = ("crash during recovery", "crash in the middle of a round")

MUTANTS: list[tuple[Mutate, str | None, Sequence[str]]] = [
    (mutants.no_deduplication, None, ANY),
    (mutants.no_order_log, None, ANY),
    (mutants.replay_one_record_short, None, ANY),
    (mutants.snapshot_without_output, None, ANY),
    (mutants.truncate_when_the_snapshot_is_taken, None, ANY),
    (mutants.truncate_when_consumed, None, ANY),
    (mutants.records_without_clock, None, ANY),
    (mutants.oldest_snapshot_wins, None, ANY),
    (mutants.epochs_without_incarnation, None, ANY),
    (mutants.mixed_epochs, None, ANY),
    (mutants.sink_store_without_token, SINKS_APART, ["zombie"]),
    (mutants.no_fencing_of_messages, OWN_WORKERS, ANY),
    (mutants.fragments_without_records, EMPTY_HOLDER, ["loss of a domain"]),
    (mutants.answer_before_the_fence, OWN_WORKERS, ANY),
    (mutants.forward_to_the_first_receiver_only, SINKS_APART, ANY),
    (mutants.no_witness, SINKS_APART, ANY),
    (mutants.keep_answers_of_a_replaced_round, OWN_WORKERS, AGAIN),
    (mutants.no_forwarding_after_a_change_of_domain, OWN_WORKERS, ANY),
]


def found_within(schedules: int, style: str | None = None, kinds: Sequence[str] = ANY) -> str:
    """The first verdict that is not exact, or an empty string."""
    for seed in range(FIRST_SEED, FIRST_SEED + schedules):
        try:
            outcome = Schedule(seed, style=style, kinds=kinds).run()
        except (AssertionError, KeyError, IndexError, RStreamError) as error:
            return f"broke: {error!r}"
        if not outcome.exact:
            return outcome.verdict
    return ""


@pytest.mark.parametrize(("mutate", "style", "kinds"), MUTANTS)
def test_a_protocol_without_one_of_its_rules_is_found_out(
    mutate: Mutate, style: str | None, kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert found_within(SCHEDULES_MAX, style, kinds) != ""


@pytest.mark.parametrize("control", [mutants.resend_whole_logs, mutants.forward_without_limit])
def test_what_only_does_more_work_stays_exact(control: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    control(monkeypatch)
    assert found_within(10) == ""


@pytest.mark.long
@pytest.mark.parametrize("style", [MIXED, OWN_WORKERS, SINKS_APART, EMPTY_HOLDER])
@pytest.mark.parametrize("control", [mutants.resend_whole_logs, mutants.forward_without_limit])
def test_what_only_does_more_work_stays_exact_everywhere(
    control: Mutate, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    control(monkeypatch)
    assert found_within(120, style) == ""


@pytest.mark.long
@pytest.mark.parametrize(
    ("mutate", "style"),
    [
        (mutants.no_order_log, None),
        (mutants.answer_before_the_fence, OWN_WORKERS),
        (mutants.forward_to_the_first_receiver_only, SINKS_APART),
        (mutants.no_witness, SINKS_APART),
        (mutants.fragments_without_records, EMPTY_HOLDER),
    ],
)
def test_without_digests_too_it_is_found_out(
    mutate: Mutate, style: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is a second line: what it would stop is wrong in the results, or breaks an invariant."""
    monkeypatch.setattr(OutChannel, "check", lambda self, offset, digest: None)
    mutate(monkeypatch)
    assert found_within(600, style) != ""
