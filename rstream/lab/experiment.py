"""An experiment of a paper as data: what is run, on which load, and which of the paper's statements are checked.

A check compares the median over seeds with the paper. Its verdict is `pass`, `fail`, or `fitted` for a figure that
was in view when a constant was chosen: such a figure counts for nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from rstream.lab.simulate import Control, Run, Setup

Verdict = Literal["pass", "fail", "fitted"]
SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Figure:
    """A median over seeds with its extremes.

    >>> Figure.of([3.0, 1.0, 2.0])
    Figure(median=2.0, low=1.0, high=3.0)
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """Summarise one value per seed."""
        every = [float(value) for value in values]
        return cls(float(np.median(every)), min(every), max(every))


@dataclass(frozen=True)
class Check:
    """One statement of the paper against what the lab saw."""

    name: str
    paper: str
    ours: str
    rule: str
    verdict: Verdict
    ratio: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Case:
    """One setup on which one or more policies run."""

    name: str
    setup: Setup
    controls: tuple[Control, ...]
    first_s: float = 0.0


class MissingRun(Exception):
    """A check needs a policy that was not run; it is left out."""


@dataclass
class Outcome:
    """All runs of an experiment, by case and policy."""

    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)

    def of(self, case: str, policy: str) -> list[Run]:
        """The runs of one policy on one case, one per seed."""
        if (case, policy) not in self.runs:
            raise MissingRun(f"{case}/{policy}")
        return self.runs[case, policy]

    def figure(self, case: str, policy: str, measure: Callable[[Run], float]) -> Figure:
        """A measure's median over the seeds."""
        return Figure.of(measure(run) for run in self.of(case, policy))


@dataclass(frozen=True)
class Experiment:
    """One row of the table of experiments."""

    id: str
    paper: str
    title: str
    load: str
    checks: tuple[Callable[[Outcome], Check], ...]
    cases: Callable[[], tuple[Case, ...]] = tuple

    def chosen(self, policies: Sequence[str] | None) -> tuple[Case, ...]:
        """The cases, with only these policies; one that the experiment does not list runs with its defaults."""
        cases = self.cases()
        if policies is None:
            return cases
        picked = []
        for case in cases:
            controls: list[Control] = []
            for name in policies:
                own = [control for control in case.controls if name in (control.policy, control.name)]
                controls += own or [Control(name)]
            picked.append(replace(case, controls=tuple(controls)))
        return tuple(picked)

    def judge(self, outcome: Outcome) -> list[Check]:
        """Every check whose runs are there."""
        results = []
        for check in self.checks:
            try:
                results.append(check(outcome))
            except MissingRun:
                continue
        return results


def shown(figure: Figure, digits: int = 2) -> str:
    """A median with its spread, if there is one.

    >>> shown(Figure(2.0, 1.5, 2.5), 1)
    '2.0 (1.5 to 2.5)'
    """
    if figure.high - figure.low < 0.5 * 10**-digits:
        return f"{figure.median:.{digits}f}"
    return f"{figure.median:.{digits}f} ({figure.low:.{digits}f} to {figure.high:.{digits}f})"


def graded(good: bool, fitted: bool = False) -> Verdict:
    """The verdict of a check."""
    return "fitted" if fitted else ("pass" if good else "fail")


def on_miss(note: str, good: bool) -> str:
    """A note that explains a miss has nothing to say where there is none."""
    return "" if good else note


def order(
    name: str,
    case: str,
    policies: Sequence[str],
    measure: Callable[[Run], float],
    *,
    note: str = "",
    fitted: bool = False,
) -> Callable[[Outcome], Check]:
    """The systems come in this order, the smallest measure first."""

    def check(outcome: Outcome) -> Check:
        figures = [outcome.figure(case, policy, measure) for policy in policies]
        good = all(one.median <= other.median * (1 + 1e-9) for one, other in itertools.pairwise(figures))
        ours = ", ".join(f"{policy} {shown(figure)}" for policy, figure in zip(policies, figures, strict=True))
        return Check(
            name, " < ".join(policies), ours, "order of systems", graded(good, fitted), note=on_miss(note, good)
        )

    return check


