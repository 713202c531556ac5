"""The verb `doctor`: is everything here that rstream needs, and what to do where it is not."""

from __future__ import annotations

import click

from rstream.cli.options import ADDRESS, JSON


def register(app: click.Group) -> None:
    """Add the verb."""
    app.add_command(doctor)


@click.command()
@click.option(
    "--cluster", "file", metavar="FILE", help="Check this file for `ray up` and the machines it names instead."
)
@ADDRESS
@JSON
def doctor(file: str | None, address: str | None, as_json: bool) -> int:
    """Check this machine and the cluster; the exit status is 1 if something fails."""
    from rstream.cli.show import print_json, say_check
    from rstream.runtime.checkup import check_up
    from rstream.runtime.cluster_file import check_cluster_file

    checks = []
    for check in check_cluster_file(file) if file is not None else check_up(address):
        checks.append(check)
        if not as_json:
            say_check(check)
    if as_json:
        print_json([check.as_json() for check in checks])
    return int(any(check.state == "fail" for check in checks))
