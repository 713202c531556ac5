"""Synthesises a data set with a Spark job: the same bytes for the same name, rows and seed, whatever the partitions.

The files are cut by row numbers, so that the number of tasks decides only who writes which file; the counts of bad
and repeated lines follow from the arithmetic of `dirt`, not from looking at what was written. The driver holds one
number per file.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from rstream.errors import DataError, RunError
from rstream.spark.dataset import DataSet
from rstream.spark.location import Location, escape
from rstream.spark.progress import Phases, Quiet
from rstream.spark.recipes import RECIPES, Recipe, line_sql
from rstream.spark.storage import Storage
from rstream.spark.target import Target

ROWS_MAX = 100_000_000_000
FORMAT_VERSION = 1  # of the recipes: the same seed gives other bytes after it was raised


def synth(
    session: Any,
    dataset: DataSet,
    target: Location,
    rows: int,
    seed: int,
    partitions: int | None = None,
    phases: Phases | None = None,
) -> dict[str, Any]:
    """Write `rows` lines and return the manifest, which says how many of them are bad, and why."""
    phases = phases or Quiet()
    check_size(rows, seed, partitions)
    recipe = RECIPES[dataset.name](rows, seed)
    files = -(-rows // recipe.file_rows)
    storage = Storage(session, target)
    place = Target(storage, "synth", dataset.name)
    with place.staged() as staging:
        with phases.phase(f"making {rows:,} lines"):
            lines = _lines(session, recipe, rows, seed, files, min(partitions or files, files))
            lines.write.partitionBy("file").option("compression", "none").text(f"{staging}/lines")
        with phases.phase("counting and checksums"):
            written = _gather(session, storage, staging, recipe)
        headers = 0 if recipe.header is None else files
        if sum(entry["lines"] for entry in written) != rows + headers:
            raise RunError(f"{rows} lines were asked for and {written} came out: nothing was published")
        bad = recipe.dirt.counts(rows)
        duplicates = recipe.dirt.duplicate_count(rows)
        manifest = {
            "kind": "synth",
            "dataset": dataset.name,
            "version": FORMAT_VERSION,
            "seed": seed,
            "lines": rows,
            "rows": rows - sum(bad.values()) - duplicates,
            "duplicates": duplicates,
            "quarantined": sum(bad.values()),
            "quarantined_by_reason": bad,
            "files": written,
        }
        with phases.phase("publishing"):
            place.publish(manifest)
    return manifest


def check_size(rows: int, seed: int, partitions: int | None) -> None:
    """Refuse sizes that cannot be made.

    >>> check_size(0, 1, None)
    Traceback (most recent call last):
    rstream.errors.DataError: --rows must be from 1 to 100,000,000,000, got 0
    """
    if not 1 <= rows <= ROWS_MAX:
        raise DataError(f"--rows must be from 1 to {ROWS_MAX:,}, got {rows:,}")
    if not -(2**63) <= seed < 2**63:
        raise DataError(f"--seed must fit 64 bits, got {seed}")
    if partitions is not None and partitions < 1:
        raise DataError(f"--partitions must be at least 1, got {partitions}")


def _lines(session: Any, recipe: Recipe, rows: int, seed: int, files: int, partitions: int) -> Any:
    """All lines with the number of their file, each partition holding whole files in order."""
    from pyspark.sql import functions as F

    size = recipe.file_rows
    numbered = session.range(0, files, 1, partitions).select(
        F.col("id").alias("file"),
        F.expr(f"explode(sequence(id * {size}L, least({rows}L, (id + 1) * {size}L) - 1))").alias("i"),
    )
    steps = [
        ("rank", recipe.dirt.rank_sql(seed, rows)),
        ("c", recipe.dirt.original_sql(seed)),
        ("fault", recipe.dirt.fault_sql()),
        *recipe.steps,
        ("clean", recipe.line),
        ("value", line_sql()),
    ]
    lines = numbered
    for name, sql in steps:
        lines = lines.withColumn(name, F.expr(sql))
    lines = lines.select("file", "i", "value")
    if recipe.header is not None:
        # A header travels with its file's first row within the same task: no shuffle is needed for it.
        headers = [(file, recipe.header(file)) for file in range(files)]
        texts = F.broadcast(session.createDataFrame(headers, "file bigint, header string"))
        value = F.expr(f"if(i = file * {size}L, concat(header, '\\n', value), value)").alias("value")
        lines = lines.join(texts, "file").select("file", "i", value)
    # The order is asked for although the rows come in it: the writer would else sort by file alone, and shuffle ties.
    return lines.sortWithinPartitions("file", "i").select("file", "value")


def _gather(session: Any, storage: Storage, staging: str, recipe: Recipe) -> list[dict[str, Any]]:
    """Move Spark's one part file per directory to the name it has in the real set, and count its lines."""
    from pyspark.sql import functions as F

    for part in storage.walk(f"{staging}/lines", f"{staging}/lines"):
        number = int(part.name.partition("/")[0].removeprefix("file="))
        name = f"{staging}/{recipe.file_name(number)}"
        if storage.exists(name):
            raise RunError(f"file {number} came in two parts: nothing was published")
        storage.rename(part.path, name)
    storage.delete(f"{staging}/lines")
    path = F.expr("replace(_metadata.file_path, 'file:///', 'file:/')")
    counted = session.read.text(f"{escape(staging)}/*").groupBy(path.alias("path")).count().collect()
    lines = {unquote(row["path"]): int(row["count"]) for row in counted}
    return [
        {
            "name": file.name,
            "lines": lines.get(file.path, 0),
            "bytes": file.size_bytes,
            "sha256": storage.sha256(file.path),
        }
        for file in sorted(storage.walk(staging, staging), key=lambda file: file.name)
    ]
