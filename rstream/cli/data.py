"""`rstream data`: list, ingest and synthesise the data sets of the catalogue; `replay.py` and `demo.py` add theirs.

What can be refused without Spark is refused before it is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from rstream.errors import DataError

_Command = Callable[..., None]


def register(app: click.Group) -> None:
    """Add the verb and its sub-verbs."""
    app.add_command(data)


@click.group()
def data() -> None:
    """Data sets on Spark: list, ingest, synthesise, replay, and all of it as a demo."""


def spark_options(command: _Command) -> _Command:
    """The options that every verb with a Spark job takes."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print what came of it as one JSON object."),
        click.option("--driver-memory", default="1g", show_default=True, help="Heap of Spark's driver."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Any other setting of Spark; may be repeated."),
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs."),
    ):
        command = option(command)
    return command


@data.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print all that the catalogue knows.")
def list_sets(as_json: bool) -> None:
    """Show the catalogue: origin, licence note and quirks of every data set."""
    from rstream.spark.catalogue import SETS

    if as_json:
        click.echo(json.dumps([entry.describe() for entry in SETS.values()], indent=2, ensure_ascii=False))
        return
    for entry in SETS.values():
        click.echo(f"{entry.name}: {entry.title}\n  origin: {entry.origin}\n  licence: {entry.licence}")
        for quirk in entry.quirks:
            click.echo(f"  - {quirk}")


@data.command()
@click.argument("name")
@click.argument("source")
@click.argument("target")
@spark_options
def ingest(
    name: str, source: str, target: str, master: str, conf: tuple[str, ...], driver_memory: str, as_json: bool
) -> None:
    """Read data set NAME from SOURCE (file, directory, pattern or URI) into clean Parquet in the directory TARGET."""
    from rstream.spark.catalogue import find
    from rstream.spark.location import Location, check_apart

    dataset, source_at, target_at = find(name), Location.parse(source), Location.parse(target)
    source_at.check_source()
    target_at.check_target()
    check_apart(source_at, target_at)

    def job(session: Any, phases: Any) -> dict[str, Any]:
        from rstream.spark.ingest import ingest as run

        return run(session, dataset, source_at, target_at, phases)

    manifest = with_spark(master, conf, driver_memory, job)
    if as_json:
        click.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    if manifest["status"] == "unchanged":
        click.echo(f"{target} is up to date: the source has not changed since it was ingested")
    _show_counts(manifest, target)
    for refused in manifest["files_refused"]:
        reason = refused["reason"].replace("_", " ")
        click.echo(f"  refused {refused['name']}: {reason} ({refused['detail']}); replace it and run again")
    if manifest["files_skipped"]:
        click.echo(f"  skipped, by their names not of this set: {', '.join(manifest['files_skipped'])}")
    if manifest["columns_ignored"]:
        click.echo(f"  columns not kept: {', '.join(manifest['columns_ignored'])}")


@data.command()
@click.argument("name")
@click.argument("target")
@click.option("--rows", type=int, required=True, help="Lines to write, bad ones and duplicates included.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same bytes.")
@click.option("--partitions", type=int, help="Spark tasks to spread the files over; changes nothing in them.")
@spark_options
def synth(
    name: str,
    target: str,
    rows: int,
    seed: int,
    partitions: int | None,
    master: str,
    conf: tuple[str, ...],
    driver_memory: str,
    as_json: bool,
) -> None:
    """Write files in the shape of data set NAME into the directory TARGET, with dirt of known counts."""
    from rstream.spark.catalogue import find
    from rstream.spark.location import Location
    from rstream.spark.synth import check_size

    dataset, target_at = find(name), Location.parse(target)
    target_at.check_target()
    check_size(rows, seed, partitions)

    def job(session: Any, phases: Any) -> dict[str, Any]:
        from rstream.spark.synth import synth as run

        return run(session, dataset, target_at, rows, seed, partitions, phases)

    manifest = with_spark(master, conf, driver_memory, job)
    if as_json:
        click.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    _show_counts(manifest, target)


def with_spark(
    master: str, conf: tuple[str, ...], driver_memory: str, job: Callable[[Any, Any], dict[str, Any]]
) -> dict[str, Any]:
    """What a job gives that is handed a Spark session and a display of its phases."""
    from rich.console import Console

    from rstream.spark.progress import ProgressDisplay
    from rstream.spark.session import SparkOptions, check_master, spark_session

    check_master(master)
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(f"rstream: {line}", highlight=False, soft_wrap=True)

    options = SparkOptions(master, tuple(_pair(setting) for setting in conf), driver_memory)
    with spark_session(options, say) as session:
        return job(session, ProgressDisplay(session, console))


def _pair(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.startswith("spark."):
        raise DataError(f"--conf {setting!r}: wanted spark.some.key=value")
    return key, value


def _show_counts(manifest: dict[str, Any], target: str) -> None:
    counts = (f"{manifest[key]:,} {key}" for key in ("lines", "rows", "duplicates", "quarantined"))
    click.echo(f"{manifest['dataset']} in {target}: {', '.join(counts)}")
    for reason, count in manifest["quarantined_by_reason"].items():
        click.echo(f"  {reason}: {count:,}")
