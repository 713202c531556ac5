"""Plans as steps: in the order in which they are safe, as data that the journal can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rstream.config import ControlConfig
from rstream.core import channel as core
from rstream.core.meter import Meter
from rstream.core.slots import SlotBook
from rstream.core.steps import Step, restart_steps, steps_of
from rstream.core.view import build
from rstream.schedulers.base import Batch, Plan, Slot, TaskId, TopologyPlan
from tests.unit.control.samples import NODES, make_record


def _steps(plan: Plan, present: Mapping[core.TaskId, Slot] | None = None) -> list[Step]:
    record, book = make_record(), SlotBook()
    book.sync([record])
    picture = build([record], [record], {"wc": Meter()}, NODES, book, ControlConfig(), 0.0, 0.0)
    return steps_of(picture.view, picture.numbering, plan, "wc", present)


def _present(**more: Slot) -> dict[core.TaskId, Slot]:
    """Where the tasks of the sample are, and further ones of `double` that idle, by number."""
    here = {core.TaskId(name, 0): Slot("n1", 0) for name in ("n", "double", "count", "out")}
    idle = {core.TaskId("double", int(name.removeprefix("idle"))): slot for name, slot in more.items()}
    return {**here, core.TaskId("double", 1): Slot("n2", 0), **idle}


def test_growing_loads_tasks_in_their_slots_before_they_get_work() -> None:
    sizes = {"count": 2, "double": 3}
    places = {TaskId("double", 2): Slot("n2", 0), TaskId("count", 1): Slot("n2", 0)}
    steps = _steps(Plan({"wc": TopologyPlan(sizes, placement=places)}, nodes_more=1))
    assert [(step.kind, step.operator, step.active) for step in steps] == [
        ("nodes", "", []),
        ("load", "double", [2]),
        ("load", "count", [1]),
        ("rescale", "count", [0, 1]),
        ("activate", "double", [0, 1, 2]),
    ]
    assert steps[1].what == "load double#2 on n2/0"
    assert steps[3].what == "rescale count: its key ranges from 1 to 2 tasks"


def test_shrinking_comes_after_growing() -> None:
    plan = Plan({"wc": TopologyPlan({"double": 1, "count": 2}, placement={TaskId("count", 1): Slot("n1", 0)})})
    assert [step.kind for step in _steps(plan)] == ["load", "rescale", "deactivate"]


def test_a_task_that_stops_where_no_other_works_goes_to_those_that_stay_so_that_its_node_empties() -> None:
    plan = Plan({"wc": TopologyPlan({"double": 1})}, nodes_released=("n2",))
    assert [step.what for step in _steps(plan, _present())] == ["deactivate double#1", "move double#1 on n1/0"]
    assert [step.kind for step in _steps(plan)] == ["deactivate"], "tasks that cannot move stay"
    elsewhere = TopologyPlan({"count": 2}, placement={TaskId("count", 1): Slot("n1", 1)})
    gathered = _steps(Plan({"wc": elsewhere}), _present(idle2=Slot("n2", 3)))[-1]
    assert gathered.places == [("double", 2, "n1", 0)], "what idled alone from before is gathered too"
    assert _steps(Plan({"wc": elsewhere}), _present(idle2=Slot("n2", 0)))[-1].kind == "rescale"


def test_a_task_that_idles_elsewhere_moves_to_its_place_in_the_plan_when_it_is_needed_again() -> None:
    places = {TaskId("double", 2): Slot("n2", 1), TaskId("double", 3): Slot("n2", 1)}
    steps = _steps(Plan({"wc": TopologyPlan({"double": 4}, placement=places)}), _present(idle2=Slot("n1", 0)))
    assert [step.what for step in steps] == [
        "load double#3 on n2/1",
        "move double#2 on n2/1",
        "activate double#2, double#3",
    ]
    there = _steps(Plan({"wc": TopologyPlan({"double": 4}, placement=places)}), _present(idle2=Slot("n2", 1)))
    assert [step.kind for step in there] == ["load", "activate"]


def test_tasks_move_in_the_batches_of_the_plan() -> None:
    one, other = TaskId("double", 0), TaskId("double", 1)
    batches = (Batch("double", (other,), 2.0), Batch("double", (one,)))
    plan = Plan({"wc": TopologyPlan(placement={one: Slot("n2", 1), other: Slot("n1", 1)}, batches=batches)})
    first, second = _steps(plan)
    assert (first.kind, first.what, first.pause_s) == ("move", "move double#1 on n1/1", 2.0)
    assert second.places == [("double", 0, "n2", 1)]


def test_what_no_batch_names_moves_layer_by_layer_and_half_a_layer_at_a_time() -> None:
    tasks = [TaskId("count", 0), TaskId("double", 1), TaskId("double", 0), TaskId("n", 0)]
    plan = Plan({"wc": TopologyPlan(placement=dict.fromkeys(tasks, Slot("n2", 1)))})
    assert [step.what.split(" on ")[0] for step in _steps(plan)] == [
        *("move n#0", "move double#0", "move double#1", "move count#0")
    ]


def test_a_step_survives_the_journal() -> None:
    for step in _steps(Plan({"wc": TopologyPlan({"double": 4})})):
        assert Step(**json.loads(json.dumps(step.to_data()))).slots == step.slots


def test_a_restart_is_one_step_with_the_new_sizes() -> None:
    (step,) = _restart(TopologyPlan({"double": 4, "count": 1}, execute="restart-drop"), drop=True)
    assert (step.sizes, step.drop, step.places) == ({"double": 4}, True, [])
    assert step.what == "restart with double 2 -> 4, dropping what is queued"


def test_a_restart_brings_tasks_to_the_places_of_the_plan_under_numbers_without_gaps() -> None:
    (step,) = _restart(TopologyPlan(placement={TaskId("count", 0): Slot("n2", 1)}))
    assert step.what == "restart with 1 tasks elsewhere"
    everything = {("n", 0): ("n1", 0), ("double", 0): ("n1", 0), ("double", 1): ("n2", 0)}
    everything |= {("count", 0): ("n2", 1), ("out", 0): ("n1", 0)}
    assert {(place[0], place[1]): (place[2], place[3]) for place in step.places} == everything
    smaller = TopologyPlan({"double": 1}, {}, {TaskId("out", 0): Slot("n2", 0)}, (TaskId("double", 0),))
    (step,) = _restart(smaller)
    assert ("double", 0, "n2", 0) in step.places, "double#1 stays, and is the only one then"
    (step,) = _restart(TopologyPlan({"double": 3}, placement={TaskId("out", 0): Slot("n2", 0)}))
    assert step.places == [], "double#2 has no place, so all places are the engine's choice"
    assert _restart(TopologyPlan()) == []


def _restart(plan: TopologyPlan, drop: bool = False) -> list[Step]:
    record, book = make_record(), SlotBook()
    book.sync([record])
    picture = build([record], [record], {"wc": Meter()}, NODES, book, ControlConfig(), 0.0, 0.0)
    return restart_steps(picture.view, picture.numbering, Plan({"wc": plan}), "wc", "somewhere", drop)
