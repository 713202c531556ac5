"""Plans under faults: every step is done or given up, across restarts of the coordinator too, and counts are exact."""

from __future__ import annotations

from collections import Counter

from tests.simulation.executing import Executing


def test_plans_are_carried_out_or_given_up_cleanly_whatever_crashes() -> None:
    happened: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    moved = loaded = 0
    for seed in range(9000, 9016):
        schedule = Executing(seed)
        outcome = schedule.run()
        assert outcome.exact, (seed, outcome.verdict)
        happened.update(outcome.events)
        for entry in schedule.entries[:-1]:
            moved += sum(step["kind"] == "move" and step["state"] == "done" for step in entry["steps"])
            kinds = [step["kind"] for step in entry["steps"] if step["state"] == "done"]
            loaded += kinds[:1] == ["workers"] and "load" in kinds
            ends[entry["state"].partition(":")[0]] += 1
            states = [step["state"] for step in entry["steps"]]
            if entry["state"] == "done":
                assert set(states) == {"done"}
                assert entry["took_s"] >= max(step["took_s"] for step in entry["steps"])
            else:
                assert "running" not in states
                assert "waiting" not in states
    assert ends["done"] > 10
    assert moved > 5
    assert loaded > 2, "new tasks came with new workers"
    assert happened["coordinator restart"] + happened["coordinator restart between two steps"] >= 2


def test_a_coordinator_that_comes_back_goes_on_with_the_step_at_which_it_stood() -> None:
    ends = []
    for seed in range(9100, 9106):
        schedule = Executing(seed, faults=0)
        while not (schedule.entries and any(step["state"] == "running" for step in schedule.entries[-1]["steps"])):
            schedule.step()
        before = [step["what"] for step in schedule.entries[-1]["steps"]]
        schedule._fault("coordinator restart")
        entry = schedule.entries[-1]
        while entry["state"] == "running":
            schedule.step()
        assert [step["what"] for step in entry["steps"]] == before
        assert schedule.run().exact
        ends.append(entry["state"])
    assert "done" in ends, "others were given up because the topology was over first"
