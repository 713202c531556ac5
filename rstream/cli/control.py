"""The verbs about scheduling: rebalance changes sizes or the policy, explain says what the policies decided and why."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import click

from rstream.cli.options import ADDRESS, JSON
from rstream.cli.show import note, print_json
from rstream.cli.topologies import say
from rstream.errors import UsageError


def register(app: click.Group) -> None:
    """Add the verbs."""
    for command in (rebalance, explain):
        app.add_command(command)


@click.command()
@click.argument("name")
@click.option("-e", "--executors", "changes", multiple=True, metavar="STEP=N", help="New parallelism of a step.")
@click.option("-n", "--workers", type=click.IntRange(1), help="New number of worker processes.")
@click.option("--policy", help="Let this scheduling policy steer the topology from now on; nothing restarts.")
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting `control.*` for it; may be repeated."
)
@ADDRESS
@JSON
def rebalance(
    name: str,
    changes: tuple[str, ...],
    workers: int | None,
    policy: str | None,
    sets: tuple[str, ...],
    address: str | None,
    as_json: bool,
) -> None:
    """Change the policy of a topology, or its parallelism or workers.

    A new policy takes over at once. The parallelism of steps changes while they run. Another number of workers restarts
    the topology from the beginning of its sources."""
    from rstream import client
    from rstream.config import load, parse_set
    from rstream.core.steering import check

    parallelism = _parallelism(changes)
    settings = parse_set(sets)
    wrong = [key for key in settings if not key.startswith("control.")]
    if wrong:
        raise UsageError(f"--set {wrong[0]}: only settings control.* can be changed while a topology runs")
    if sets and policy is None:
        raise UsageError("--set changes the settings of a policy: give --policy with it")
    if not parallelism and workers is None and policy is None:
        raise UsageError("nothing to change: give --policy NAME, -e STEP=N or -n WORKERS")
    if policy is not None:
        control = load(environment={}, flags=settings).config.control
        check(policy, control)
    handle = client.connect(name, address)
    if parallelism or workers is not None:
        handle.rebalance(parallelism, workers)
    if workers is not None:
        note(f"{name} restarts from the beginning of its sources")
    if policy is not None:
        handle.set_policy(policy, control)
    say(as_json, name, handle, f"steered by {policy}" if policy else "rebalancing")


def _parallelism(changes: tuple[str, ...]) -> dict[str, int]:
    parallelism: dict[str, int] = {}
    for change in changes:
        step, equals, count = change.rpartition("=")
        if not equals or not count.lstrip("-").isdigit():
            raise UsageError(f"-e wants STEP=N, got {change!r}")
        parallelism[step] = int(count)
    return parallelism


@click.command()
@click.argument("name")
@click.option("--last", type=click.IntRange(1), help="Only so many of the newest decisions.")
@ADDRESS
@JSON
def explain(name: str, last: int | None, address: str | None, as_json: bool) -> None:
    """What a topology's policy decided: what it saw, forecast and did, and whether the forecast came true."""
    from rstream import client

    decisions = client.connect(name, address).explain()
    if last is not None:
        decisions = decisions[-last:]
    if as_json:
        print_json(decisions)
        return
    if not decisions:
        click.echo("no decisions yet: the policy is asked after its first interval")
    for each in decisions:
        click.echo("\n".join(lines_of(each)))


def lines_of(each: Mapping[str, Any]) -> list[str]:
    """One decision for a person."""
    at = dt.datetime.fromtimestamp(each["at_s"]).isoformat(sep=" ", timespec="seconds")
    times = f" ({each['times']} times, last now)" if each["times"] > 1 else ""
    lines = [f"#{each['number']}  {at}  {each['policy']}: {each['state']}{times}"]
    lines += _seen(each["saw"]) if each["saw"] else []
    for reason in each["reasons"]:
        lines.append(f"    {reason['subject']}: {reason['summary']}")
        if reason["forecast"]:
            lines.append(f"        forecast  {_pairs(reason['forecast'])}")
        for other in reason["alternatives"]:
            lines.append(f"        instead of {other['what']}: {other['why_not']}")
    for step in each["steps"]:
        lines.append(f"    {_result(step)}")
    if each["took_s"] is not None:
        lines.append(f"    took    {each['took_s']:.2f} s")
    if each["paused_ms"] is not None:
        lines.append(f"    paused  {each['paused_ms']:,.0f} ms: the longest that anything waited")
    if each["outcome"]:
        for found in each["outcome"]["compared"]:
            verdict = "came true" if found["came_true"] else "did not come true"
            lines.append(
                f"    later   {found['subject']} {found['what']}: forecast {_figure(found['forecast'])}, "
                f"measured {_figure(found['measured'])}: {verdict}"
            )
    return lines


def _seen(saw: Mapping[str, Any]) -> list[str]:
    lines = [
        f"    saw     {saw['source_rate']:,.1f} tuples/s from the sources, {saw['latency_ms']:,.1f} ms mean latency, "
        f"{len(saw['nodes'])} nodes"
    ]
    for operator in saw["operators"]:
        lines.append(
            f"            {operator['name']}: {operator['active']} active of {operator['loaded']}, "
            f"{operator['rate']:,.1f}/s, {operator['service_ms']:.3g} ms each, {operator['queue']:,.0f} queued"
        )
    return lines


def _result(step: Mapping[str, Any]) -> str:
    error = f": {step['error']}" if step["error"] else ""
    if step["took_s"] is None:
        return f"{'doing   ' if step['state'] == 'running' else 'to do   '}{step['what']}{error}"
    paused = f"; waited: {step['paused']}" if step["paused"] else ""
    return f"did     {step['what']} in {step['took_s'] * 1e3:,.0f} ms{paused}{error}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_figure(value)}" for key, value in values.items())


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
