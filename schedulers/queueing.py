"""M/M/k queues by the Erlang-B recursion, and the two ways in which policies choose k from them.

Never a factorial: the recursion is stable for any k, and one step of it leads from k to k + 1, so that a search over
k costs as much as the largest k looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue with k servers. `waits` is the probability that a tuple waits, None when the queue is not stable."""

    servers: int
    stable: bool
    waits: float | None
    length: float
    sojourn_s: float


def queues(rate: float, service_rate: float, start: int = 0) -> Iterator[Queue]:
    """M/M/k for k = start, start + 1, ...; each further k costs one step of the recursion.

    >>> [round(queue.length, 4) for queue, _ in zip(queues(1.5, 1.0), range(4))]
    [inf, inf, 3.4286, 1.7368]
    """
    offered = _offered(rate, service_rate)
    blocked = 1.0
    for k in count():
        if k:
            blocked = offered * blocked / (k + offered * blocked) if math.isfinite(offered) else 1.0
        if k < start:
            continue
        if k <= offered:
            yield Queue(k, False, None, math.inf, math.inf)
            continue
        busy = offered / k
        waits = blocked / (1.0 - busy * (1.0 - blocked))
        length = waits * busy / (1.0 - busy) + offered
        yield Queue(k, True, waits, length, length / rate if rate > 0 else _service_s(service_rate))


def queue(rate: float, service_rate: float, servers: int) -> Queue:
    """One M/M/k queue.

    >>> round(queue(1800, 200, 10).length, 4), queue(1800, 200, 9).stable
    (15.0186, False)
    """
    return next(queues(rate, service_rate, servers))


def _offered(rate: float, service_rate: float) -> float:
    if rate <= 0:
        return 0.0
    return rate / service_rate if service_rate > 0 else math.inf


def _service_s(service_rate: float) -> float:
    return 1.0 / service_rate if service_rate > 0 else math.inf


def stable_servers(rate: float, service_rate: float) -> int:
    """The fewest servers with which the queue does not grow without bound; at least 1.

    >>> stable_servers(1800, 200), stable_servers(0, 200)
    (10, 1)
    """
    offered = _offered(rate, service_rate)
    if not math.isfinite(offered):
        raise ValueError("no number of servers is enough when a server serves nothing")
    return max(1, math.floor(offered) + 1)


@dataclass(frozen=True, slots=True)
class Choice:
    """A number of servers, its cost z(k), and whether the cap left the queue unstable."""

    servers: int
    cost: float
    saturated: bool = False


def cheapest(rate: float, service_rate: float, beta: float, servers_max: int | None = None) -> Choice:
    """Es-Stream's k*: the smallest minimum of beta k + (1 - beta) Q(k), Q being convex in k.

    >>> cheapest(1800, 200, 0.5).servers, cheapest(1800, 200, 0.5, servers_max=8)
    (12, Choice(servers=8, cost=inf, saturated=True))
    """
    if not 0.0 < beta < 1.0:
        raise ValueError(f"beta must lie strictly between 0 and 1, got {beta}")
    offered = _offered(rate, service_rate)
    if servers_max is not None and servers_max <= offered:
        return Choice(servers_max, math.inf, saturated=True)
    price = beta / (1.0 - beta)
    chain = queues(rate, service_rate, stable_servers(rate, service_rate))
    here = next(chain)
    for following in chain:
        if here.length - following.length <= price or here.servers == servers_max:
            return Choice(here.servers, beta * here.servers + (1.0 - beta) * here.length)
        here = following
    raise AssertionError("the chain of queues has no end")


@dataclass(frozen=True, slots=True)
class Allocation:
    """Servers per queue and the mean time that a tuple spends in all of them together."""

    servers: tuple[int, ...]
    sojourn_s: float


def allocate(
    rates: Sequence[float], service_rates: Sequence[float], total: int, source_rate: float
) -> Iterator[Allocation]:
    """DRS: the best allocation for each total from the stable minimum up to `total`, one more server at a time.

    Each further server goes where it takes most off the queue; by convexity every step is optimal for its total.
    Nothing comes out when even the minimum does not fit.
    """
    chains = [queues(rate, mu, stable_servers(rate, mu)) for rate, mu in zip(rates, service_rates, strict=True)]
    now = [next(chain) for chain in chains]
    more = [next(chain) for chain in chains]
    scale = 1.0 / source_rate if source_rate > 0 else 0.0
    while sum(queue.servers for queue in now) <= total:
        sojourn_s = sum(rate * queue.sojourn_s * scale for rate, queue in zip(rates, now, strict=True))
        yield Allocation(tuple(queue.servers for queue in now), sojourn_s)
        gains = [rate * (a.sojourn_s - b.sojourn_s) for rate, a, b in zip(rates, now, more, strict=True)]
        best = max(range(len(gains)), key=gains.__getitem__, default=None)
        if best is None:
            return
        now[best], more[best] = more[best], next(chains[best])


def fewest(
    rates: Sequence[float], service_rates: Sequence[float], sojourn_s_max: float, total_max: int, source_rate: float
) -> Allocation | None:
    """DRS: the smallest allocation that keeps the mean time within a bound; None when none up to `total_max` does.

    >>> fewest([100, 100], [60, 30], 0.08, 500, 100).servers
    (3, 5)
    """
    steps = allocate(rates, service_rates, total_max, source_rate)
    return next((step for step in steps if step.sojourn_s <= sojourn_s_max), None)
