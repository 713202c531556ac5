"""The worked story: data made and ingested, a topology under a policy, a replay that lets it grow, counts compared.

`rstream data demo` tells it with COMMCount, Es-Stream and the load of E10; here is what it does, for any topology that
counts page views by item. Whoever calls it has started Spark and Ray, and ends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rstream import client
from rstream.clock import SystemClock
from rstream.errors import RunError
from rstream.runtime.ingest_client import look
from rstream.spark.catalogue import find
from rstream.spark.ingest import ingest
from rstream.spark.location import Location
from rstream.spark.pace import Pace
from rstream.spark.profile import Profile, parse_profile
from rstream.spark.progress import Phases
from rstream.spark.replay import Plan, replay
from rstream.spark.rows import open_table
from rstream.spark.synth import synth
from rstream.topology import Topology

EXPERIMENT = "E10"
PROFILE_S = 240.0
"""How long E10 lasts in the paper."""
ADJUST_S = 10.0
LOOK_S = 0.5
DRAIN_S = 120.0


@dataclass(frozen=True)
class Story:
    """How long and how large: E10's times and rates are multiplied by these."""

    time_scale: float = 0.15
    rate_scale: float = 1.0
    seed: int = 1
    policy: str = "es"
    workers: int = 3

    @property
    def profile(self) -> Profile:
        """The load, shortened.

        >>> Story(0.1, 0.5).profile
        Profile(times_s=(0.0, 10.0, 16.0), rates=(900.0, 1800.0, 1350.0))
        """
        whole = parse_profile(EXPERIMENT, self.time_scale)
        return Profile(whole.times_s, tuple(rate * self.rate_scale for rate in whole.rates))

    @property
    def lines(self) -> int:
        """So many lines last for the whole load.

        >>> Story(0.1, 0.5).lines
        30600
        """
        return int(self.profile.records(PROFILE_S * self.time_scale))

    @property
    def settings(self) -> dict[str, Any]:
        """The paper's interval between two looks of the policy, shortened too, but no shorter than two seconds."""
        interval_s = max(2.0, ADJUST_S * self.time_scale)
        parameters = {"adjust_interval_s": interval_s} if self.policy == "es" else {}
        return {"interval_s": interval_s, "tasks_per_slot": 16, "parameters": parameters}


@dataclass
class Watch:
    """Follows the sizes of a topology's steps while it runs."""

    handle: client.Handle
    say: Callable[[str], None]
    seen: list[dict[str, Any]] = field(default_factory=list)
    """(seconds since the start, instances of each step) whenever these changed."""

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._start_s = SystemClock.monotonic()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Watch:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        status = self.handle.status()
        sizes = {operator["name"]: operator["active"] for operator in status["operators"]}
        if not self.seen or self.seen[-1]["instances"] != sizes:
            at_s = round(SystemClock.monotonic() - self._start_s, 1)
            self.seen.append({"at_s": at_s, "instances": sizes, "total": sum(sizes.values())})
            self.say(f"{at_s:5.1f} s: {sum(sizes.values())} instances ({sized(sizes)}), {status['emitted']:,} rows in")


def sized(sizes: Mapping[str, int]) -> str:
    """Steps with their sizes.

    >>> sized({"read": 2, "split": 5})
    'read 2, split 5'
    """
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def tell(
    session: Any, topology: Topology, sink: str, folder: Path, story: Story, phases: Phases, say: Callable[[str], None]
) -> dict[str, Any]:
    """The whole story in a folder; `sink` is the step that holds the newest count of each item."""
    clock = SystemClock()
    start_s = clock.monotonic()
    raw, table = folder / "raw", folder / "tianchi"
    made = synth(session, find("tianchi"), Location.parse(str(raw)), story.lines, story.seed, None, phases)
    found = ingest(session, find("tianchi"), Location.parse(str(raw)), Location.parse(str(table)), phases)
    say(f"{made['lines']:,} lines of tianchi made, {found['rows']:,} of them rows in {found['dataset']}'s Parquet")
    handle = client.submit(topology, folder="", policy=story.policy, workers=story.workers, control=story.settings)
    try:
        with Watch(handle, say) as watch:
            sent = replay(session, _plan(handle, table, story), phases)
        if sent["errors"] or sent["refused"]:
            raise RunError(f"the replay did not come through: {[*sent['errors'], *sent['reasons']][0]}")
        decisions = handle.explain()
        handle.kill(drain=True)
        handle.wait(DRAIN_S)
        counted = dict(handle.results(sink))
    finally:
        if handle.state() not in ("KILLED", "FINISHED", "FAILED"):
            handle.kill()
    with phases.phase("counting with Spark SQL"):
        wanted = page_views(session, table)
    wrong = sum(counted.get(item) != n for item, n in wanted.items()) + len(counted.keys() - wanted.keys())
    return {
        "rows": found["rows"],
        "page_views": sum(wanted.values()),
        "items": len(wanted),
        "items_wrong": wrong,
        "equal": not wrong,
        "policy": story.policy,
        "instances": watch.seen,
        "decisions": [told for decided in decisions if (told := changed(decided))],
        "replay": sent,
        "took_s": round(clock.monotonic() - start_s, 1),
    }


def _plan(handle: client.Handle, table: Path, story: Story) -> Plan:
    target = handle.ingest_target()
    places = look(target)
    rows = open_table(str(table), (), places.columns, "event_time")
    return Plan(rows, target, "demo", len(places.lanes), Pace(story.profile))


def page_views(session: Any, table: Path) -> dict[int, int]:
    """Page views by item, by Spark SQL on the Parquet that was replayed."""
    session.read.parquet(str(table / "data")).createOrReplaceTempView("rstream_story")
    rows = session.sql("select item_id, count(*) n from rstream_story where behavior = 'pv' group by item_id").collect()
    return {row.item_id: row.n for row in rows}


def changed(decision: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a decision of `explain` resized, in short; None for one that resized nothing."""
    resized = [
        f"{reason['subject'].partition('/')[2]} {reason['summary']}"
        for reason in decision["reasons"]
        if "/" in reason["subject"] and not _same(reason["summary"])
    ]
    if not decision["steps"] or not resized:
        return None
    return {
        "at_s": decision["at_s"],
        "source_rate": round(decision["saw"]["source_rate"], 1),
        "resized": resized,
        "steps": [step["kind"] for step in decision["steps"]],
        "state": decision["state"],
        "took_s": decision["took_s"],
    }


def _same(summary: str) -> bool:
    """A summary like `3 -> 3 instances` says that nothing changes.

    >>> _same("3 -> 3 instances"), _same("3 -> 5 instances")
    (True, False)
    """
    before, _, after = summary.partition(" -> ")
    return before == after.partition(" ")[0]
