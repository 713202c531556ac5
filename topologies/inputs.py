"""Where the ready topologies take their rows from: a table that `rstream data ingest` made, rows that others push
(`rstream data replay`), or invented rows at a rate.

Rows are tuples of the columns named here, times in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rstream.api import Source
from rstream.errors import DataError
from rstream.operators.sources import Ingest, ParquetRows, Rate

TIANCHI = ("user_id", "item_id", "category_id", "behavior", "event_time")
TWEETS = ("id", "author", "lang", "text", "event_time")
DRIVES = ("serial_number", "model", "failure", "smart_5_raw", "smart_187_raw", "smart_194_raw", "event_time")
FLOWS = ("source_ip", "destination_port", "duration", "flow_bytes_sent", "flow_bytes_received", "label", "event_time")
LINES = ("line",)

START_S = 1_511_539_200
WORDS = ("river", "valley", "storm", "news", "vaccine", "mask", "opinion", "think", "cases", "report", "today", "home")


SECONDS = 10.0
PUSHED = "ingest"
"""In place of a table: rows are pushed."""


def rows(
    table: str,
    columns: Sequence[str],
    invent: Callable[[int], tuple[object, ...]],
    per_s: float,
    seconds: float = SECONDS,
) -> Source:
    """The rows of a table, or with `ingest` those that others push; else invented ones at a rate, for a while."""
    if table == PUSHED:
        return Ingest({name: _type(name, value) for name, value in zip(columns, invent(0), strict=True)})
    return ParquetRows(table, columns) if table else Rate(invent, per_s, limit=int(per_s * seconds))


def lines(table: str, invent: Callable[[int], tuple[str]], count: int) -> list[str]:
    """The lines that `rows` gives of a table, or so many invented ones: for what a topology must count, its truth()."""
    if table == PUSHED:
        raise DataError("what will be pushed is not known beforehand: truth() needs table=FOLDER, or no table")
    if not table:
        return [invent(number)[0] for number in range(count)]
    import pyarrow.parquet

    files = ParquetRows(table, LINES).files()
    return [line for path in files for line in pyarrow.parquet.read_table(path, columns=["line"])["line"].to_pylist()]


def _type(name: str, value: object) -> Any:
    """A column's type by an invented value; in real tables every column but the time may lack values."""
    return float if name == "event_time" else type(value) | None


def mixed(n: int, salt: int, below: int) -> int:
    """A number below a limit that looks random and is the same every time; small ones come more often."""
    chance = (n * 2_654_435_761 + salt * 40_503) % 1_000_003 / 1_000_003
    return int(below * chance**3)


def behaviour(n: int) -> tuple[object, ...]:
    """A row of TIANCHI."""
    kind = ("pv", "pv", "pv", "pv", "pv", "pv", "cart", "fav", "buy")[mixed(n, 3, 9)]
    return (mixed(n, 1, 10_000), mixed(n, 2, 2_000), mixed(n, 2, 100), kind, START_S + n / 10)


def tweet(n: int) -> tuple[object, ...]:
    """A row of TWEETS."""
    text = " ".join(WORDS[mixed(n, salt, len(WORDS))] for salt in range(4, 10))
    return (n, f"author{mixed(n, 10, 500)}", ("en", "es", "fr")[mixed(n, 11, 3)], text, START_S + n / 10)


def drive(n: int) -> tuple[object, ...]:
    """A row of DRIVES: a hundred drives, each once a day."""
    failure, errors = int(mixed(n, 12, 1000) == 999), mixed(n, 13, 40)
    day = START_S + n // 100 * 86_400
    return (f"Z{n % 100}", f"model{n % 4}", failure, errors, errors // 2, 20 + mixed(n, 14, 25), day)


def flow(n: int) -> tuple[object, ...]:
    """A row of FLOWS."""
    port = (443, 443, 53, 8080)[mixed(n, 15, 4)]
    sent, received = 100 + mixed(n, 16, 9_000), 100 + mixed(n, 17, 90_000)
    return (f"10.0.0.{mixed(n, 18, 250)}", port, 0.1 + mixed(n, 19, 60), sent, received, "DoH", START_S + n / 10)


def line(n: int) -> tuple[str]:
    """A row of LINES."""
    return (" ".join(WORDS[mixed(n, salt, len(WORDS))] for salt in range(20, 28)),)
