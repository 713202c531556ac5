"""PSPS's load-aware grouping: every tuple goes to the active replica with the least utilisation.

The sender keeps the utilisations; the policy resets them once per interval. With several senders each sees only its
own share of the tuples, so it steps by the number of senders (PS-8).
"""

from __future__ import annotations

from collections.abc import Sequence


def utilisation(processed: Sequence[float], service_s: float, interval_s: float) -> list[float]:
    """Eq 5: the share of the interval for which each replica was busy.

    >>> utilisation([60, 30, 0], 0.016, 1.0)
    [0.96, 0.48, 0.0]
    """
    return [count * service_s / interval_s for count in processed]


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
        least = min(range(len(self.utilisations)), key=self.utilisations.__getitem__)
        if self.utilisations[least] >= 1.0:
            chosen = self.turn % len(self.utilisations)
            self.turn += 1
            return chosen
        self.utilisations[least] += self.step
        return least
