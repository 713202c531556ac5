"""Options that several verbs share."""

from __future__ import annotations

import click

ADDRESS = click.option(
    "--address", help="The Ray cluster, as ip:port; by default RAY_ADDRESS or the one on this machine."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON value instead of tables.")
