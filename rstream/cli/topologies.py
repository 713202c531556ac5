"""The verbs that run and steer topologies: run, submit, list, status, kill, activate, deactivate, errors."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import sys
from contextlib import AbstractContextManager
from typing import Any

import click

from rstream.cli.options import ADDRESS, JSON
from rstream.cli.show import LiveStatus, console, note, print_json, print_table, render
from rstream.config import Settings, load, parse_set

INTERRUPTED = 130
"""The exit status that shells expect after Ctrl-C."""


def register(app: click.Group) -> None:
    """Add the verbs."""
    for command in (run, submit, list_, status, kill, activate, deactivate, errors):
        app.add_command(command)


def _target_options(command: Any) -> Any:
    for option in (
        click.argument("target"),
        click.option("--policy", help="The scheduling policy, by name."),
        click.option("--config", "config_file", help="A YAML file of settings."),
        click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="One setting; may be repeated."),
        click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of build()."),
        click.option("--workers", type=click.IntRange(1), help="Worker processes."),
        click.option("--from", "start_from", default="", metavar="URI", help="Go on from a savepoint."),
        ADDRESS,
        JSON,
    ):
        command = option(command)
    return command


def load_target(
    target: str,
    policy: str | None,
    config_file: str | None,
    sets: tuple[str, ...],
    options: tuple[str, ...],
    workers: int | None,
) -> tuple[Any, Settings]:
    """The target, built with its options, and its settings with all layers; what is wrong with either is refused."""
    from rstream import target as targets
    from rstream.client import check_policy

    flags = parse_set(sets)
    if policy is not None:
        flags["policy"] = policy
    if workers is not None:
        flags["workers"] = workers
    early = load(file=config_file, flags=flags)
    check_policy(early.config.policy, early.config.control)
    loaded = targets.load(target, parse_set(options, "-o"))
    settings = load(topology=loaded.graph.config, file=config_file, flags=flags)
    check_policy(settings.config.policy, settings.config.control)
    return loaded, settings


def _stdout_for_json(as_json: bool) -> AbstractContextManager[Any]:
    """With `--json` standard output is for the one JSON value; what user code prints goes beside it."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


@click.command()
@_target_options
@click.option("--local", is_flag=True, help="In this process, without Ray.")
@click.option(
    "--duration", "duration_s", type=click.FloatRange(min=0, min_open=True), help="Stop after so many seconds."
)
def run(
    target: str,
    policy: str | None,
    config_file: str | None,
    sets: tuple[str, ...],
    options: tuple[str, ...],
    workers: int | None,
    start_from: str,
    address: str | None,
    as_json: bool,
    local: bool,
    duration_s: float | None,
) -> None:
    """Run a topology until it ends, with a live view.

    TARGET is a Python file or module with build() or a topology."""
    from rstream import client
    from rstream.runtime.logs import log_here

    with _stdout_for_json(as_json):
        loaded, settings = load_target(target, policy, config_file, sets, options, workers)
    common: dict[str, Any] = {
        "local": local,
        "address": address,
        "duration_s": duration_s,
        "settings": settings,
        "folder": loaded.folder,
        "start_from": start_from,
        "on_note": note,
    }
    if local:
        log_here()
    if as_json:
        with _stdout_for_json(as_json):
            report = client.run(loaded.graph, **common)
        print_json(report.as_json())
        raise click.exceptions.Exit(INTERRUPTED if report.interrupted else 0)
    if not (local or address or os.environ.get("RAY_ADDRESS")):
        note("starting Ray on this machine ...")
    with LiveStatus() as live:
        report = client.run(loaded.graph, on_status=live.show, **common)
    for error in report.errors[-3:]:
        note(f"step {error['step']!r}, task {error['task']}: {error['error']}")
    summary = loaded.summary(report.results)
    if summary is not None:
        click.echo(summary)
    if report.interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


