"""Checkpoints in virtual time: seeded crashes, zombies and coordinator restarts leave every result exact."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rstream.core.bolt_task import BoltTask
from rstream.core.records import OVER
from rstream.core.sink_task import SinkTask
from rstream.core.worker_checkpoints import CheckpointedTasks
from rstream.errors import ProtocolError
from rstream.lab.fault_checkpoints import CheckpointSchedule
from rstream.lab.fault_topologies import StoreSink

SEEDS = range(30)
SEEDS_OF_MUTANTS = range(120)
SEEDS_OF_LEASES = range(10)


def verdicts(seeds: range) -> Iterator[str]:
    for seed in seeds:
        try:
            yield CheckpointSchedule(seed).run().verdict
        except (AssertionError, ProtocolError) as error:
            yield f"broke: {error!r}"


def test_all_tasks_go_back_to_a_checkpoint_and_the_results_are_exact() -> None:
    went_back = 0
    for seed in SEEDS:
        schedule = CheckpointSchedule(seed)
        outcome = schedule.run()
        assert outcome.exact, f"seed {seed}: {outcome.verdict}"
        went_back += schedule.record.restarts > 0 and schedule.record.checkpoints.committed > 0
    assert went_back > len(SEEDS) / 4, "most schedules should have both a crash and a checkpoint"


def test_inputs_that_do_not_wait_for_each_others_barriers_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def pass_at_once(self: BoltTask) -> None:
        self.barred.clear()
        number, self.barrier = self.barrier, 0
        for channel in self.in_channels.values():
            if channel.queue and channel not in self.waiting:
                self.waiting.append(channel)
        self.pass_barrier(number)

    monkeypatch.setattr(BoltTask, "_align", pass_at_once)
    assert any(verdict != "exact" for verdict in verdicts(SEEDS_OF_MUTANTS))


def test_sinks_that_commit_before_the_checkpoint_is_whole_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckpointedTasks, "commit_due", CheckpointedTasks.__mro__[1].commit_due)  # type: ignore[attr-defined]
    assert any(verdict != "exact" for verdict in verdicts(SEEDS_OF_MUTANTS))


def test_sinks_that_forget_what_they_set_apart_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: SinkTask, own: list[object]) -> None:
        BoltTask._restore_own(self, own)

    monkeypatch.setattr(SinkTask, "_restore_checkpoint", forget)
    assert any(verdict != "exact" for verdict in verdicts(SEEDS_OF_MUTANTS))


def test_a_sink_whose_worker_has_no_lease_commits_no_checkpoint_until_it_has_one() -> None:
    kept_waiting = 0
    for seed in SEEDS_OF_LEASES:
        schedule = CheckpointSchedule(seed, faults=0)
        sinks = [operator.logic for operator in schedule.workload.graph.operators]
        stores = [sink.store for sink in sinks if isinstance(sink, StoreSink)]
        while schedule.record.checkpoints.committed < 1 and schedule.record.state not in OVER:
            schedule.step()
        machines = [worker.machine for worker in schedule.workers.values() if worker.machine is not None]
        for machine in machines:
            machine.lease_until_s = 0.0
        before = [list(store.rows) for store in stores]
        while schedule.record.checkpoints.committed < 4 and schedule.record.state not in OVER:
            schedule.step()
        assert [store.rows for store in stores] == before, f"seed {seed}"
        kept_waiting += any(machine._owes_commit for machine in machines)
        for machine in machines:
            machine.lease_until_s = float("inf")
        assert schedule.run().verdict == "exact", f"seed {seed}"
    assert kept_waiting > len(SEEDS_OF_LEASES) / 4
