"""`rstream lab faults`: run seeded fault schedules of the real core and say what happened."""

from __future__ import annotations

import os
import sys

import click

from rstream.cli.show import print_json, print_table


def register(app: click.Group) -> None:
    """Add the verb to the `lab` group."""
    lab = app.commands.get("lab")
    if not isinstance(lab, click.Group):
        lab = click.Group("lab", help="Virtual time: fault simulation and the policy lab.")
        app.add_command(lab)
    lab.add_command(faults)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=200, show_default=True, help="How many schedules to run.")
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--jobs", type=click.IntRange(1), help="Processes; by default one a CPU.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value instead of tables.")
def faults(seeds: int, start: int, jobs: int | None, as_json: bool) -> None:
    """Simulate crashes of workers and of the coordinator, and compare the results with the truth.

    In some schedules more is lost than the guarantee is for: these may also stop loudly. A failing seed is printed and
    replays identically: rstream lab faults --seeds 1 --start SEED."""
    from concurrent.futures import ProcessPoolExecutor

    from rich.progress import Progress

    from rstream.lab.fault_seeds import run_seed
    from rstream.lab.fault_summary import Summary
    from rstream.lab.faults import Outcome

    outcomes: list[Outcome] = []
    with (
        ProcessPoolExecutor(jobs or os.cpu_count() or 1) as pool,
        Progress(transient=True, disable=as_json or not sys.stderr.isatty()) as progress,
    ):
        bar = progress.add_task("schedules", total=seeds)
        for outcome in pool.map(run_seed, range(start, start + seeds), chunksize=4):
            outcomes.append(outcome)
            progress.advance(bar)
    summary = Summary(outcomes)
    if as_json:
        print_json(summary.as_json())
    else:
        print_table("", ("situation", "schedules", "share", "at least 2 %"), summary.rows())
        for each in summary.failed:
            click.echo(f"seed {each.seed}: {each.verdict}")
        if summary.few:
            click.echo(f"fewer than two faults happened with seeds {summary.few}")
        click.echo(summary.beyond_line)
        click.echo(summary.line)
    if summary.failed:
        raise click.exceptions.Exit(1)
