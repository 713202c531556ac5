"""The monitor's samples are aligned, bounded, and lose nothing."""

from __future__ import annotations

import pytest

from rstream.core.channel import ChannelId, TaskId
from rstream.core.meter import SAMPLES_MAX, Meter
from rstream.core.report import TaskReport, WorkerReport
from tests.unit.control.samples import SOURCE, fill, make_record


def test_workers_that_report_at_different_moments_are_brought_to_the_same_seconds() -> None:
    record, meter = make_record(), Meter()
    fill(meter, record, 100.3, 110.3, 1000.0, 0.0001)
    window = meter.window(102, 108)
    assert window.series([SOURCE], "emitted") == pytest.approx([1000.0] * 6)
    assert window.gain(TaskId("double", 0), "busy_s") == pytest.approx(6 * 500 * 0.0001)
    assert [tuples for tuples, _ in window.channel(ChannelId(0, 0, 1))] == pytest.approx([500.0] * 6)
    assert window.channel(ChannelId(0, 0, 1))[0][1] == pytest.approx(50_000.0)
    assert window.last("queued", SOURCE) == 5


def test_every_gain_is_in_some_sample() -> None:
    record, meter = make_record(), Meter()
    fill(meter, record, 7.77, 27.77, 333.0, 0.001)
    assert sum(meter.window(0, 40).series([SOURCE], "processed")) == pytest.approx(333.0 * 20)
    assert sum(meter.window(0, 40).latency().counts) == pytest.approx(333.0 * 20)


def test_a_task_that_began_anew_counts_from_zero() -> None:
    meter = Meter()

    def report(at_s: float, processed: int) -> WorkerReport:
        return WorkerReport(at_s, [TaskReport("a", 0, 0, processed, 0, 0, 0, 0.0)], [], [0] * 400, None, 1, True)

    meter.add("w", report(1.0, 500), report(2.0, 40))
    assert meter.window(0, 3).gain(TaskId("a", 0), "processed") == 40


def test_the_history_is_bounded_and_keeps_the_newest() -> None:
    record, meter = make_record(), Meter()
    fill(meter, record, 0.0, SAMPLES_MAX + 50.0, 10.0, 0.001)
    assert len(meter.samples) == SAMPLES_MAX
    lines = meter.history()
    assert [line["at_s"] for line in lines] == [float(n) for n in range(1, SAMPLES_MAX + 52)]
    assert lines[10]["operators"]["n"]["emitted"] == pytest.approx(10.0)


def test_a_window_is_complete_only_up_to_the_slowest_worker() -> None:
    record, meter = make_record(), Meter()
    workers = list(record.hosts())
    meter.heard_s = {workers[0]: 12.0}
    assert meter.complete_until(workers) is None
    meter.heard_s[workers[1]] = 10.5
    assert meter.complete_until(workers) == 10.5
    meter.forget(workers[1])
    assert meter.complete_until(workers[:1]) == 12.0
