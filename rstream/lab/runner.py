"""Runs an experiment: every case, policy and seed, on as many processes as the machine has cores."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from rstream.lab.experiment import SEEDS, Case, Check, Experiment, Outcome
from rstream.lab.simulate import Control, Run, simulate


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

    def run(self) -> Run:
        """Make it."""
        return simulate(self.case.setup, self.control, self.seed, first_s=self.case.first_s)


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
    done: Callable[[int, int], None] | None = None,
    memo: dict[bytes, Run] | None = None,
) -> Result:
    """All runs of an experiment and its checks; `done` hears how many of how many runs are finished.

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
    jobs: Sequence[Job], *, processes: int | None = None, done: Callable[[int, int], None] | None = None
) -> list[Run]:
    """Make all runs, in the order asked; in this process when one is enough."""
    workers = min(processes or os.cpu_count() or 1, len(jobs))
    tell = done or (lambda finished, total: None)
    if workers <= 1:
        results = []
        for at, job in enumerate(jobs):
            results.append(job.run())
            tell(at + 1, len(jobs))
        return results
    with ProcessPoolExecutor(workers) as pool:
        futures = {pool.submit(Job.run, job): at for at, job in enumerate(jobs)}
        found: dict[int, Run] = {}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            tell(len(found), len(jobs))
    return [found[at] for at in range(len(jobs))]
