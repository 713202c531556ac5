"""`rstream chaos`: kill processes of a running topology at random moments, and compare its results with the truth."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from rstream.cli.options import JSON
from rstream.cli.show import note, print_json, print_table
from rstream.cli.topologies import load_target

if TYPE_CHECKING:
    from rstream.chaos import ChaosReport, Kill

WORKERS = 4


def register(app: click.Group) -> None:
    """Add the verb."""
    app.add_command(chaos)


@click.command()
@click.argument("target")
@click.option("--kills", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many kills to make.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is killed, and when.")
@click.option("--nodes", type=click.IntRange(1, 16), default=2, show_default=True, help="Ray nodes to start here.")
@click.option("--workers", type=click.IntRange(1), help=f"Worker processes; by default {WORKERS}.")
@click.option("--config", "config_file", help="A YAML file of settings.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="One setting; may be repeated.")
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of build().")
@JSON
def chaos(
    target: str,
    kills: int,
    seed: int,
    nodes: int,
    workers: int | None,
    config_file: str | None,
    sets: tuple[str, ...],
    options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Kill workers, the coordinator and whole nodes while a topology runs, and compare its results with the truth.

    TARGET has a truth() beside its build(): what each sink must hold at the end, counted without rstream. It runs on a
    Ray of its own, of several nodes on this machine, again and again until all kills were made. Exit status 1 if a
    result is wrong, or if a worker that was not killed had to be started anew."""
    from rstream.chaos import Chaos
    from rstream.runtime.many_nodes import many_nodes

    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        loaded, settings = load_target(target, None, config_file, sets, options, workers or WORKERS)
        truth = loaded.truth()
        note(f"starting {nodes} Ray node{'s' * (nodes > 1)} on this machine ...")
        with many_nodes(nodes) as cluster:
            found = Chaos(loaded.graph, settings, loaded.folder, cluster, kills, seed, _say).run(truth)
    if as_json:
        print_json(found.as_json())
    else:
        _show(found)
    if not found.exact:
        raise click.exceptions.Exit(1)


def _say(kill: Kill) -> None:
    note(f"kill {kill.number}: {kill.kind}: stall {kill.stall_s:.2f} s, healed after {kill.healed_s:.1f} s")


def _show(report: ChaosReport) -> None:
    columns = ("kill", "run", "what", "tasks lost", "stall s", "healed s", "restarts", "others unchanged")
    rows: list[tuple[Any, ...]] = [
        (
            kill.number,
            kill.run,
            kill.kind,
            kill.tasks,
            f"{kill.stall_s:.2f}",
            f"{kill.healed_s:.1f}",
            kill.restarts,
            "yes" if kill.unaffected else "NO",
        )
        for kill in report.kills
    ]
    print_table("", columns, rows)
    for run in report.runs:
        for line in run.differences:
            click.echo(f"run {run.number}: {line}")
    exact = sum(run.exact for run in report.runs)
    click.echo(f"{len(report.kills)} kills in {len(report.runs)} runs, seed {report.seed}: {exact} runs exact")
