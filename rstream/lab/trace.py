"""The rate that a source offers over time: steps, ramps, or a user's CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rstream.errors import DataError
from rstream.schedulers.tables import Floats


@dataclass(frozen=True)
class Trace:
    """Tuples per second at given times; held between them, or joined by straight lines when `linear`.

    >>> steps = Trace.steps((0, 1800), (100, 3600), end_s=160)
    >>> steps.at(99.0), steps.at(100.0)
    (1800.0, 3600.0)
    """

    times_s: tuple[float, ...]
    rates: tuple[float, ...]
    end_s: float
    linear: bool = False

    @classmethod
    def steps(cls, *points: tuple[float, float], end_s: float) -> Trace:
        """Rates that hold until the next point."""
        return cls(tuple(float(t) for t, _ in points), tuple(float(r) for _, r in points), float(end_s))

    @classmethod
    def constant(cls, rate: float, end_s: float) -> Trace:
        """One rate throughout."""
        return cls.steps((0.0, rate), end_s=end_s)

    def at(self, time_s: float) -> float:
        """The rate at one moment."""
        if self.linear:
            return float(np.interp(time_s, self.times_s, self.rates))
        place = int(np.searchsorted(self.times_s, time_s + 1e-9, side="right")) - 1
        return self.rates[max(0, place)]

    def sampled(self, step_s: float) -> Floats:
        """The rate at the start of every step until the end."""
        times = np.arange(0.0, self.end_s - 1e-9, step_s)
        if self.linear:
            return np.asarray(np.interp(times, self.times_s, self.rates))
        places = np.searchsorted(self.times_s, times + 1e-9, side="right") - 1
        return np.asarray(self.rates, dtype=np.float64)[np.maximum(0, places)]


def jitter(rng: np.random.Generator, steps: int, step_s: float, spread: float = 0.01, memory_s: float = 5.0) -> Floats:
    """A multiplier around 1 that drifts slowly: no source is exactly steady.

    Fast randomness is not drawn here: the queues' formulas hold it (docs/decisions).
    """
    keep = math.exp(-step_s / memory_s)
    noise = rng.normal(0.0, spread * math.sqrt(1.0 - keep * keep), steps)
    level, levels = rng.normal(0.0, spread), np.empty(steps)
    for at in range(steps):
        level = keep * level + noise[at]
        levels[at] = level
    return np.maximum(0.0, 1.0 + levels)


def read_trace(path: Path) -> Trace:
    """A trace from a CSV with the columns `time_s` and `rate`; the last row's step length ends it."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"trace {path}: cannot be read as CSV text: {error}") from None
    head = [name.strip() for name in rows[0]] if rows else []
    for column in ("time_s", "rate"):
        if column not in head:
            raise DataError(f"trace {path}: needs the columns time_s,rate in its first line, got {','.join(head)!r}")
    points: list[tuple[float, float]] = []
    for line, row in enumerate(rows[1:], start=2):
        if row:
            points.append(_point(path, line, head, row, points))
    if len(points) < 2:
        raise DataError(f"trace {path}: needs at least 2 rows, got {len(points)}")
    times = tuple(time - points[0][0] for time, _ in points)
    return Trace(times, tuple(rate for _, rate in points), times[-1] + (times[-1] - times[-2]))


def _point(
    path: Path, line: int, head: Sequence[str], row: Sequence[str], before: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    values = dict(zip(head, row, strict=False))
    try:
        time_s, rate = float(values["time_s"]), float(values["rate"])
    except (KeyError, ValueError):
        raise DataError(f"trace {path} line {line}: time_s and rate must be numbers, got {','.join(row)!r}") from None
    if not (math.isfinite(time_s) and math.isfinite(rate)):
        raise DataError(f"trace {path} line {line}: time_s and rate must be finite, got {','.join(row)!r}")
    if rate < 0.0:
        raise DataError(f"trace {path} line {line}: rate must be 0 or more tuples/s, got {rate:g}")
    if before and time_s <= before[-1][0]:
        raise DataError(f"trace {path} line {line}: time_s must grow, got {time_s:g} after {before[-1][0]:g}")
    return time_s, rate
