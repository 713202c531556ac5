"""The simulation can fail: with any one rule of the protocol left out, some schedule is not exact any more.

`mutation` says in which placement, and among which faults, each mutant is searched for. The long form leaves out the
digest where that is what found it, and runs the controls over more schedules.
"""

from __future__ import annotations

import pytest

from rstream.core.channel import OutChannel
from rstream.lab.fault_places import EMPTY_HOLDER, MIXED, OWN_WORKERS, SINKS_APART
from rstream.lab.fault_rounds import LATE
from tests.simulation import mutants
from tests.simulation.mutants import Mutate
from tests.simulation.mutation import CONTROLS, MUTANTS, LateEnd, Mutant, found_within, search


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_protocol_without_one_of_its_rules_is_found_out(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.mutate(monkeypatch)
    assert search(mutant, first=mutant.shows_at) is not None


def test_a_worker_that_ends_unasked_after_others_have_answered_does_no_harm() -> None:
    late = 0
    for seed in range(2006, 2012):
        schedule = LateEnd(seed)
        assert schedule.run().verdict == "exact"
        late += schedule.events[LATE]
    assert late > 2


@pytest.mark.parametrize("control", CONTROLS)
def test_what_only_does_more_work_stays_exact(control: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    control(monkeypatch)
    assert found_within(10) == ""


@pytest.mark.long
@pytest.mark.parametrize("style", [MIXED, OWN_WORKERS, SINKS_APART, EMPTY_HOLDER])
@pytest.mark.parametrize("control", CONTROLS)
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
    """The digest is a second line: what it would stop is wrong in the results."""
    monkeypatch.setattr(OutChannel, "check", lambda self, offset, digest: None)
    mutate(monkeypatch)
    assert found_within(600, style) != ""
