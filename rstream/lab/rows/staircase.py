"""Throughput limits: the rate climbs in steps until the system no longer keeps up (experiments.md section 7, 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rstream.lab.experiment import Check, Figure, Outcome, graded, on_miss, shown
from rstream.lab.simulate import Run
from rstream.lab.trace import Trace

STEP_RATE = 500.0
STEP_S = 90.0
GROWING_S = 60.0


def staircase(top: float) -> Trace:
    """From 500 t/s to `top` in steps of 500."""
    steps = round(top / STEP_RATE)
    return Trace.steps(*((at * STEP_S, (at + 1) * STEP_RATE) for at in range(steps)), end_s=steps * STEP_S)


def limit(run: Run) -> float:
    """The last rate before the first step at whose end what waits has grown for a minute; 0 if the first fails."""
    waiting = [queued + backlog for queued, backlog in zip(run.queued, run.backlog, strict=True)]
    steps = round((run.time_s[-1] + 1.0) / STEP_S)
    for step in range(steps):
        end = min(len(waiting) - 1, round((step + 1) * STEP_S) - 2)
        before = max(0, end - round(GROWING_S))
        if waiting[end] - waiting[before] > 0.005 * (step + 1) * STEP_RATE * GROWING_S:
            return step * STEP_RATE
    return steps * STEP_RATE


def highest_rate(
    case: str, winner: str, others: Sequence[str], paper: float, note: str = ""
) -> Callable[[Outcome], Check]:
    """The winner's limit is the highest; its ratio to the paper's own figure, from other machines, is shown."""

    def check(outcome: Outcome) -> Check:
        best, top = outcome.figure(case, winner, limit), max(outcome.of(case, winner)[0].rate)
        rest = {name: outcome.figure(case, name, limit) for name in others}
        good = all(best.median > figure.median for figure in rest.values())
        text = f"{_climbed(winner, best, top)}; " + ", ".join(_climbed(name, each, top) for name, each in rest.items())
        return Check(
            f"{case}: highest rate, t/s",
            f"{winner} {paper:g}, others lower",
            text,
            "order",
            graded(good),
            best.median / paper,
            on_miss(note, good),
        )

    return check


def _climbed(name: str, figure: Figure, top: float) -> str:
    """A limit as a text; one that is the highest rate offered is only a lower bound."""
    return f"{name} {'at least ' if figure.high >= top else ''}{shown(figure, 0)}"
