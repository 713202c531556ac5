"""Node loads: how high, how skewed, which node takes one more instance, and how long state takes to follow.

The rules are Es-Stream's resource scaling, kept apart from the policy so that each can be checked
on its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rstream.schedulers.tables import Bools, Floats

Decision = Literal["scale_out", "scale_in", "in_place"]

# Sums of decimal fractions miss their mark by a few units in the last place; a threshold must not depend on that.
SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, population deviation and skewness of node loads."""

    mean: float
    sigma: float
    skewness: float


def spread(loads: Sequence[float]) -> Spread:
    """Eqs 19 and 20: the sample factor on the population deviation (Es-7); 0 for fewer than 3 nodes or equal loads.

    >>> spread([0.9, 0.9, 0.9]).skewness, round(spread([0.1, 0.12, 0.11, 0.9, 0.1]).skewness, 4)
    (0.0, 3.1207)
    """
    size = len(loads)
    mean = math.fsum(loads) / size if size else 0.0
    sigma = math.sqrt(math.fsum((load - mean) ** 2 for load in loads) / size) if size else 0.0
    if sigma <= SLACK:
        return Spread(mean, 0.0, 0.0)
    if size < 3:
        return Spread(mean, sigma, 0.0)
    cubes = math.fsum((load - mean) ** 3 for load in loads)
    return Spread(mean, sigma, size * cubes / ((size - 1) * (size - 2) * sigma**3))


def decide(loads: Sequence[float], eta: float, phi: float, chi: float, zeta: float) -> Decision:
    """Whether new instances should go on new nodes; scale-out is tested first, for the two tests overlap (Es-8).

    >>> decide([0.9, 0.9, 0.9], eta=0.5, phi=0.7, chi=-0.5, zeta=0.3)
    'scale_out'
    """
    seen = spread(loads)
    if seen.mean >= phi - SLACK and seen.skewness <= eta + SLACK:
        return "scale_out"
    if seen.mean <= zeta + SLACK and seen.skewness >= chi - SLACK:
        return "scale_in"
    return "in_place"


def choose(loads: Floats, used: Bools, need: Floats, cap: Floats, decision: Decision, room: Bools) -> int | None:
    """Position of the node for one new instance (eq 22), None if none fits.

    Nodes come in order of their ids, so that the lowest id wins among equal loads. Used nodes come first, unused ones
    first when scaling out.
    """
    fits = room & np.all(loads + need <= cap + SLACK, axis=1)
    peaks = loads.max(axis=1)
    for group in (fits & ~used, fits & used) if decision == "scale_out" else (fits & used, fits & ~used):
        if group.any():
            return int(np.argmin(np.where(group, peaks, np.inf)))
    return None


def choose_node(
    nodes: Mapping[str, Sequence[float]],
    used: Sequence[str],
    need: Sequence[float],
    cap: Sequence[float],
    decision: Decision,
) -> str | None:
    """`choose` by name: node id to its (cpu, mem, io) load.

    >>> choose_node({"a": [0.5, 0, 0], "b": [0.1, 0, 0]}, ["a"], [0.2, 0, 0], [0.8, 0.8, 0.8], "in_place")
    'a'
    """
    ids = sorted(nodes)
    loads = np.array([nodes[name] for name in ids], dtype=np.float64).reshape(len(ids), len(need))
    inside = np.array([name in set(used) for name in ids], dtype=np.bool_)
    everywhere = np.ones(len(ids), dtype=np.bool_)
    at = choose(loads, inside, np.array(need, float), np.array(cap, float), decision, everywhere) if ids else None
    return None if at is None else ids[at]


def repartition_s(state_bytes: float, parts: int, cut_bytes_s: Sequence[float], send_bytes_s: Sequence[float]) -> float:
    """Eq 25: how long the slowest holder needs to cut and send its share of the state.

    >>> repartition_s(42e6, 4, [60e6, 80e6], [100e6, 50e6])
    0.34125
    """
    share = state_bytes / parts
    each = zip(cut_bytes_s, send_bytes_s, strict=True)
    return max((_time_s(share, cut) + _time_s(share, send) for cut, send in each), default=0.0)


def replay_s(
    sync_s: float, input_rates: Sequence[float], replay_rates: Sequence[float], service_rates: Sequence[float]
) -> float:
    """Eq 26: how long it takes to send again and work off what came in since the last snapshot (Es-15).

    >>> replay_s(5, [900, 300], [3000, 3000], [1500, 400])
    3.75
    """
    each = zip(input_rates, replay_rates, service_rates, strict=True)
    return sync_s * max((max(_time_s(rate, sent), _time_s(rate, served)) for rate, sent, served in each), default=0.0)


def _time_s(amount: float, per_s: float) -> float:
    """How long an amount takes; nothing takes no time, and anything takes for ever at a rate of 0."""
    if not amount:
        return 0.0
    return amount / per_s if per_s > 0 else math.inf
