"""One Spark session for the whole run; data sets synthesised and ingested once each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rstream.spark.catalogue import find
from rstream.spark.ingest import ingest
from rstream.spark.location import Location
from rstream.spark.session import SparkOptions, spark_session
from rstream.spark.synth import synth

QUICK_ROWS = 8_000
SEED = 7
COUNTS = ("lines", "rows", "duplicates", "quarantined", "quarantined_by_reason")
"""What both jobs say about a data set, and must agree on."""


@pytest.fixture(scope="package")  # as long as this directory's tests run: the unit tests after them allow no threads
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        if "not long" in request.config.getoption("markexpr"):
            # Java's second compiler pays after minutes; on inputs this small it only takes the cores away.
            patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        with spark_session(SparkOptions(master="local[2]"), print) as session:
            yield session


Ingest = Callable[[str, Path | str, Path | str], dict[str, Any]]


@pytest.fixture(scope="package")
def run_ingest(spark: Any) -> Ingest:
    def run(name: str, source: Path | str, target: Path | str) -> dict[str, Any]:
        return ingest(spark, find(name), Location.parse(str(source)), Location.parse(str(target)))

    return run


@dataclass(frozen=True)
class Made:
    """A data set that went all the way: where it is, and what both jobs said about it."""

    raw: Path
    table: Path
    synth: dict[str, Any]
    ingest: dict[str, Any]


MakeSet = Callable[[str], Made]


def maker(spark: Any, run_ingest: Ingest, folders: pytest.TempPathFactory, rows: int) -> MakeSet:
    """Makes and ingests a data set of so many rows when it is first asked for."""
    done: dict[str, Made] = {}

    def make(name: str) -> Made:
        if name not in done:
            base = folders.mktemp(name)
            said = synth(spark, find(name), Location.parse(str(base / "raw")), rows, SEED)
            done[name] = Made(base / "raw", base / "table", said, run_ingest(name, base / "raw", base / "table"))
        return done[name]

    return make


@pytest.fixture(scope="package")
def made(spark: Any, run_ingest: Ingest, tmp_path_factory: pytest.TempPathFactory) -> MakeSet:
    return maker(spark, run_ingest, tmp_path_factory, QUICK_ROWS)


def query(sql: str) -> list[tuple[Any, ...]]:
    """Ask DuckDB, which shares no code with what is tested."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        return connection.execute(sql).fetchall()


def table(path: Path) -> str:
    """SQL for all rows of an ingested set, with the file that each stands in."""
    return (
        f"read_parquet('{path}/data/**/*.parquet', hive_partitioning = true, filename = true, file_row_number = true)"
    )


def quarantined(path: Path) -> dict[str, int]:
    """Rows of the quarantine table by reason, as DuckDB counts them."""
    rows = query(f"select reason, count(*) from read_parquet('{path}/quarantine/*.parquet') group by reason")
    return {str(reason): int(count) for reason, count in rows}
