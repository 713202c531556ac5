"""Tables for people: the live view of a running topology, and listings.

What draws them is loaded when something is drawn: a command whose output is for programs starts sooner without.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rstream.clock import SystemClock

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from rstream.runtime.checkup import Check

TIERS = ("thread", "process", "node")
PROGRESS_S = 10.0
"""How often a run says how it is doing where no terminal can show a live table."""
PLAIN_WIDTH = 120
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def print_json(value: Any) -> None:
    """One JSON value on standard output, for scripts."""
    print(json.dumps(value, ensure_ascii=False, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A plain table on standard output."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console().print(table)


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal; of a fixed width where there is none, so that files and pipes look alike."""
    from rich.console import Console

    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=PLAIN_WIDTH)


class LiveStatus:
    """A table of the topology, drawn again with every status; without a terminal a line now and then, and the last
    table."""

    def __init__(self) -> None:
        from rich.live import Live

        self._console = console(stderr=True)
        self._clock = SystemClock()
        self._said_s = self._clock.monotonic()
        self._last: Mapping[str, Any] | None = None
        # Standard output is left alone unless it is this terminal: `rstream run ... > file` must fill the file.
        self._live = Live(
            console=self._console, refresh_per_second=8, transient=False, redirect_stdout=sys.stdout.isatty()
        )

    def __enter__(self) -> LiveStatus:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        elif self._last is not None:
            self._console.print(render(self._last))

    def show(self, status: Mapping[str, Any]) -> None:
        """Draw this status."""
        self._last = status
        if self._console.is_terminal:
            self._live.update(render(status))
        elif self._clock.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = self._clock.monotonic()
            note(" ".join(part.strip() for part in _head(status).plain.split()))


def _head(status: Mapping[str, Any]) -> Text:
    from rich.text import Text

    starting = status["state"] == "INACTIVE" and not all(worker["pid"] for worker in status["workers"])
    state = "starting its workers" if starting else status["state"]
    return Text.assemble(
        (str(status["name"]), "bold"),
        f"  {state}  policy {status['policy']}  workers {sum(not w['spare'] for w in status['workers'])}\n",
        f"emitted {status['emitted']:,}  acked {status['acked']:,}  failed {status['failed']:,}",
        f"  latency p50 {ms(status['p50_ms'])}  p99 {ms(status['p99_ms'])}",
    )


def render(status: Mapping[str, Any]) -> Group:
    """A status as tables: operators, then edges by tier."""
    from rich.console import Group

    return Group(_head(status), _operators(status), _edges(status))


def _operators(status: Mapping[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator")
    for column in ("parallelism", "tuples/s", "processed", "emitted", "us/tuple", "queue", "failed"):
        table.add_column(column, justify="right")
    for operator in status["operators"]:
        busy = operator["busy_s"] / operator["processed"] if operator["processed"] else None
        table.add_row(
            Text(operator["name"]),
            str(operator["parallelism"]),
            f"{operator['rate']:,.0f}",
            f"{operator['processed']:,}",
            f"{operator['emitted']:,}",
            "-" if busy is None else f"{busy * 1e6:,.1f}",
            f"{operator['queue']:,}",
            f"{operator['failed']:,}",
        )
    return table


def _edges(status: Mapping[str, Any]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("edge")
    table.add_column("grouping")
    for tier in TIERS:
        table.add_column(f"{tier} tier", justify="right")
    table.add_column("tuples/s", justify="right")
    lines: dict[tuple[str, str, str], dict[str, float]] = {}
    for edge in status["edges"]:
        ends = (edge["from"].rpartition("#")[0], edge["to"].rpartition("#")[0], edge["grouping"])
        line = lines.setdefault(ends, dict.fromkeys((*TIERS, "rate"), 0))
        line[edge["tier"]] += 1
        line["rate"] += edge["rate"]
    for (source, target, grouping), line in lines.items():
        counts = [f"{line[tier]:.0f}" if line[tier] else "" for tier in TIERS]
        table.add_row(Text(f"{source} -> {target}"), grouping, *counts, f"{line['rate']:,.0f}")
    return table


def say_check(check: Check) -> None:
    """A finding of `rstream doctor`."""
    from rich.text import Text

    console().print(
        Text.assemble((f"{check.state:<4}", _COLOURS[check.state]), f"  {check.name}: {check.found}"), soft_wrap=True
    )
    if check.remedy:
        console().print(Text(f"      remedy: {check.remedy}"), soft_wrap=True)


def ms(value: float | None) -> str:
    """Milliseconds for people."""
    return "-" if value is None else f"{value:,.1f} ms"


def note(text: str) -> None:
    """A line for the person, beside the output."""
    print(f"rstream: {text}", file=sys.stderr)
