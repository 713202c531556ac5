"""What a live run recorded can be replayed in the lab under another policy."""

from __future__ import annotations

import pytest

from rstream.core.meter import Meter
from rstream.core.recording import recording_of
from rstream.errors import UsageError
from rstream.lab.compare import compare
from rstream.lab.recorded import from_recording
from tests.unit.control.samples import NODES, fill, make_record


def test_the_recorded_load_runs_in_the_lab_under_other_policies() -> None:
    record, meter = make_record(), Meter()
    fill(meter, record, 0.0, 40.0, 500.0, 0.001)
    trace, cluster, topology = from_recording(recording_of(record, meter, NODES))
    assert trace.at(20.0) == pytest.approx(500.0)
    assert cluster.nodes == 2
    assert topology.operator("double").service_s == pytest.approx(0.001)
    assert topology.operator("count").keyed
    found = compare(trace, cluster, topology, ["static", "es"], (1,))
    assert {score.policy for score in found.scores} == {"static", "es"}
    assert all(score.processed > 0.9 for score in found.scores)


def test_nothing_recorded_is_said_in_one_line() -> None:
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        recording_of(make_record(), Meter(), NODES)
