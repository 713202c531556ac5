"""Which policy is asked when, what it sees, and what is written down."""

from __future__ import annotations

import json

import pytest

from rstream.config import ControlConfig
from rstream.core.first_places import first_places
from rstream.core.meter import Meter
from rstream.core.records import TopologyRecord
from rstream.core.slots import SlotBook
from rstream.core.steering import ControlMachine, check, live_parameters
from rstream.errors import PolicyError
from rstream.schedulers import registry
from tests.unit.control.samples import NODES, fill, make_record


def _look(
    record: TopologyRecord, machine: ControlMachine, end_s: float = 20.0, service_s: float = 0.0015
) -> dict[str, object]:
    meter = Meter()
    fill(meter, record, 0.0, end_s, 1000.0, service_s)
    machine.regroup([record], 0.0)
    (group,) = machine.due(end_s)
    records = {record.name: record}
    picture = machine.look(group, records, {record.name: meter}, NODES)
    assert picture is not None
    plan = machine.decide(group, picture, end_s)
    return machine.note(group, records, picture, plan, end_s)[record.name]


@pytest.mark.parametrize("policy", registry.names())
def test_every_policy_decides_on_a_running_topology_and_says_why(policy: str) -> None:
    entry = _look(make_record(policy=policy, interval_s=5.0), ControlMachine())
    assert entry["policy"] == policy
    assert entry["reasons"]
    assert json.loads(json.dumps(entry)) == entry


def test_es_wants_more_instances_of_a_step_that_cannot_keep_up() -> None:
    entry = _look(make_record(policy="es", interval_s=5.0), ControlMachine())
    sizes = {(move["kind"], move.get("task", [""])[0]) for move in entry["moves"] if "task" in move}  # type: ignore[attr-defined]
    assert ("add_task", "double") in sizes or ("add_task", "count") in sizes
    assert entry["state"] == "planned"


def test_a_dry_run_decides_and_changes_nothing() -> None:
    entry = _look(make_record(policy="es", interval_s=5.0, dry_run=True), ControlMachine())
    assert entry["state"] == "dry run"
    assert entry["moves"] == []
    held = [reason["inputs"]["held_back"] for reason in entry["reasons"] if "held_back" in reason["inputs"]]  # type: ignore[attr-defined]
    assert held[0]["wc"]["parallelism"]


def test_a_forecast_is_compared_with_what_came_of_it() -> None:
    record, machine = make_record(policy="es", interval_s=5.0, dry_run=True), ControlMachine()
    _look(record, machine, end_s=20.0, service_s=0.0008)
    _look(record, machine, end_s=30.0, service_s=0.0008)
    first = machine.log(record).entries[0]
    compared = {(each["subject"], each["what"]): each for each in first["outcome"]["compared"]}
    assert compared["wc/double", "rate"]["came_true"]
    assert compared["wc/double", "rate"]["measured"] == pytest.approx(1000, rel=0.05)


def test_looks_that_say_the_same_again_are_one_entry() -> None:
    record, machine = make_record(policy="even", interval_s=5.0), ControlMachine()
    for end_s in (20.0, 30.0, 40.0):
        _look(record, machine, end_s)
    (entry,) = machine.log(record).entries
    assert entry["times"] == 3


def test_a_new_policy_is_asked_after_its_own_interval() -> None:
    record, machine = make_record(policy="es", interval_s=5.0), ControlMachine()
    machine.regroup([record], 100.0)
    assert not machine.due(104.0)
    assert machine.due(105.0)
    record.policy = "ra"
    machine.regroup([record], 106.0)
    assert [group.policy.name for group in machine.due(111.0)] == ["ra"]


def test_topologies_with_the_same_policy_are_planned_together() -> None:
    machine = ControlMachine()
    machine.regroup([make_record("a", "me"), make_record("b", "me"), make_record("c", "es")], 0.0)
    assert sorted(group.topologies for group in machine.groups.values()) == [["a", "b"], ["c"]]


def test_nothing_is_decided_while_a_topology_changes() -> None:
    record, machine, meter = make_record(policy="es", interval_s=5.0), ControlMachine(), Meter()
    fill(meter, record, 0.0, 20.0, 1000.0, 0.001)
    machine.regroup([record], 0.0)
    record.state = "REBALANCING"
    assert machine.look(machine.due(20.0)[0], {"wc": record}, {"wc": meter}, NODES) is None


def test_wrong_parameters_of_a_policy_are_refused_in_one_line() -> None:
    with pytest.raises(PolicyError, match="unknown parameter 'trigr'; did you mean 'trigger'"):
        check("es", ControlConfig(parameters={"trigr": 1}))
    with pytest.raises(PolicyError, match="unknown policy 'ess'"):
        check("ess", ControlConfig())


def test_the_interval_reaches_the_policy_under_its_own_name() -> None:
    assert live_parameters("es", ControlConfig(interval_s=3)) == {"adjust_interval_s": 3.0}
    assert live_parameters("psps", ControlConfig())["grouping"] == "keep"


def test_policies_that_place_decide_the_first_places() -> None:
    def places(policy: str) -> object:
        record = make_record(policy=policy)
        record.placement, record.workers = {}, {}
        return first_places(record, [], NODES, SlotBook())

    assert places("static") is None
    assert places("es") is None
    for policy in ("even", "rstorm"):
        assert set(places(policy)) == set(make_record().placement)  # type: ignore[call-overload]
    assert places("even") != places("rstorm")
