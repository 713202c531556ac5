"""Rates: what was measured, cleaned of outliers, carried along the graph, and fitted over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rstream.schedulers.tables import Floats, Traffic


def trimmed_mean(samples: Sequence[float]) -> float:
    """The mean without one largest and one smallest sample; the plain mean of fewer than three; 0 of none (Ra-1).

    >>> trimmed_mean([10, 20, 30, 40, 100]), trimmed_mean([1, 2])
    (30.0, 1.5)
    """
    return float(trimmed_means(np.array([samples], dtype=np.float64))[0])


def trimmed_means(samples: Floats) -> Floats:
    """`trimmed_mean` of every row at once."""
    width = samples.shape[1]
    if width == 0:
        return np.zeros(len(samples))
    if width < 3:
        return np.asarray(samples.mean(axis=1), dtype=np.float64)
    rest = samples.sum(axis=1) - samples.max(axis=1) - samples.min(axis=1)
    return np.asarray(rest / (width - 2), dtype=np.float64)


def edge_rates(traffic: Traffic) -> Floats:
    """One rate per channel: Tr of Ra-Stream, E_r of Sl-Stream. Rounding never leaves a negative rate."""
    return np.maximum(trimmed_means(traffic.samples), 0.0)


def moved(reference: float, now: float, factor: float) -> bool:
    """Whether a rate has left the band of +-factor around a reference, in either direction (Es-12).

    >>> moved(1800, 2160, 0.2), moved(1800, 2161, 0.2), moved(1800, 1400, 0.2), moved(0, 1, 0.2)
    (False, True, True, True)
    """
    return abs(now - reference) / reference > factor if reference > 0 else now > 0


def traffic_equations(external: Sequence[float], routing: npt.ArrayLike) -> Floats:
    """Solve lam = ext + P^T lam, loops allowed: the arrival rate of every operator.

    >>> traffic_equations([100, 0, 0], [[0, 1, 0], [0, 0, 2], [0, 0, 0]]).tolist()
    [100.0, 100.0, 200.0]
    """
    matrix = np.asarray(routing, dtype=np.float64)
    size = len(matrix)
    return np.asarray(np.linalg.solve(np.eye(size) - matrix.T, np.asarray(external, dtype=np.float64)))


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line through samples, fitted by least squares on centred times."""

    slope: float
    intercept: float
    residuals: tuple[float, ...]

    @property
    def mean_square(self) -> float:
        """Mean squared residual e of Me-Stream (eq 5)."""
        return math.fsum(value * value for value in self.residuals) / len(self.residuals) if self.residuals else 0.0

    def at(self, time: float) -> float:
        """The line's value."""
        return self.slope * time + self.intercept


def fit_line(times: Sequence[float], values: Sequence[float]) -> Line:
    """Least squares; equal times (or none) give a flat line (Me-4).

    >>> line = fit_line([0, 1, 2], [1, 3, 5])
    >>> line.slope, line.intercept, line.at(3)
    (2.0, 1.0, 7.0)
    """
    if not times:
        return Line(0.0, 0.0, ())
    middle, level = math.fsum(times) / len(times), math.fsum(values) / len(values)
    spread = math.fsum((time - middle) ** 2 for time in times)
    lean = math.fsum(value * (time - middle) for time, value in zip(times, values, strict=True))
    slope = lean / spread if spread > 0 else 0.0
    residuals = tuple(value - (level + slope * (time - middle)) for time, value in zip(times, values, strict=True))
    return Line(slope, level - slope * middle, residuals)


def stable_index(samples: Sequence[float], window: int = 5, spread: float = 4.0) -> int | None:
    """First index at which the last `window` samples differ by less than `spread`; None if that never happens.

    >>> stable_index([30, 20, 12, 8, 6, 5.5, 5.2, 5.1, 5.3])
    7
    """
    for end in range(window, len(samples) + 1):
        recent = samples[end - window : end]
        if max(recent) - min(recent) < spread:
            return end - 1
    return None


def propagate(
    order: Sequence[str], ratios: Sequence[tuple[str, str, float]], roots: Mapping[str, float]
) -> dict[str, float]:
    """Carry shares along the graph in topological order: value_i = root_i + sum ratio(p, i) value_p.

    >>> propagate(["a", "b", "c"], [("a", "b", 0.5), ("a", "c", 2.0), ("b", "c", 1.0)], {"a": 1.0})
    {'a': 1.0, 'b': 0.5, 'c': 2.5}
    """
    value = {name: float(roots.get(name, 0.0)) for name in order}
    into: dict[str, list[tuple[str, float]]] = {name: [] for name in order}
    for source, target, ratio in ratios:
        into[target].append((source, ratio))
    for name in order:
        value[name] += sum(ratio * value[source] for source, ratio in into[name])
    return value
