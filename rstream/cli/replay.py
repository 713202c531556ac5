"""`rstream data replay`: Parquet into a running topology, at a rate or by the data's own times.

What can be refused without Spark (target, token, columns, profile) is refused before it is started.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from rstream.cli.data import data, spark_options, with_spark
from rstream.cli.options import ADDRESS
from rstream.errors import DataError, RunError

if TYPE_CHECKING:
    from rstream.runtime.ingest_client import IngestTarget

TASK_FAILURES_MAX = 8


def register(app: click.Group) -> None:
    """A sub-verb of `data`."""
    data.add_command(replay)


@click.command()
@click.argument("source")
@click.option("--to", "target", required=True, metavar="TOPOLOGY|HOST:PORT", help="A running topology, or a worker.")
@click.option("--rate", metavar="PROFILE", help="Records/s: 1800; 1800@0s,3600@100s; a .csv of time_s,rate; E10.")
@click.option("--time-scale", type=float, default=1.0, show_default=True, help="Multiplies the times of the profile.")
@click.option("--speed", type=float, help="By the rows' own times, so many times as fast as they were.")
@click.option("--step", default="", help="The ingest source, where the topology has several.")
@click.option("--columns", default="", metavar="A,B", help="Columns to send; by default those that the source wants.")
@click.option("--time-column", help="The rows' event time; by default event_time, where there is such a column.")
@click.option("--partitions", type=click.IntRange(1), help="Senders at a time; by default one for each lane.")
@click.option("--limit", type=click.IntRange(1), help="Only the first so many rows.")
@click.option("--name", "sender", default="", help="The sender's name; another one sends the same rows once more.")
@click.option("--token-file", help="The senders' token, for HOST:PORT; by default ingest.token_file.")
@click.option("--tls-ca", help="CA file of the workers' certificates, for HOST:PORT.")
@click.option("--tls-cert", help="This sender's certificate file, for HOST:PORT.")
@click.option("--tls-key", help="This sender's key file, for HOST:PORT.")
@ADDRESS
@spark_options
def replay(
    source: str,
    target: str,
    rate: str | None,
    time_scale: float,
    speed: float | None,
    step: str,
    columns: str,
    time_column: str | None,
    partitions: int | None,
    limit: int | None,
    sender: str,
    token_file: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    address: str | None,
    master: str,
    conf: tuple[str, ...],
    driver_memory: str,
    as_json: bool,
) -> None:
    """Send the rows of SOURCE (Parquet, in the order of time) to a running topology, each exactly once."""
    from rstream.runtime.ingest_client import look
    from rstream.spark.pace import Pace
    from rstream.spark.profile import parse_profile
    from rstream.spark.replay import Plan
    from rstream.spark.rows import open_table

    if rate is not None and speed is not None:
        raise DataError("--rate and --speed exclude each other: give one of them, or none for as fast as possible")
    if speed is not None and not 0 < speed < float("inf"):
        raise DataError(f"--speed {speed:g}: wanted a number above 0; 60 replays an hour in a minute")
    pace = Pace(None if rate is None else parse_profile(rate, time_scale), speed)
    tls = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key}
    where = _target(target, step, token_file, tls, address)
    places = look(where)
    chosen = [name.strip() for name in columns.split(",") if name.strip()]
    table = open_table(source, chosen, places.columns, time_column)
    partitions = partitions or len(places.lanes)
    plan = Plan(table, where, sender or f"replay-{table.fingerprint(partitions)}", partitions, pace, limit)
    master = with_slots(master, partitions)

    def job(session: Any, phases: Any) -> dict[str, Any]:
        from rstream.spark.replay import replay as run

        return run(session, plan, phases)

    report = {"topology": places.topology, "step": places.step, **with_spark(master, conf, driver_memory, job)}
    click.echo(json.dumps(report, indent=2) if as_json else "\n".join(told(report)))
    if report["errors"]:
        raise RunError(f"{report['errors'][0]}; run the same command again to go on from there")
    if report["refused"]:
        raise RunError(f"{report['refused']:,} records were refused by step {places.step!r}: {report['reasons'][0]}")


def with_slots(master: str, partitions: int) -> str:
    """The master for so many tasks at a time: they mostly wait, and one whose Python is killed is started again."""
    return f"local[{max(partitions, os.cpu_count() or 1)},{TASK_FAILURES_MAX}]" if master == "local[*]" else master


def _target(
    target: str, step: str, token_file: str | None, tls: dict[str, str | None], address: str | None
) -> IngestTarget:
    from rstream.config import LinkConfig, load
    from rstream.runtime.ingest_client import IngestTarget
    from rstream.runtime.ingest_door import read_token

    host, colon, port = target.rpartition(":")
    if not colon:
        from rstream import client

        if token_file or any(tls.values()):
            raise DataError("--token-file and --tls-* are for HOST:PORT; a topology's come from its own settings")
        return client.connect(target, address).ingest_target(step)
    if not host or not port.isdigit():
        raise DataError(f"--to {target!r}: wanted the name of a topology, or HOST:PORT of one of its workers")
    path = token_file or load().config.ingest.token_file
    if path is None:
        raise DataError("a worker takes records with a token only; name its file with --token-file")
    return IngestTarget((target,), read_token(path), step, LinkConfig(**tls))


def told(report: dict[str, Any]) -> list[str]:
    """What came of a replay, for people."""
    lines = [
        f"{report['sent']:,} of {report['rows']:,} rows of {report['source']} sent to {report['topology']!r}, "
        f"step {report['step']!r}, in {report['took_s']:.1f} s"
        + (f"; {report['sent_before']:,} were there before" if report["sent_before"] else "")
    ]
    asked = "as fast as possible" if report["asked_per_s"] is None else f"{report['asked_per_s']:,.0f}/s"
    lines.append(f"asked {asked}, achieved {report['achieved_per_s']:,.0f}/s")
    lines += [
        f"  from {step['from_s']:g} s: asked {step['asked_per_s']:,.0f}/s, achieved {step['achieved_per_s']:,.0f}/s"
        for step in report["steps"]
    ]
    if report["waited_s"] >= 0.1:
        late = f", and it ended {report['late_s']:.1f} s late" if report["late_s"] >= 0.1 else ""
        lines.append(f"back-pressure: the topology held the replay up for {report['waited_s']:.1f} s{late}")
    if report["reconnects"]:
        lines.append(f"{report['reconnects']} times a partition found its source at another worker")
    return lines
