"""Workers that may be dead or may only be cut off: who is looked after, and who is replaced, and when. No I/O.

A worker of which it is proven that its process is gone never comes here: it is replaced at once. Without a proof it may
live and write outside for as long as its lease lasts, so it is replaced only after that. Two things make a worker
suspect: that Ray has given its node up, which is final, for Ray never speaks to it again; and that nothing was heard of
it for the heartbeat timeout while others of its topology report. Silence alone is no sign of death: a worker whose user
code keeps the interpreter to itself sends no reports, but its machine still answers a knock at its door. So what is
silent is knocked at, and only one that does not even answer counts as cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rstream.core.records import topology_of

HEARTBEAT_TIMEOUT_S = 5.0
"""Nothing is suspected sooner: a machine that swaps, or a switch that restarts, is silent for seconds."""
REPORTS_MISSED = 3
"""And so many reports must be missing, where they come seldom."""
REPORTS_PER_LEASE = 3
"""So often a worker reports while its lease lasts, or more: a late one does not cost it the lease."""


def reports_every_s(stats_interval_s: float, lease_s: float) -> float:
    """How often a worker reports: as often as its counters are wanted, and often enough to keep its lease.

    >>> reports_every_s(0.5, 10.0), reports_every_s(60.0, 9.0)
    (0.5, 3.0)
    """
    return min(stats_interval_s, lease_s / REPORTS_PER_LEASE)


@dataclass(slots=True)
class _Followed:
    """What is known of one worker."""

    lease_s: float
    silence_max_s: float
    heard_s: float
    lost: bool = False
    """Ray has given its node up."""
    unanswered: bool = False
    """It was silent, and then did not answer a knock."""
    due: bool = False
    """It was said that it is to be replaced."""


class Suspects:
    """The workers of a coordinator, and what speaks against them.

    >>> suspects = Suspects()
    >>> suspects.follow("t/a", lease_s=10.0, reports_s=0.5, now_s=0.0)
    >>> suspects.lost("t/a")
    >>> suspects.due(9.0, {"t/a": "n1"}), suspects.due(10.0, {"t/a": "n1"})
    ([], ['t/a'])
    """

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}

    def follow(self, worker: str, lease_s: float, reports_s: float, now_s: float) -> None:
        """A worker is there from now on, and reports every so often. It may have a lease from just before."""
        silence_max_s = max(HEARTBEAT_TIMEOUT_S, REPORTS_MISSED * reports_s)
        self._followed[worker] = _Followed(lease_s, silence_max_s, now_s)

    def forget(self, worker: str) -> None:
        """A worker was replaced, or told to end."""
        self._followed.pop(worker, None)

    def heard(self, worker: str, now_s: float) -> bool:
        """Something came from a worker, which renews its lease; False if it is given up, and gets no lease any more."""
        found = self._followed.get(worker)
        if found is None:
            return True
        if found.lost:
            return False
        found.heard_s, found.unanswered = max(found.heard_s, now_s), False
        return True

    def lost(self, worker: str) -> None:
        """Ray has given the worker's node up, without a proof that its processes are gone."""
        if worker in self._followed:
            self._followed[worker].lost = True

    def knocked(self, worker: str, answers: bool) -> None:
        """Whether the worker's machine answered at its door."""
        if worker in self._followed:
            self._followed[worker].unanswered = not answers

    @property
    def doubted(self) -> set[str]:
        """The workers that nothing should be given to."""
        return {worker for worker, each in self._followed.items() if each.lost or each.unanswered}

    def to_knock_at(self, now_s: float) -> list[str]:
        """The workers whose doors may tell more."""
        silent = self._silent(now_s)
        return [worker for worker, each in self._followed.items() if each.lost or worker in silent]

    def due(self, now_s: float, nodes: Mapping[str, str]) -> list[str]:
        """The workers to be replaced now although nobody has proven them dead: their leases are over.

        The suspects of one topology on one node are due together, when the last of them is: what one of them had is
        not to be given to another. Each is named once, and is given up with that.
        """
        silent = self._silent(now_s)
        waiting: dict[tuple[str, str], list[str]] = {}
        until_s: dict[tuple[str, str], float] = {}
        for worker, each in self._followed.items():
            if each.lost or (each.unanswered and worker in silent):
                place = topology_of(worker), nodes.get(worker, "")
                waiting.setdefault(place, []).append(worker)
                over_s = each.heard_s + each.lease_s
                until_s[place] = max(over_s, until_s.get(place, over_s))
        due = [worker for place, workers in waiting.items() if now_s >= until_s[place] for worker in workers]
        due = [worker for worker in due if not self._followed[worker].due]
        for worker in due:
            self._followed[worker].lost = self._followed[worker].due = True
        return due

    def silent_s(self, worker: str, now_s: float) -> float:
        """For how long nothing was heard of a worker."""
        return now_s - self._followed[worker].heard_s if worker in self._followed else 0.0

    def _silent(self, now_s: float) -> set[str]:
        """The workers that do not report while others of their topology do. Where all are silent it may be the
        coordinator that is cut off, or too busy to listen, and nothing is said against them."""
        quiet = {worker for worker, each in self._followed.items() if now_s - each.heard_s >= each.silence_max_s}
        talking = {topology_of(worker) for worker in self._followed.keys() - quiet if not self._followed[worker].lost}
        return {worker for worker in quiet if topology_of(worker) in talking}
