"""`rstream data demo`: the whole way of the data once, on a Ray and a Spark of its own, with nothing left behind."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rstream.cli.data import data, spark_options, with_spark
from rstream.cli.replay import with_slots
from rstream.cli.show import note
from rstream.errors import DataError, RunError

WORK_MS = 1.5
"""How long a row keeps an instance of `split` busy: 3600 rows/s keep five or six of them busy."""
CPUS = 8
"""What the demo's Ray declares at least: `work_ms` holds an instance busy without using a core."""
READERS = 2
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""Java's second compiler pays after minutes; on data this small it only takes the cores away."""


def register(app: click.Group) -> None:
    """A sub-verb of `data`."""
    data.add_command(demo)


@click.command()
@click.option("--time-scale", type=float, default=0.15, show_default=True, help="E10 lasts 240 s times this.")
@click.option("--rate-scale", type=float, default=1.0, show_default=True, help="E10's rates times this.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the synthesised data.")
@click.option("--policy", default="es", show_default=True, help="The scheduling policy.")
@spark_options
def demo(
    time_scale: float,
    rate_scale: float,
    seed: int,
    policy: str,
    master: str,
    conf: tuple[str, ...],
    driver_memory: str,
    as_json: bool,
) -> None:
    """Synthesise Tianchi data, ingest it, run COMMCount, replay E10's load, watch it scale, compare with Spark SQL."""
    from rstream.client import check_policy
    from rstream.config import ControlConfig
    from rstream.environment import variables
    from rstream.spark.session import check_master
    from rstream.spark.story import Story, tell
    from rstream.topologies import commcount

    for option, value in (("--time-scale", time_scale), ("--rate-scale", rate_scale)):
        if not 0 < value < float("inf"):
            raise DataError(f"{option} {value:g}: wanted a number above 0")
    story = Story(time_scale, rate_scale, seed, policy)
    check_policy(policy, ControlConfig(**story.settings))
    check_master(master)
    quick = {} if "JAVA_TOOL_OPTIONS" in os.environ else QUICK_JAVA
    topology = commcount.build(table="ingest", read=READERS, split=2, count=2, work_ms=WORK_MS)
    with tempfile.TemporaryDirectory(prefix="rstream-demo-") as folder, own_ray(), variables(quick):

        def job(session: Any, phases: Any) -> dict[str, Any]:
            return tell(session, topology, "counts", Path(folder), story, phases, note)

        report = with_spark(with_slots(master, READERS), conf, driver_memory, job)
    click.echo(json.dumps(report, indent=2) if as_json else "\n".join(told(report)))
    if not report["equal"]:
        raise RunError(f"{report['items_wrong']:,} of {report['items']:,} items were counted otherwise by Spark SQL")


@contextmanager
def own_ray() -> Iterator[None]:
    """A Ray that ends with the demo, whatever cluster there is beside it."""
    from rstream.runtime import cluster

    note("starting Ray and Spark")
    with cluster.private(max(CPUS, os.cpu_count() or 1)):
        yield


def told(report: dict[str, Any]) -> list[str]:
    """How the story went, for people."""
    lines = [
        f"{report['rows']:,} rows replayed in {report['replay']['took_s']:.0f} s, policy {report['policy']}; "
        f"instances {' -> '.join(str(each['total']) for each in report['instances'])}"
    ]
    lines += [
        f"  at {step['from_s']:g} s: asked {step['asked_per_s']:,.0f} rows/s, achieved {step['achieved_per_s']:,.0f}"
        for step in report["replay"]["steps"]
    ]
    for decided in report["decisions"]:
        lines.append(f"  at {decided['source_rate']:,.0f} rows/s: {'; '.join(decided['resized'])} ({decided['state']})")
    verdict = "equal" if report["equal"] else f"{report['items_wrong']:,} NOT equal"
    lines.append(
        f"{report['page_views']:,} page views of {report['items']:,} items: counts of the topology and of Spark SQL on "
        f"the same Parquet are {verdict}"
    )
    return lines
