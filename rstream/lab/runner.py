"""Runs an experiment: every case, policy and seed, on as many processes as the machine has cores."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import Array
from typing import Any

from rstream.lab.experiment import SEEDS, Case, Check, Experiment, Outcome
from rstream.lab.simulate import Control, Run, simulate

LOOK_S = 0.5  # how often the bar is told how far the runs are


@dataclass(frozen=True)
class Job:
    """One run to make."""

    case: Case
    control: Control
    seed: int

    @property
    def key(self) -> bytes:
        """Equal for jobs that give the same run."""
        return pickle.dumps((self.case.setup, self.control, self.case.first_s, self.seed))

    def run(self, passed: Callable[[float], None] | None = None) -> Run:
        """Make it; `passed` hears which part of its virtual time is over."""
        setup = self.case.setup
        tell = None if passed is None else (lambda time_s: passed(time_s / setup.end_s))
        return simulate(setup, self.control, self.seed, tell, self.case.first_s)


@dataclass
class Result:
    """An experiment with its runs and what they say."""

    experiment: Experiment
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    outcome: Outcome
    checks: list[Check]


def run_experiment(
    experiment: Experiment,
    policies: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    *,
    processes: int | None = None,
    done: Callable[[float, int], None] | None = None,
    memo: dict[bytes, Run] | None = None,
) -> Result:
    """All runs of an experiment and its checks; `done` hears how many of how many runs are over, begun ones in part.

    `memo` keeps runs between experiments: many rows of a paper compare with the same run.
    """
    cases = experiment.chosen(policies)
    for case in cases:
        for control in case.controls:
            control.make()  # a wrong name or parameter is said before anything runs
    jobs = [Job(case, control, seed) for case in cases for control in case.controls for seed in seeds]
    known = {} if memo is None else memo
    new = [job for job in jobs if job.key not in known]
    known.update(zip((job.key for job in new), run_jobs(new, processes=processes, done=done), strict=True))
    outcome = Outcome()
    for job, run in ((job, known[job.key]) for job in jobs):
        outcome.runs.setdefault((job.case.name, job.control.name), []).append(run)
    return Result(experiment, cases, tuple(seeds), outcome, experiment.judge(outcome))


def run_jobs(
    jobs: Sequence[Job], *, processes: int | None = None, done: Callable[[float, int], None] | None = None
) -> list[Run]:
    """Make all runs, in the order asked; in this process when one is enough."""
    workers = min(processes or os.cpu_count() or 1, len(jobs))
    tell = done or (lambda finished, total: None)
    if workers <= 1:
        results = []
        for at, job in enumerate(jobs):
            results.append(job.run(lambda part, at=at: tell(at + part, len(jobs))))  # type: ignore[misc]
            tell(at + 1, len(jobs))
        return results
    parts = Array("d", len(jobs), lock=False)
    with ProcessPoolExecutor(workers, initializer=_PARTS.append, initargs=(parts,)) as pool:
        futures = [pool.submit(_run, job, at) for at, job in enumerate(jobs)]
        open_runs = set(futures)
        while open_runs:
            _, open_runs = wait(open_runs, LOOK_S, FIRST_COMPLETED)
            tell(sum(1.0 if future.done() else parts[at] for at, future in enumerate(futures)), len(jobs))
    return [future.result() for future in futures]


# In a process of the pool: where each run notes how far it is, for the bar of the process that started it.
_PARTS: list[Any] = []


def _run(job: Job, at: int) -> Run:
    return job.run(lambda part: _PARTS[-1].__setitem__(at, part))
