"""Savepoints in virtual time: made while workers and the coordinator crash, each of them is a consistent cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from rstream.clock import ManualClock
from rstream.core.savepoints import Savepoints
from rstream.runtime.embedded import Embedded
from rstream.runtime.savepoints import LoadedSavepoint
from tests.simulation.saving import Saving, workload

SEEDS = range(12)


def verdict_from(uri: str, seed: int) -> str:
    """What is wrong with a run from a savepoint, with other numbers of tasks."""
    numbers = len(LoadedSavepoint(uri).manifest.by_name["number"].tasks)  # what they keep themselves cannot be divided
    load = workload(counters=1 + seed % 5, sinks=1 + seed % 3, sources=1 + seed % 4, numbers=numbers)
    host = Embedded(load.graph, workers=1 + seed % 3, clock=ManualClock(), start_from=uri)
    host.run()
    return load.check({name: host.results(name) for name in ("counts", "left", "right")})


def wrong(seeds: range, folder: Path) -> tuple[list[str], int, int]:
    """(what was wrong, savepoints made, crashes of workers meanwhile)."""
    found, made, crashes = [], 0, 0
    for seed in seeds:
        schedule = Saving(seed, folder)
        outcome = schedule.run()
        if not outcome.exact:
            found.append(f"seed {seed}: {outcome.verdict}")
        for uri in schedule.made:
            if problem := verdict_from(uri, seed):
                found.append(f"seed {seed}, savepoint {uri}: {problem}")
        made += len(schedule.made)
        crashes += schedule.record.restarts
    return found, made, crashes


def test_runs_go_on_exactly_and_so_does_every_run_from_a_savepoint(tmp_path: Path) -> None:
    found, made, crashes = wrong(SEEDS, tmp_path)
    assert found == []
    assert made > len(SEEDS) / 2
    assert crashes > len(SEEDS) / 2


def test_a_cut_after_a_single_probe_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked_once = Savepoints._probe

    def probe(self: Savepoints, record, order):  # type: ignore[no-untyped-def]
        instructions = asked_once(self, record, order)
        order.before = order.quiet  # so that any answers are those of the probe before
        return instructions

    monkeypatch.setattr(Savepoints, "_probe", probe)
    found: list[str] = []
    for start in range(0, 200, 20):
        try:
            found, _, _ = wrong(range(start, start + 20), tmp_path)
        except AssertionError as error:
            found = [repr(error)]
        if found:
            return
    raise AssertionError("a cut with tuples on their way went unnoticed")
