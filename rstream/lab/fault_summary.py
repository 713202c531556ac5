"""What a set of fault schedules shows: how many were exact, and in how many each situation came up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rstream.lab.fault_bolts import SITUATIONS
from rstream.lab.fault_rounds import LATE
from rstream.lab.fault_seeds import BEYOND, FAULTS_MIN
from rstream.lab.faults import FAULTS, Outcome

SHARE_MIN = 0.02
"""A situation that comes up in fewer schedules than this is not tested."""
MAIN = (
    *FAULTS,
    LATE,
    BEYOND,
    "during a snapshot",
    "of a holder",
    "of a spare",
    "end of the old host during a move",
    "end of the target during a move",
    "rescale",
    "rescale of two",
    "back to back",
    "active set",
    "move",
    "move of several",
    "little may be retained",
    "timers",
    *SITUATIONS.values(),
)
"""The situations that have to come up."""


class Summary:
    """The outcomes of some schedules, taken together."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.schedules = len(outcomes)
        self.exact = sum(each.exact for each in outcomes)
        self.failed = [each for each in outcomes if not each.passed]
        self.beyond = [each for each in outcomes if each.beyond]
        self.few = [each.seed for each in outcomes if each.faults < FAULTS_MIN]
        """Seeds with fewer than two faults that happened."""
        self.situations = Counter(dict.fromkeys(MAIN, 0))
        for each in outcomes:
            self.situations.update(each.situations)

    @property
    def rare(self) -> list[str]:
        """Situations that have to come up and do so in too few schedules."""
        return [name for name in MAIN if self.situations[name] < SHARE_MIN * self.schedules]

    def rows(self) -> list[tuple[str, int, str, str]]:
        """(situation, schedules, share, whether that is enough)."""
        least = SHARE_MIN * self.schedules
        return [
            (name, count, f"{100 * count / self.schedules:.1f} %", "yes" if count >= least else "no")
            for name, count in self.situations.most_common()
        ]

    @property
    def beyond_line(self) -> str:
        """How schedules ended in which more was lost than the guarantee is for."""
        exact, loud = sum(each.exact for each in self.beyond), self.stopped
        wrong = len(self.beyond) - exact - loud
        return f"{BEYOND}: {len(self.beyond)} schedules: {exact} exact, {loud} stopped loudly, {wrong} failed"

    @property
    def stopped(self) -> int:
        """How many schedules beyond the guarantee stopped loudly."""
        return sum(each.passed and not each.exact for each in self.beyond)

    @property
    def line(self) -> str:
        """All of it in one line."""
        stopped = f", {self.stopped} stopped loudly beyond the guarantee" if self.stopped else ""
        return f"{self.schedules} schedules: {self.exact} exact, {len(self.failed)} failed{stopped}"

    def as_json(self) -> dict[str, Any]:
        """The same for scripts."""
        return {
            "schedules": self.schedules,
            "exact": self.exact,
            "situations": dict(self.situations),
            "shares": {name: count / self.schedules for name, count in self.situations.items()},
            "rare": self.rare,
            "beyond": {
                "schedules": len(self.beyond),
                "exact": sum(each.exact for each in self.beyond),
                "stopped_loudly": self.stopped,
            },
            "fewer_than_two_faults": self.few,
            "failed": [{"seed": each.seed, "verdict": each.verdict} for each in self.failed],
        }
