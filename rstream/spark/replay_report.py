"""What a replay asked for and what it achieved, put together from the partitions. No Spark."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rstream.spark.pace import Pace
from rstream.spark.profile import Profile

REASONS_SHOWN = 5


@dataclass
class PartitionReport:
    """What one partition did."""

    partition: int
    before: int = 0
    """Records that were covered before it began."""
    first_s: float = 0.0
    """When its first record was due, in the time of the profile."""
    sent: int = 0
    by_second: Counter[int] = field(default_factory=Counter)
    """Records sent in each second after the start."""
    waited_s: float = 0.0
    late_s: float = 0.0
    """How long after its due time the last record was sent."""
    ended_s: float = 0.0
    reconnects: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    error: str = ""


def summary(reports: list[PartitionReport], pace: Pace) -> dict[str, Any]:
    """What was asked and what was achieved, by step of the profile."""
    by_second: Counter[int] = Counter()
    for report in reports:
        by_second.update(report.by_second)
    sent = sum(report.sent for report in reports)
    sending = [report for report in reports if report.sent]
    skipped_s = min((report.first_s for report in sending), default=0.0)
    ended_s = max((report.ended_s for report in sending), default=0.0)
    took_s = max(ended_s - skipped_s, 0.0)
    return {
        "sent_before": sum(report.before for report in reports),
        "sent": sent,
        "took_s": round(took_s, 3),
        "achieved_per_s": round(sent / took_s, 1) if took_s > 0 else 0.0,
        "asked_per_s": _asked(pace, sending, skipped_s),
        "steps": _steps(pace.profile, by_second, skipped_s, ended_s),
        "waited_s": round(max((report.waited_s for report in reports), default=0.0), 3),
        "late_s": round(max((report.late_s for report in reports), default=0.0), 3),
        "reconnects": sum(report.reconnects for report in reports),
        "refused": sum(report.refused for report in reports),
        "reasons": [reason for report in reports for reason in report.reasons][:REASONS_SHOWN],
        "errors": [report.error for report in reports if report.error],
    }


def _asked(pace: Pace, reports: list[PartitionReport], skipped_s: float) -> float | None:
    """The mean rate that would have been on time; None where as fast as possible was asked for."""
    if pace.profile is None and pace.speed is None:
        return None
    due_s = max((report.ended_s - report.late_s for report in reports), default=0.0) - skipped_s
    return round(sum(report.sent for report in reports) / due_s, 1) if due_s > 0 else None


def _steps(
    profile: Profile | None, by_second: Counter[int], skipped_s: float, ended_s: float
) -> list[dict[str, float]]:
    """For each step of a profile that lasted a whole second: its rate, and what was achieved in its time."""
    if profile is None:
        return []
    found = []
    for start_s, end_s, rate in zip(profile.times_s, (*profile.times_s[1:], ended_s), profile.rates, strict=True):
        seconds = range(math.ceil(max(start_s, skipped_s)), math.floor(min(end_s, ended_s)))
        if seconds:
            achieved = sum(by_second[second] for second in seconds) / len(seconds)
            found.append({"from_s": start_s, "asked_per_s": rate, "achieved_per_s": round(achieved, 1)})
    return found
