"""`rstream bench`: the benchmarks of the source tree, with their tables, ratios and goals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

import rstream
from rstream.cli.options import JSON
from rstream.errors import UsageError

ROOT = Path(rstream.__file__).resolve().parent.parent


def register(app: click.Group) -> None:
    """Add the verb."""
    app.add_command(bench)


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Small sizes and one run each: shows that they work.")
@click.option("--runs", type=click.IntRange(min=1), help="How often each case runs, at full size unless --quick.")
@JSON
def bench(names: tuple[str, ...], quick: bool, runs: int | None, as_json: bool) -> int:
    """Run the benchmarks NAME, or all of them, and say which goals are met."""
    if not (ROOT / "benchmarks" / "__main__.py").is_file():
        raise UsageError("the benchmarks are not part of an installed rstream: run this in a clone of its repository")
    flags = [
        *(["--quick"] if quick else []),
        *(["--runs", str(runs)] if runs else []),
        *(["--json"] if as_json else []),
    ]
    return subprocess.run([sys.executable, "-m", "benchmarks", *flags, *names], cwd=ROOT).returncode
