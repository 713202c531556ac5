"""What `lab run` prints: the JSON object of the contract, and a table for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from rstream.lab.experiment import Check, as_data
from rstream.lab.runner import Result
from rstream.lab.simulate import Run

COLOURS = {"pass": "green", "fail": "red", "fitted": "yellow"}


def series_of(case: str, run: Run) -> dict[str, Any]:
    """One run as data: lists of equal length, one entry per second of virtual time."""
    return {
        "policy": run.policy,
        "topology": case,
        "seed": run.seed,
        "time": run.time_s,
        "rate": run.rate,
        "instances": run.instances,
        "nodes": run.nodes,
        "latency": [round(value, 4) for value in run.latency_ms],
        "utilisation": [round(value, 4) for value in run.utilisation],
        "throughput": [round(value, 3) for value in run.throughput],
        "decisions": [
            {"time": decision.time_s, "moves": decision.moves, "reasons": list(decision.reasons)}
            for decision in run.decisions
        ],
    }


def result_data(result: Result) -> dict[str, Any]:
    """An experiment as the JSON object of the contract: `series` and `checks`."""
    return {
        "experiment": result.experiment.id,
        "title": result.experiment.title,
        "paper": result.experiment.paper,
        "load": result.experiment.load,
        "seeds": list(result.seeds),
        "series": [series_of(case, run) for (case, _), runs in result.outcome.runs.items() for run in runs],
        "checks": [as_data(check) for check in result.checks],
    }


def levels(values: list[int]) -> str:
    """A series as the values that it holds one after the other: short stays of a few samples included.

    >>> levels([14, 14, 24, 24, 19])
    '14 -> 24 -> 19'
    """
    kept = [value for at, value in enumerate(values) if at == 0 or value != values[at - 1]]
    if len(kept) > 8:
        kept_text = [*map(str, kept[:4]), "...", *map(str, kept[-3:])]
        return " -> ".join(kept_text)
    return " -> ".join(map(str, kept))


def print_result(result: Result, console: Console) -> None:
    """The tables for a terminal: one row per run's median seed, then the checks."""
    experiment = result.experiment
    console.print(
        f"[bold]{experiment.id}[/bold] {experiment.title}; load: {experiment.load}; {len(result.seeds)} seed(s)"
    )
    if result.outcome.runs:
        console.print(runs_table((case, runs[0]) for (case, _), runs in result.outcome.runs.items()))
    if result.checks:
        console.print(checks_table(result.checks))


def runs_table(runs: Iterable[tuple[str, Run]]) -> Table:
    """What each policy did, of the first seed."""
    table = Table(title="runs (first seed)")
    for column in ("topology", "policy", "instances", "nodes", "latency ms", "processed", "decisions"):
        table.add_column(column, justify="left" if column in ("topology", "policy", "instances", "nodes") else "right")
    for case, run in runs:
        totals = run.totals[0]
        table.add_row(
            case,
            run.policy,
            levels(run.instances),
            levels(run.nodes),
            f"{run.mean('latency_ms'):.2f}",
            f"{totals.finished / max(totals.offered, 1e-9):.1%}",
            str(len(run.decisions)),
        )
    return table


def checks_table(checks: Iterable[Check]) -> Table:
    """The paper's statements against ours."""
    table = Table(title="checks (median over seeds)")
    for column in ("check", "paper", "ours", "rule", "verdict", "note"):
        table.add_column(column)
    for check in checks:
        colour = COLOURS[check.verdict]
        table.add_row(
            check.name, check.paper, check.ours, check.rule, f"[{colour}]{check.verdict}[/{colour}]", check.note
        )
    return table
