"""Every policy that acts has its forecasts compared with the window after its act."""

from __future__ import annotations

from typing import Any

import pytest

from rstream.core.meter import Meter
from rstream.core.outcomes import outcome
from rstream.core.records import TopologyRecord
from rstream.core.slots import SlotBook
from rstream.core.steering import ControlMachine
from rstream.core.view import build
from rstream.schedulers.base import View
from tests.unit.control.samples import NODES, fill, make_record

ACTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "es": ({}, {"rate", "queue"}),
    "drs": ({"executors_max": 12}, {"sojourn_ms"}),
    "psps": ({}, {"theta", "events", "replicas_exact"}),
    "dabs": ({}, {"estimate", "capacity_each"}),
    "me": ({"effective_min": 1, "utilisation_min": 0.0}, {"T_ms"}),
    "sl": ({"xi": 1.0, "nodes": 1}, {"traffic_between"}),
    "ra": ({}, {"nodes", "traffic_cut", "saved_by_node_s", "saved_by_process_s"}),
}
"""Parameters with which each policy acts on the sample, and what it then forecasts."""


def _view(record: TopologyRecord, meter: Meter, end_s: float) -> View:
    book = SlotBook()
    book.sync([record])
    return build([record], [record], {"wc": meter}, NODES, book, record.control, end_s - 10.0, end_s).view


@pytest.mark.parametrize("policy", ACTS)
def test_a_decision_that_was_carried_out_gets_an_outcome(policy: str) -> None:
    parameters, forecast = ACTS[policy]
    record, machine, meter = (
        make_record(policy=policy, interval_s=10.0, parameters=parameters),
        ControlMachine(),
        Meter(),
    )
    fill(meter, record, 0.0, 19.0, 1000.0, 0.0007)
    fill(meter, record, 19.0, 31.0, 1000.0, 0.0009)  # delays rise, which is what me looks for
    machine.regroup([record], 0.0)
    (group,) = machine.due(20.0)
    records = {"wc": record}
    meter.heard_s = dict.fromkeys(record.hosts(), 20.0)
    picture = machine.look(group, records, {"wc": meter}, NODES)
    assert picture is not None
    entry = machine.note(group, records, picture, machine.decide(group, picture, 20.0), 20.0)["wc"]
    assert entry["state"] == "planned", entry["reasons"]
    entry.update(state="done", took_s=0.1)
    machine.log(record).judge(_view(record, meter, 31.0))
    compared = {each["what"]: each for each in entry["outcome"]["compared"]}
    assert compared.keys() >= forecast
    assert all(each["measured"] >= 0.0 for each in compared.values())


def _compared(state: str, subject: str, **forecast: float) -> dict[str, bool]:
    record, meter = make_record(), Meter()
    fill(meter, record, 0.0, 12.0, 1000.0, 0.001)
    entry = {"topology": "wc", "state": state, "reasons": [{"subject": subject, "forecast": forecast}]}
    found = outcome(entry, _view(record, meter, 11.0))
    return {each["what"]: each["came_true"] for each in found["compared"]} if found else {}


@pytest.mark.parametrize(
    ("subject", "figures"),
    [
        ("wc/double", {"theta": 1.0, "events": 10_010.0, "replicas_exact": 1.0, "estimate": 10_010.0}),
        ("wc/double", {"capacity_each": 10_000.0, "T_ms": 1.0, "queue": 10.0, "rate": 1000.0}),
        ("wc", {"T_ms": 4.0, "traffic_between": 1000.0}),
        ("cluster", {"nodes": 2.0, "traffic_cut": 1 / 3}),
    ],
)
def test_a_figure_comes_true_when_it_is_near_and_not_when_it_is_far(subject: str, figures: dict[str, float]) -> None:
    far = {what: 2 * figure for what, figure in figures.items()}
    assert _compared("done", subject, **figures) == dict.fromkeys(figures, True)
    assert _compared("done", subject, **far) == dict.fromkeys(far, False)


def test_a_placement_that_was_not_made_is_not_judged() -> None:
    for state in ("dry run", "nothing to do", "given up: a step was refused"):
        assert _compared(state, "cluster", nodes=1.0, traffic_cut=0.0) == {}
        assert _compared(state, "wc/double", rate=1000.0) == {"rate": True}
    assert _compared("done", "cluster", cost=0.3) == {}, "a score of the policy's own"
