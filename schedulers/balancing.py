"""PSPS's load-aware grouping: every tuple goes to the active replica with the least utilisation.

One rule for the live router and the lab's model. The sender keeps the utilisations, each tuple adds its share of the
interval, and with several senders each sees only its own part of the tuples, so that it steps by the number of senders
(PS-8). Their start values are `backlog`, anew at each interval: the part of it that a replica needs for what already
waits before it. Eq 5 (`utilisation`) is the past interval's: begun with that, a replica which was idle or has just been
switched on gets every tuple until it has as much behind it as the others, which idle meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence


def utilisation(processed: Sequence[float], service_s: float, interval_s: float) -> list[float]:
    """Eq 5: the share of the interval for which each replica was busy.

    >>> utilisation([60, 30, 0], 0.016, 1.0)
    [0.96, 0.48, 0.0]
    """
    return [count * service_s / interval_s for count in processed]


def backlog(queued: Sequence[float], service_s: float, interval_s: float) -> list[float]:
    """Where the utilisations start in an interval: what waits before each replica, as a share of the interval.

    >>> backlog([300, 0], 0.05, 30.0)
    [0.5, 0.0]
    """
    return [count * service_s / interval_s for count in queued]


class LoadBalancer:
    """Chooses a replica per tuple (Algorithm 1 as corrected in PS-7).

    >>> balancer = LoadBalancer([0.0, 0.0, 0.0], step=0.125)
    >>> [balancer.choose() for _ in range(5)]
    [0, 1, 2, 0, 1]
    """

    def __init__(self, utilisations: Sequence[float], step: float, turn: int = 0) -> None:
        """`step` is senders * service time / interval; `turn` is where the round robin goes on."""
        self.utilisations = list(utilisations)
        self.step = step
        self.turn = turn

    def choose(self) -> int:
        """The replica for the next tuple: the least utilised, the lowest index on ties; all full: round robin."""
        use = self.utilisations
        least = min(use)
        if least >= 1.0:
            chosen = self.turn % len(use)
            self.turn += 1
        else:
            chosen = use.index(least)
            use[chosen] += self.step
        return chosen
