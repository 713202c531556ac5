"""`rstream lab`: the papers' experiments and one's own load, on a modelled cluster in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rstream.cli.options import ADDRESS
from rstream.errors import UsageError

if TYPE_CHECKING:
    from rstream.lab.runner import Result
    from rstream.lab.simulate import Run
    from rstream.lab.spec import ClusterSpec, TopologySpec
    from rstream.lab.trace import Trace


def register(app: click.Group) -> None:
    """Add the verb."""
    app.add_command(lab)


@click.group()
def lab() -> None:
    """Try policies on a modelled cluster: the papers' experiments, or your own load."""


@lab.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_experiments(as_json: bool) -> None:
    """The experiments that the lab can run."""
    from rich.console import Console
    from rich.table import Table

    from rstream.lab.catalogue import experiments

    found = list(experiments().values())
    if as_json:
        rows = [{"id": e.id, "paper": e.paper, "title": e.title, "load": e.load} for e in found]
        click.echo(json.dumps({"experiments": rows}))
        return
    table = Table()
    for column in ("id", "paper", "experiment", "load"):
        table.add_column(column)
    for experiment in found:
        table.add_row(experiment.id, experiment.paper, experiment.title, experiment.load)
    Console().print(table)


@lab.command("run")
@click.option("--experiment", "identity", required=True, metavar="ID", help="Which one: see `rstream lab list`.")
@click.option("--policies", metavar="A,B", help="Run these policies instead of the experiment's own.")
@click.option("--seed", type=click.IntRange(min=0), help="Run one seed only (default: five, and their median).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report.")
def run_one(identity: str, policies: str | None, seed: int | None, as_json: bool, report: Path | None) -> None:
    """Run one experiment of a paper."""
    from rich.console import Console

    from rstream.lab.catalogue import find
    from rstream.lab.experiment import SEEDS
    from rstream.lab.output import print_result, result_data
    from rstream.lab.runner import run_experiment

    experiment = find(identity)
    names = _names(policies)
    seeds = SEEDS if seed is None else (seed,)
    with _progress(experiment.id) as done:
        result = run_experiment(experiment, names, seeds, done=done)
    if report is not None:
        _write(report, _experiment_page(result))
    if as_json:
        click.echo(json.dumps(result_data(result)))
    else:
        print_result(result, Console())
        if report is not None:
            click.echo(f"report: {report}")


@lab.command("compare")
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option("--topology", "target", metavar="T", help="A YAML file, or the name of a built-in one.")
@click.option("--recorded", metavar="NAME", help="Replay what this topology of the cluster has lived through instead.")
@ADDRESS
@click.option("--policies", metavar="A,B", help="Compare these (default: all).")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the noise on the trace."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report.")
def compare_policies(
    trace: Path | None,
    target: str | None,
    recorded: str | None,
    address: str | None,
    policies: str | None,
    seed: int,
    as_json: bool,
    report: Path | None,
) -> None:
    """Which policy would have served TRACE (a CSV with time_s,rate) best, and at what cost?

    With --recorded NAME the load and the cost of each step are those measured on the running cluster."""
    from rich.console import Console

    from rstream.lab.compare import POLICIES, compare
    from rstream.lab.describe import topology
    from rstream.lab.output import series_of
    from rstream.lab.report import page
    from rstream.lab.trace import read_trace

    names = _names(policies) or list(POLICIES)
    if recorded is not None:
        if trace is not None or target is not None:
            raise UsageError("--recorded takes load and topology from the cluster: leave TRACE and --topology out")
        load, cluster, spec = _recorded(recorded, address)
        title = f"{spec.name}, as recorded"
    elif trace is None or target is None:
        raise UsageError("give TRACE with --topology T, or --recorded NAME")
    else:
        load = read_trace(trace)
        cluster, spec = topology(target)
        title = f"{spec.name} on {trace.name}"
    with _progress("compare") as done:
        found = compare(load, cluster, spec, names, (seed,), done=done)
    if report is not None:
        _write(report, page(title, found.verdict(), {spec.name: found.runs}, []))
    if as_json:
        series = [series_of(spec.name, run) for run in found.runs]
        click.echo(json.dumps({"best": found.best.policy, "policies": found.data(), "series": series}))
        return
    Console().print(found.table())
    click.echo(found.verdict())


def _recorded(name: str, address: str | None) -> tuple[Trace, ClusterSpec, TopologySpec]:
    from rstream import client
    from rstream.lab.recorded import from_recording

    return from_recording(client.connect(name, address).recording())


def _experiment_page(result: Result) -> str:
    from rstream.lab.report import page

    experiment = result.experiment
    groups: dict[str, list[Run]] = {}
    for (case, _), runs in result.outcome.runs.items():
        groups.setdefault(case, []).append(runs[0])
    subtitle = f"Load: {experiment.load}. Seeds: {', '.join(map(str, result.seeds))}; plots show the first."
    return page(f"{experiment.id}: {experiment.title}", subtitle, groups, result.checks)


def _names(policies: str | None) -> list[str] | None:
    if policies is None:
        return None
    from rstream.schedulers.registry import policy_class

    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise UsageError("--policies: needs at least one name, got nothing; for example --policies es,even")
    for name in names:
        policy_class(name)
    return names


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--report {path}: cannot be written: {error.strerror}") from None


@contextmanager
def _progress(what: str) -> Iterator[Callable[[float, int], None]]:
    """A bar on stderr, so that stdout stays the result alone; it moves within a run as virtual time passes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{what}: runs", total=None)
        yield lambda finished, total: bar.update(task, completed=finished, total=total)
