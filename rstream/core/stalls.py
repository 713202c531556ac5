"""How long sinks heard nothing of one of their senders: what a crash, a move or a slow step looks like from outside."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rstream.core.channel import ChannelId

STALL_S = 0.2
"""Shorter silences are not kept: a busy machine has many of them."""
KEPT_MAX = 256


class Stall(NamedTuple):
    """Nothing came on a channel into a sink between these two times."""

    channel: ChannelId
    since_s: float | None
    """None: the sink was started here, or started anew, and had heard nothing yet."""
    until_s: float

    def during_s(self, start_s: float, end_s: float) -> float:
        """How much of it fell between two times.

        >>> Stall(ChannelId(0, 0, 0), 10.0, 12.5).during_s(11.0, 20.0)
        1.5
        """
        since_s = start_s if self.since_s is None else self.since_s
        return max(0.0, min(self.until_s, end_s) - max(since_s, start_s))


class Stalls:
    """The newest silences of all sinks of a worker.

    >>> stalls = Stalls()
    >>> for at_s in (1.0, 1.01, 3.0):
    ...     stalls.heard(ChannelId(0, 0, 0), at_s)
    >>> [(stall.since_s, stall.until_s) for stall in stalls.kept]
    [(None, 1.0), (1.01, 3.0)]
    """

    def __init__(self) -> None:
        self.kept: deque[Stall] = deque(maxlen=KEPT_MAX)
        self._last_s: dict[ChannelId, float] = {}

    def heard(self, channel: ChannelId, now_s: float) -> None:
        """A sink took something from a channel."""
        last_s = self._last_s.get(channel)
        if last_s is None or now_s - last_s >= STALL_S:
            self.kept.append(Stall(channel, last_s, now_s))
        self._last_s[channel] = now_s
