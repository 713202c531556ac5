"""The search for schedules in which a mutant shows, and the table of what found each.

    python -m tests.simulation.mutation

Each mutant is searched for in the placement, and among the faults, in which it shows. Only a verdict counts: a wrong
result, a contradiction, a hang or a loud stop. The invariants that the simulation checks in passing are not looked
at, and a schedule in which something just breaks (an assertion, a KeyError) counts for nothing: the search goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from rstream.lab.fault_places import EMPTY_HOLDER, MIXED, OWN_WORKERS, SINKS_APART
from rstream.lab.fault_rounds import RoundBreaker
from rstream.lab.faults import FAULTS, Schedule
from tests.simulation import mutants
from tests.simulation.mutants import Mutate

FIRST_SEED = 2000
SCHEDULES_MAX = 120
ANY = tuple(FAULTS)


class Unchecked(Schedule):
    """A schedule that is judged by its outcome alone."""

    validate_every = 0


class LateEnd(RoundBreaker):
    """Nothing happens but that a worker ends in the middle of a round, after others have answered."""

    validate_every = 0

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, faults=0, style=OWN_WORKERS)
        self.plan_late_end()

    def plan_changes(self) -> None:
        """Everything stays where it is."""

    def plan_moves(self) -> None:
        """Nothing moves."""


@dataclass(frozen=True)
class Mutant:
    """One way to break the protocol, and where it shows."""

    mutate: Mutate
    style: str | None = None
    kinds: Sequence[str] = ANY
    schedule: type[Schedule] = Unchecked
    shows_at: int = 1
    """The schedule that found it last; a test begins there."""

    @property
    def name(self) -> str:
        """What is left out."""
        return self.mutate.__name__.replace("_", " ")


@dataclass(frozen=True)
class Found:
    """The first schedule that shows a mutant."""

    schedule: int
    verdict: str
    broken: int
    """How many schedules before it just broke."""


MUTANTS = [
    Mutant(mutants.no_deduplication),
    Mutant(mutants.no_order_log),
    Mutant(mutants.replay_one_record_short),
    Mutant(mutants.snapshot_without_output),
    Mutant(mutants.truncate_when_the_snapshot_is_taken),
    Mutant(mutants.truncate_when_consumed),
    Mutant(mutants.records_without_clock, shows_at=7),
    Mutant(mutants.oldest_snapshot_wins, shows_at=2),
    Mutant(mutants.epochs_without_incarnation, shows_at=6),
    Mutant(mutants.mixed_epochs),
    Mutant(mutants.sink_store_without_token, SINKS_APART, ["zombie"]),
    Mutant(mutants.no_fencing_of_messages, OWN_WORKERS, shows_at=9),
    Mutant(mutants.fragments_without_records, EMPTY_HOLDER, ["loss of a domain"]),
    Mutant(mutants.answer_before_the_fence, OWN_WORKERS),
    Mutant(mutants.forward_to_the_first_receiver_only, SINKS_APART, shows_at=12),
    Mutant(mutants.no_witness, SINKS_APART, shows_at=11),
    Mutant(mutants.keep_answers_of_a_replaced_round, OWN_WORKERS, schedule=LateEnd, shows_at=9),
    Mutant(mutants.no_forwarding_after_a_change_of_domain, OWN_WORKERS, shows_at=10),
]
CONTROLS = [mutants.resend_whole_logs, mutants.forward_without_limit]


def search(mutant: Mutant, schedules: int = SCHEDULES_MAX, first: int = 1) -> Found | None:
    """Run schedules from the `first` on until one has a verdict that is not exact; the mutation is in place."""
    broken = 0
    for number in range(first, first + schedules):
        schedule = mutant.schedule(FIRST_SEED + number - 1, style=mutant.style, kinds=mutant.kinds)
        try:
            outcome = schedule.run()
        except Exception:  # whatever it is, nobody has judged the results
            broken += 1
            continue
        if not outcome.exact:
            return Found(number, outcome.verdict, broken)
    return None


def found_within(schedules: int, style: str | None = None, kinds: Sequence[str] = ANY) -> str:
    """The first verdict that is not exact, or an empty string; whatever is to be mutated has been."""
    found = search(Mutant(_nothing, style, kinds), schedules)
    return found.verdict if found is not None else ""


def _nothing(patch: pytest.MonkeyPatch) -> None:
    """A mutation that a test has made itself."""


def main() -> None:
    """Search for every mutant from the first seed on, and print a line for each."""
    print("| left out | placement | found at schedule | broke before | as |\n|---|---|---:|---:|---|")
    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patch:
            mutant.mutate(patch)
            found = search(mutant)
        at, broken, verdict = ("not found", "", "") if found is None else (found.schedule, found.broken, found.verdict)
        print(f"| {mutant.name} | {mutant.style or MIXED} | {at} | {broken} | {verdict[:160]} |", flush=True)
    for control in CONTROLS:
        with pytest.MonkeyPatch.context() as patch:
            control(patch)
            found = search(Mutant(control), 20)
        print(f"| control: {control.__name__.replace('_', ' ')} | {MIXED} | {found or 'exact in 20'} | | |", flush=True)


if __name__ == "__main__":
    main()
