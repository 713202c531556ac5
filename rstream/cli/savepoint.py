"""The verb savepoint: all state of a running topology, written to a place that any later run can start from."""

from __future__ import annotations

import click

from rstream.cli.options import ADDRESS, JSON
from rstream.cli.show import print_json


def register(app: click.Group) -> None:
    """Add the verb."""
    app.add_command(savepoint)


@click.command()
@click.argument("name")
@click.argument("uri")
@click.option("--stop", is_flag=True, help="End the topology with it: nothing is processed after the savepoint.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), help="Give it up after so many seconds."
)
@ADDRESS
@JSON
def savepoint(name: str, uri: str, stop: bool, timeout_s: float | None, address: str | None, as_json: bool) -> None:
    """Write all state of a topology to URI, a folder that any storage of pyarrow.fs holds.

    Start from it with: rstream run TARGET --from URI. Sources are not read until what is on its way has been processed;
    the state is written while they are read again."""
    from rstream import client

    handle = client.connect(name, address)
    result = handle.savepoint(uri, stop=stop, timeout_s=timeout_s or client.SAVEPOINT_TIMEOUT_S)
    if as_json:
        print_json({"name": name, **result})
        return
    click.echo(
        f"{name}: {result['tasks']} tasks, {result['bytes']:,} bytes, saved to {result['uri']}; "
        + ("it has ended" if stop else f"sources were not read for {result['still_s']:.2f} s")
    )
