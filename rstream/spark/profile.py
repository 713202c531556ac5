"""At what rate a replay sends: a number, steps, a CSV, an experiment of the papers, or the data's own times. No Spark.

A profile says when the n-th record is due. Its last rate holds for as long as there are records.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rstream.errors import DataError, UsageError
from rstream.lab.catalogue import experiments, find
from rstream.lab.trace import Trace, read_trace

_STEP = re.compile(r"([0-9.eE+]+)@([0-9.]+)s?")
_RAMP_PIECES = 64
"""A ramp is replayed as so many steps."""


@dataclass(frozen=True)
class Profile:
    """Rates that hold from given times on, records a second over all partitions.

    >>> profile = Profile((0.0, 2.0), (10.0, 100.0))
    >>> [float(due) for due in profile.due_s(np.array([0, 10, 20, 120]))]
    [0.0, 1.0, 2.0, 3.0]
    >>> profile.records(3.0)
    120.0
    """

    times_s: tuple[float, ...]
    rates: tuple[float, ...]

    def due_s(self, numbers: Any) -> Any:
        """When records of these numbers are due; one at the start of a pause is due at its end."""
        places = np.searchsorted(self._before, numbers, side="right") - 1
        times, rates = np.asarray(self.times_s), np.asarray(self.rates)
        return times[places] + (numbers - self._before[places]) / rates[places]

    def records(self, until_s: float) -> float:
        """How many records are due by a time."""
        ends = np.minimum(np.append(self.times_s[1:], math.inf), until_s)
        return float(np.sum(np.maximum(0.0, ends - np.asarray(self.times_s)) * np.asarray(self.rates)))

    @property
    def _before(self) -> Any:
        """How many records are due before each step."""
        return np.append(0.0, np.cumsum(np.diff(self.times_s) * np.asarray(self.rates[:-1])))


def parse_profile(text: str, time_scale: float = 1.0) -> Profile:
    """What `--rate` says; an error tells what would have been right.

    >>> parse_profile("1800@0s,3600@100s", time_scale=0.1)
    Profile(times_s=(0.0, 10.0), rates=(1800.0, 3600.0))
    >>> parse_profile("E10").rates
    (1800.0, 3600.0, 2700.0)
    >>> parse_profile("100@0s,0@5s")
    Traceback (most recent call last):
    rstream.errors.DataError: --rate '100@0s,0@5s': the last rate is 0 records/s, so the replay would never end
    """
    if not (math.isfinite(time_scale) and time_scale > 0):
        raise DataError(f"--time-scale {time_scale:g}: wanted a number above 0")
    times, rates = _points(text)
    problem = _problem(times, rates)
    if problem:
        raise DataError(f"--rate {text!r}: {problem}")
    return Profile(tuple(time * time_scale for time in times), tuple(rates))


def _problem(times: Sequence[float], rates: Sequence[float]) -> str:
    if not all(math.isfinite(number) and number >= 0 for number in (*times, *rates)):
        return "times and rates must be numbers of 0 or more"
    if times[0] != 0.0:
        return f"it must begin at 0s, got {times[0]:g}s"
    if any(later <= earlier for earlier, later in pairwise(times)):
        return "each time must be later than the one before"
    return "" if rates[-1] > 0 else "the last rate is 0 records/s, so the replay would never end"


def _points(text: str) -> tuple[list[float], list[float]]:
    try:
        return [0.0], [float(text)]
    except ValueError:
        pass
    if "@" in text:
        found = [_STEP.fullmatch(step.strip()) for step in text.split(",")]
        try:
            steps = [(float(each[2]), float(each[1])) for each in found if each is not None]
        except ValueError:
            steps = []
        if len(steps) < len(found):
            raise DataError(_wanted(text))
        return [time for time, _ in steps], [rate for _, rate in steps]
    if Path(text).suffix == ".csv":
        return _of_trace(read_trace(Path(text)))
    return _of_trace(_of_experiment(text))


def _wanted(text: str) -> str:
    wanted = "a number of records/s, steps like 1800@0s,3600@100s, a .csv of time_s,rate, or an experiment like E10"
    return f"--rate {text!r}: wanted {wanted}"


def _of_experiment(text: str) -> Trace:
    """The load of an experiment, `E10`, or of one of its cases where they differ, `S2/top_n`."""
    name, _, case = text.partition("/")
    try:
        cases = {each.name: each.setup.traces[0] for each in find(name).cases()}
    except UsageError:
        raise DataError(f"{_wanted(text)} (there are {', '.join(experiments())})") from None
    if not cases:
        raise DataError(f"--rate {text!r}: experiment {name} has no load over time; choose another")
    traces = [trace for known, trace in cases.items() if case in ("", known)]
    if not traces:
        raise DataError(f"--rate {text!r}: {name} has no case {case!r}; it has: {', '.join(cases)}")
    if len(set(traces)) > 1:
        raise DataError(f"--rate {text!r}: the cases of {name} differ; name one: {name}/{next(iter(cases))}")
    return traces[0]


def _of_trace(trace: Trace) -> tuple[list[float], list[float]]:
    if not trace.linear:
        return list(trace.times_s), list(trace.rates)
    ends = [*trace.times_s[1:], trace.end_s]
    times = [
        start + (end - start) * piece / _RAMP_PIECES
        for start, end in zip(trace.times_s, ends, strict=True)
        for piece in range(_RAMP_PIECES)
    ]
    return times, [trace.at(time) for time in times]
