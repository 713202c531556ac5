"""How rows are laid out in files: dealt by slot, in order, duplicates dropped, named by their place.

One shuffle does it all: the slots (hours of event time) are dealt to output partitions in order, duplicates meet in
one partition because they have the same time, and the sort that finds them is the order of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rstream.spark.dataset import DataSet
from rstream.spark.location import escape
from rstream.spark.parse import day_sql
from rstream.spark.storage import Storage

SOURCE_BYTES_PER_PARTITION = 32 << 20


@dataclass(frozen=True)
class Deal:
    """A table from `_slot` to `_part`, and how many parts there are."""

    table: Any
    parts: int


def deal_slots(session: Any, rows: Any, source_bytes: int) -> Deal:
    """Deal the slots to output partitions: neighbours together, parts of about equal row counts."""
    counts = sorted((row["_slot"], int(row["count"])) for row in rows.groupBy("_slot").count().collect())
    dealt = cut(counts, parts=1 + source_bytes // SOURCE_BYTES_PER_PARTITION)
    slot_type = "bigint" if isinstance(counts[0][0], int) else "string"
    return Deal(session.createDataFrame(dealt, f"_slot {slot_type}, _part int"), 1 + dealt[-1][1])


def cut(counts: list[tuple[Any, int]], parts: int) -> list[tuple[Any, int]]:
    """Deal ordered (slot, rows) to at most `parts` runs of about equal size.

    >>> cut([("a", 5), ("b", 5), ("c", 1), ("d", 9)], parts=2)
    [('a', 0), ('b', 0), ('c', 1), ('d', 1)]
    """
    total = sum(rows for _, rows in counts)
    dealt, before, last, part = [], 0, -1, -1
    for slot, rows in counts:
        wanted = before * parts // total
        if wanted != last:
            last, part = wanted, part + 1
        dealt.append((slot, part))
        before += rows
    return dealt


def write_ordered(dataset: DataSet, rows: Any, deal: Deal, where: str) -> None:
    """Write the rows as Parquet in order, a directory per day where there is a clock."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names = [column.name for column in dataset.columns]
    spread = rows.join(F.broadcast(deal.table), "_slot")
    if not dataset.timed:
        spread = spread.select(*names, "_part", "_position").repartitionById(deal.parts, F.col("_part"))
        spread.sortWithinPartitions("_part", "_position").select(*names).write.parquet(where)
        return
    # Null leaves a running hash as it was, so that a value in one optional column would equal the same value in the
    # next one: the pattern of nulls is hashed too.
    gaps = [F.col(column.name).isNull() for column in dataset.columns if not column.required]
    spread = spread.select(
        *names,
        "_part",
        F.expr(day_sql(dataset)).alias("day"),
        F.xxhash64(*names, *gaps).alias("_hash"),
        F.xxhash64(F.lit(1), *names, *gaps).alias("_hash_2"),
    ).repartitionById(deal.parts, F.col("_part"))
    order = ["day", "_part", "event_time", "_hash", "_hash_2"]
    if dataset.has_duplicates:
        same = Window.partitionBy(*order).orderBy("_hash")
        spread = spread.withColumn("_copy", F.row_number().over(same)).where(F.col("_copy") == 1)
    else:
        spread = spread.sortWithinPartitions(*order)
    spread.select(*names, "day").write.partitionBy("day").parquet(where)


def name_parts(storage: Storage, where: str) -> None:
    """Give Spark's part files, named at random, names that say their place; order within a directory is kept."""
    directories: dict[str, list[str]] = {}
    for file in storage.walk(where, where):
        directory, _, name = file.path.rpartition("/")
        directories.setdefault(directory, []).append(name)
    for directory, names in directories.items():
        for index, name in enumerate(sorted(names)):
            storage.rename(f"{directory}/{name}", f"{directory}/part-{index:05}.parquet")
    storage.delete(f"{where}/_SUCCESS")


def output_files(session: Any, storage: Storage, staging: str, table: str) -> list[dict[str, Any]]:
    """What was written, as the manifest lists it, with rows and content as read back from the files themselves.

    `content` is the sum of the rows' hashes: the same rows give the same one on every machine, whereas `sha256` also
    covers Parquet's footer, in which Java lists encodings in no fixed order.
    """
    from pyspark.sql import functions as F

    found = sorted(storage.walk(f"{staging}/{table}", staging), key=lambda file: file.name)
    path = F.expr("replace(_metadata.file_path, 'file:///', 'file:/')")
    rows = session.read.parquet(escape(f"{staging}/{table}"))
    summed = F.sum(F.xxhash64(*rows.columns).cast("decimal(20,0)"))
    grouped = rows.groupBy(path.alias("path")).agg(F.count("*").alias("rows"), summed.alias("content"))
    read = {unquote(row["path"]): (int(row["rows"]), int(row["content"]) % 2**64) for row in grouped.collect()}
    files = []
    for file in found:
        count, content = read.get(file.path, (0, 0))
        entry = {"path": file.name, "rows": count, "bytes": file.size_bytes, "content": f"{content:016x}"}
        files.append(entry | {"sha256": storage.sha256(file.path)})
    return files
