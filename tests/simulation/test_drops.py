"""Dropped tuples under faults: what was dropped once is dropped again in a replay, or the run would stop loudly."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from rstream.lab.fault_topologies import make_workload
from rstream.lab.faults import Schedule

CRASHES = ("crash", "crash of several", "crash during recovery")


@pytest.mark.parametrize(("t_out_s", "q_size"), [(0.01, None), (None, 3), (0.02, 6)])
def test_a_replay_drops_the_very_same_tuples(t_out_s: float | None, q_size: int | None) -> None:
    happened: Counter[str] = Counter()
    dropped = 0
    for seed in range(9200, 9208):
        workload = replace(make_workload(random.Random(seed)), check=lambda results: "", check_state=lambda final: "")
        schedule = Schedule(seed, workload=workload, kinds=CRASHES)
        schedule.limits = replace(schedule.limits, t_out_s=t_out_s, q_size=q_size)
        outcome = schedule.run()
        assert outcome.exact, (seed, outcome.verdict)
        happened.update(outcome.events)
        machines = [worker.machine for worker in schedule.workers.values() if worker.machine is not None]
        dropped += sum(task.counters.dropped for machine in machines for task in machine.tasks)
    assert dropped > 0
    assert sum(happened[kind] for kind in CRASHES) > 2