@click.command()
@_target_options
def submit(
    target: str,
    policy: str | None,
    config_file: str | None,
    sets: tuple[str, ...],
    options: tuple[str, ...],
    workers: int | None,
    start_from: str,
    address: str | None,
    as_json: bool,
) -> None:
    """Start a topology on a running cluster and return.

    TARGET is a Python file or module with build() or a topology."""
    from rstream import client

    with _stdout_for_json(as_json):
        loaded, settings = load_target(target, policy, config_file, sets, options, workers)
    handle = client.submit(
        loaded.graph, address=address, settings=settings, folder=loaded.folder, start_from=start_from, on_note=note
    )
    if as_json:
        print_json({"name": handle.name})
    else:
        click.echo(f"submitted {handle.name}; watch it with: rstream status {handle.name}")


@click.command(name="list")
@ADDRESS
@JSON
def list_(address: str | None, as_json: bool) -> None:
    """The topologies of the cluster."""
    from rstream import client
    from rstream.errors import ClusterError
    from rstream.runtime import cluster

    cluster.connect(address)
    try:
        lines = client.call(client.coordinator(address).overview)
    except ClusterError:
        lines = []
    if as_json:
        print_json(lines)
    elif lines:
        columns = ("name", "state", "policy", "workers", "tasks")
        print_table("", columns, [[line[column] for column in columns] for line in lines])
    else:
        click.echo("no topologies; start one with: rstream submit TARGET")


@click.command()
@click.argument("name")
@click.option("--history", is_flag=True, help="What was measured so far instead: a JSON line for each second.")
@ADDRESS
@JSON
def status(name: str, history: bool, address: str | None, as_json: bool) -> None:
    """How a topology is doing."""
    from rstream import client

    handle = client.connect(name, address)
    if history:
        lines = handle.history()
        if as_json:
            print_json(lines)
        else:
            for line in lines:
                click.echo(json.dumps(line))
        return
    found = handle.status()
    if as_json:
        print_json(found)
        return
    console().print(render(found))
    columns = ("id", "node", "pid", "incarnation", "tasks")
    rows = [
        [w["id"], w["node"][:12], w["pid"], w["incarnation"], " ".join(w["tasks"]) or "(spare)"]
        for w in found["workers"]
    ]
    print_table("", columns, rows)
    changed = [[row["key"], row["value"], row["origin"]] for row in found["settings"] if row["origin"] != "default"]
    if changed:
        print_table("", ("setting", "value", "from"), changed)
    click.echo(f"{len(found['settings']) - len(changed)} settings have their defaults; --json shows all")


@click.command()
@click.argument("name")
@click.option("-w", "--wait", "drain", is_flag=True, help="Process what is on its way first, then end.")
@ADDRESS
@JSON
def kill(name: str, drain: bool, address: str | None, as_json: bool) -> None:
    """End a topology."""
    from rstream import client

    handle = client.connect(name, address)
    handle.kill(drain)
    if drain:
        handle.wait()
    say(as_json, name, handle, "killed")


@click.command()
@click.argument("name")
@ADDRESS
@JSON
def activate(name: str, address: str | None, as_json: bool) -> None:
    """Read the sources of a topology again."""
    from rstream import client

    handle = client.connect(name, address)
    handle.activate()
    say(as_json, name, handle, "activated")


@click.command()
@click.argument("name")
@ADDRESS
@JSON
def deactivate(name: str, address: str | None, as_json: bool) -> None:
    """Stop reading the sources of a topology; what is on its way is processed."""
    from rstream import client

    handle = client.connect(name, address)
    handle.deactivate()
    say(as_json, name, handle, "deactivated")


@click.command()
@click.argument("name")
@ADDRESS
@JSON
def errors(name: str, address: str | None, as_json: bool) -> None:
    """What went wrong in a topology's own code, newest last."""
    from rstream import client

    found = client.connect(name, address).errors()
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no errors")
    for error in found:
        at = dt.datetime.fromtimestamp(error["at"]).isoformat(sep=" ", timespec="seconds")
        click.echo(f"{at}  step {error['step']!r}, task {error['task']}, node {error['node'][:12]}: {error['error']}")
        if error["value"]:
            click.echo(f"    tuple: {error['value']}")
        if error["traceback"]:
            click.echo("    " + error["traceback"].rstrip().replace("\n", "\n    "))


def say(as_json: bool, name: str, handle: Any, what: str) -> None:
    """What has been done to a topology."""
    if as_json:
        print_json({"name": name, "state": handle.status()["state"]})
    else:
        click.echo(f"{name}: {what}")
