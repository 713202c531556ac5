"""The replay's part of the pipeline benchmark: the rate that was achieved against the one that was asked for.

COMMCount takes the rows on a Ray of its own, with as many readers as there are partitions; every case sends other rows.
The last case asks for as much as there is: the most that this machine gives beside the topology, which has to share the
cores with Spark's executors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.common import CannotMeasure

ASKED_PER_S = (1_800.0, 3_600.0, 10_000.0, 30_000.0)
SECONDS = 5.0
READERS = 2


def measure(session: Any, table: Path, quick: bool) -> list[dict[str, Any]]:
    """A row for each rate, the last one without a limit."""
    from rstream import client
    from rstream.runtime import cluster
    from rstream.runtime.ingest_client import look
    from rstream.spark.pace import Pace
    from rstream.spark.replay import Plan
    from rstream.spark.rows import open_table
    from rstream.topologies import commcount

    with cluster.private():
        handle = client.submit(commcount.build(table="ingest", read=READERS), workers=2, folder="")
        target = handle.ingest_target()
        rows = open_table(str(table), (), look(target).columns, "event_time")
        plan = Plan(rows, target, "", READERS, Pace())
        _case(session, replace(plan, limit=min(rows.total, 2_000)), None)  # warm: Python workers, the topology's code
        found = [_case(session, plan, rate) for rate in ((1_800.0,) if quick else ASKED_PER_S)]
        found.append(_case(session, plan, None))
        handle.kill()
        handle.wait(60)
    return found


def _case(session: Any, plan: Any, rate: float | None) -> dict[str, Any]:
    from rstream.spark.pace import Pace
    from rstream.spark.profile import Profile
    from rstream.spark.replay import replay

    case = "as fast as it goes: the most of this machine beside the topology" if rate is None else f"{rate:,.0f} rows/s"
    limit = plan.limit or plan.table.total
    if rate is not None:
        limit = min(limit, int(rate * SECONDS))
    common.progress(f"replay: {case}")
    pace = Pace(None if rate is None else Profile((0.0,), (rate,)))
    report = replay(session, replace(plan, sender=f"{case} {limit}", pace=pace, limit=limit))
    if report["errors"] or report["refused"]:
        raise CannotMeasure(f"the replay failed: {[*report['errors'], *report['reasons']][0]}")
    common.expect("rows sent", limit, report["sent"])
    achieved = report["achieved_per_s"]
    return {
        "case": f"replay, {case}",
        "rows": limit,
        "asked_per_s": rate,
        "achieved_per_s": round(achieved),
        "share": None if rate is None else round(achieved / rate, 3),
        "waited_s": report["waited_s"],
        "late_s": None if rate is None else report["late_s"],
    }
