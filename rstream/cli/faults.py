"""`rstream lab faults`: run seeded fault schedules of the real core and say what happened."""

from __future__ import annotations

import os
import sys
from collections import Counter

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

    A failing seed is printed and replays identically: rstream lab faults --seeds 1 --start SEED."""
    from concurrent.futures import ProcessPoolExecutor

    from rich.progress import Progress

    from rstream.lab.faults import Outcome, run_one

    outcomes: list[Outcome] = []
    with (
        ProcessPoolExecutor(jobs or os.cpu_count() or 1) as pool,
        Progress(transient=True, disable=as_json or not sys.stderr.isatty()) as progress,
    ):
        bar = progress.add_task("schedules", total=seeds)
        for outcome in pool.map(run_one, range(start, start + seeds), chunksize=4):
            outcomes.append(outcome)
            progress.advance(bar)
    failed = [outcome for outcome in outcomes if not outcome.exact]
    situations: Counter[str] = Counter()
    for outcome in outcomes:
        situations.update(outcome.situations)
    if as_json:
        print_json(
            {
                "schedules": seeds,
                "exact": seeds - len(failed),
                "situations": dict(situations),
                "failed": [{"seed": each.seed, "verdict": each.verdict} for each in failed],
            }
        )
    else:
        rows = [(name, count, f"{100 * count / seeds:.1f} %") for name, count in situations.most_common()]
        print_table("", ("situation", "schedules", "share"), rows)
        for each in failed:
            click.echo(f"seed {each.seed}: {each.verdict}")
        click.echo(f"{seeds} schedules: {seeds - len(failed)} exact, {len(failed)} failed")
    if failed:
        raise click.exceptions.Exit(1)