def least(
    name: str, case: str, policies: Sequence[str], measure: Callable[[Run], float], *, note: str = ""
) -> Callable[[Outcome], Check]:
    """The first system's measure is the smallest; nothing is asked of the others among themselves."""

    def check(outcome: Outcome) -> Check:
        figures = [outcome.figure(case, policy, measure) for policy in policies]
        good = all(figures[0].median <= other.median * (1 + 1e-9) for other in figures[1:])
        ours = ", ".join(f"{policy} {shown(figure)}" for policy, figure in zip(policies, figures, strict=True))
        return Check(name, f"{policies[0]} least", ours, "the least", graded(good), note=on_miss(note, good))

    return check


def grows(
    name: str,
    points: Sequence[tuple[str, str, Callable[[Run], float]]],
    *,
    paper: str = "grows",
    note: str = "",
    fitted: bool = False,
) -> Callable[[Outcome], Check]:
    """A measure grows from each point to the next; a point is a case, a policy and what is measured there."""

    def check(outcome: Outcome) -> Check:
        figures = [outcome.figure(*point) for point in points]
        good = all(one.median < other.median for one, other in itertools.pairwise(figures))
        ours = " -> ".join(shown(figure) for figure in figures)
        return Check(name, paper, ours, "grows at every step", graded(good, fitted), note=on_miss(note, good))

    return check


def ratio(
    name: str,
    case: str,
    over: tuple[str, str],
    measure: Callable[[Run], float],
    paper: float,
    tolerance: float = 0.30,
    *,
    note: str = "",
    always: bool = False,
    fitted: bool = False,
) -> Callable[[Outcome], Check]:
    """The first system's measure over the second's is the paper's ratio, at most `tolerance` worse; better passes.

    The note explains a miss, unless it is `always` to be said.
    """

    def check(outcome: Outcome) -> Check:
        tops, bottoms = outcome.of(case, over[0]), outcome.of(case, over[1])
        figure = Figure.of(measure(top) / measure(bottom) for top, bottom in zip(tops, bottoms, strict=True))
        good = figure.median >= paper * (1.0 - tolerance) and figure.median > 1.0  # the order is required too
        rule = f"above 1, and at least {paper:g} less {tolerance:.0%}"
        verdict = graded(good, fitted)
        return Check(
            name, f"{paper:g}", shown(figure), rule, verdict, figure.median / paper, on_miss(note, good and not always)
        )

    return check


def exactly(
    name: str,
    case: str,
    policy: str,
    measure: Callable[[Run], Sequence[float]],
    paper: Sequence[float],
    *,
    fitted: bool = False,
    note: str = "",
) -> Callable[[Outcome], Check]:
    """A short series equals the paper's in the median of every entry."""

    def check(outcome: Outcome) -> Check:
        every = np.array([measure(run) for run in outcome.of(case, policy)], dtype=np.float64)
        ours = np.median(every, axis=0)
        agree = int((every == np.array(paper)).all(axis=1).sum())
        text = ", ".join(f"{value:g}" for value in ours) + f" ({agree} of {len(every)} seeds exact)"
        good = bool((ours == np.array(paper)).all())
        return Check(
            name, ", ".join(f"{v:g}" for v in paper), text, "exact in the median", graded(good, fitted), note=note
        )

    return check


def holds(
    name: str,
    case: str,
    policy: str,
    test: Callable[[Run], tuple[bool, str]],
    paper: str,
    rule: str,
    *,
    fitted: bool = False,
    note: str = "",
) -> Callable[[Outcome], Check]:
    """A statement that most seeds must bear out; the text shown is the first seed's."""

    def check(outcome: Outcome) -> Check:
        results = [test(run) for run in outcome.of(case, policy)]
        good = sum(ok for ok, _ in results) * 2 > len(results)
        text = f"{results[0][1]} ({sum(ok for ok, _ in results)} of {len(results)} seeds)"
        return Check(name, paper, text, rule, graded(good, fitted), note=note)

    return check


def as_data(check: Check) -> Mapping[str, Any]:
    """A check as plain JSON data."""
    return {
        "name": check.name,
        "paper": check.paper,
        "ours": check.ours,
        "ratio": check.ratio,
        "rule": check.rule,
        "verdict": check.verdict,
        "note": check.note,
    }
