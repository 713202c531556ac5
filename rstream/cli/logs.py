"""The verb `logs`: what the workers of a topology logged and printed."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import click

from rstream.cli.options import ADDRESS

if TYPE_CHECKING:
    from rstream.runtime.logs import LogLine

FOLLOW_S = 0.25


def register(app: click.Group) -> None:
    """Add the verb."""
    app.add_command(logs)


@click.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the topology is over.")
@click.option("--step", help="Only what tasks of this step said.")
@click.option("--worker", help="Only what this worker said; its id, or how it begins.")
@ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one list, or with -f one object a line.")
def logs(name: str, follow: bool, step: str | None, worker: str | None, address: str | None, as_json: bool) -> None:
    """What the workers of a topology logged and printed, oldest first."""
    from rstream import client
    from rstream.clock import sleep
    from rstream.core.records import OVER
    from rstream.errors import UsageError

    handle = client.connect(name, address)
    status = handle.status()
    steps = [operator["name"] for operator in status["operators"]]
    if step is not None and step not in steps:
        raise UsageError(f"topology {name!r} has no step {step!r}; its steps: {', '.join(steps)}")

    def wanted(line: LogLine) -> bool:
        ours = worker is None or line.worker.startswith((worker, f"{name}/{worker}"))
        return ours and step in (None, line.step)

    number, lines = handle.logs()
    lines = [line for line in lines if wanted(line)]
    if as_json and not follow:
        click.echo(json.dumps([line.as_json() for line in lines], ensure_ascii=False))
        return
    while True:
        for line in lines:
            click.echo(json.dumps(line.as_json(), ensure_ascii=False) if as_json else _text(line))
        # Asked before the lines, so that what was said last is not missed.
        over = not follow or (handle.state() in OVER and handle.ended())
        number, found = handle.logs(number)
        lines = [line for line in found if wanted(line)]
        if over and not (follow and lines):
            return
        sleep(FOLLOW_S)


def _text(line: LogLine) -> str:
    at = dt.datetime.fromtimestamp(line.at_s).isoformat(sep=" ", timespec="milliseconds")
    said_by = f"{line.step}#{line.task}" if line.step else "-"
    missing = f"({line.dropped} lines are missing here) " if line.dropped else ""
    return f"{at} {line.level:<7} {said_by} {line.worker} node {line.node[:12]}: {missing}{line.text}"
