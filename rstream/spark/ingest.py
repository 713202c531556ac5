"""Ingests a data set: raw files in, clean Parquet in event-time order out, with a quarantine table and a manifest.

Which rows stand in which file and in what order depends on the bytes of the source alone, not on the number of cores:
rows are dealt to output files by time slots and the source's size. Every line that was read is a row, a counted
duplicate or a row of the quarantine table; a run in which that sum does not hold publishes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rstream.errors import DataError, RunError
from rstream.spark.dataset import DataSet, Reason
from rstream.spark.layout import deal_slots, name_parts, output_files, write_ordered
from rstream.spark.location import Location, check_apart
from rstream.spark.parse import Layout, layouts, parse
from rstream.spark.progress import Phases, Quiet
from rstream.spark.storage import FileInfo, Scan, Storage
from rstream.spark.target import Target

FORMAT_VERSION = 2  # of the tables and the manifest: raising it makes the next run ingest again
_SCANS_AT_ONCE = 4
_QUARANTINE_ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True)
class _Source:
    """A source file and what scanning it has shown."""

    file: FileInfo
    scan: Scan

    def entry(self, lines: int) -> dict[str, Any]:
        entry = {
            "name": self.file.name,
            "bytes": self.file.size_bytes,
            "modified_ms": self.file.modified_ms,
            "sha256": self.scan.sha256,
            "lines": lines,
        }
        return entry if self.scan.broken is None else entry | {"refused": self.scan.broken, "detail": self.scan.detail}


def ingest(
    session: Any, dataset: DataSet, source: Location, target: Location, phases: Phases | None = None
) -> dict[str, Any]:
    """Run the whole ingest and return the manifest; its `status` is `ingested` or `unchanged`."""
    phases = phases or Quiet()
    check_apart(source, target)
    place = Target(Storage(session, target), "ingest", dataset.name)
    storage = Storage(session, source)
    files, skipped = choose(dataset, source, storage.find())
    with place.staged() as staging:
        with phases.phase("checking the source"), ThreadPoolExecutor(_SCANS_AT_ONCE) as pool:
            scans = pool.map(lambda file: storage.scan(file.path, want_first_line=dataset.header), files)
            sources = [_Source(file, scan) for file, scan in zip(files, scans, strict=True)]
        old = place.manifest()
        if old is not None and _same(old, dataset, sources) and place.is_whole(old["data"] + old["quarantine"]):
            return old | {"status": "unchanged"}
        manifest = _run(session, dataset, sources, staging, place, phases)
        manifest["files_skipped"] = skipped
        with phases.phase("publishing"):
            place.publish(manifest)
    return manifest | {"status": "ingested"}


def choose(dataset: DataSet, source: Location, found: Sequence[FileInfo]) -> tuple[list[FileInfo], list[str]]:
    """The files to read, and the names of those in a directory that do not look like this data set."""
    if not found:
        raise DataError(f"{source.text}: {'no file matches' if source.is_pattern else 'holds no files'}")
    fitting = [file for file in found if file.name.lower().endswith(dataset.suffixes)]
    if len(found) == 1 or source.is_pattern:
        fitting = [file for file in found if not file.name.lower().endswith(".zip")]
    if not fitting:
        hint = "; unpack the zip first" if any(file.name.lower().endswith(".zip") for file in found) else ""
        wanted = ", ".join(dataset.suffixes)
        raise DataError(f"{source.text}: has no files of {dataset.name!r} (wanted {wanted}), got {found[0].name}{hint}")
    chosen = set(fitting)
    return fitting, [file.name for file in found if file not in chosen]


def _same(old: dict[str, Any], dataset: DataSet, sources: Sequence[_Source]) -> bool:
    """Whether the published data was made by this version from these very bytes."""
    if (old.get("kind"), old.get("dataset"), old.get("version")) != ("ingest", dataset.name, FORMAT_VERSION):
        return False
    before = [(entry["name"], entry["sha256"]) for entry in old["sources"]]
    return before == [(source.file.name, source.scan.sha256) for source in sources]


def _run(
    session: Any, dataset: DataSet, sources: Sequence[_Source], staging: str, place: Target, phases: Phases
) -> dict[str, Any]:
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    whole = [source for source in sources if source.scan.broken is None and source.file.size_bytes > 0]
    refused = [source for source in sources if source.scan.broken is not None]
    if not whole:
        raise DataError(f"nothing to ingest: {_why_nothing(sources)}")
    groups = layouts(dataset, [(source.file.path, source.scan.first_line) for source in whole])
    parsed = parse(session, dataset, groups).persist(StorageLevel.DISK_ONLY)
    try:
        with phases.phase("reading and checking lines"):
            counted = parsed.groupBy("_file", "_reason").count().collect()
        lines, good, reasons = _tally(counted)
        if good == 0:
            raise DataError(_nothing_fits(dataset, groups, lines, reasons))
        rows = parsed.where(F.col("_reason").isNull())
        with phases.phase("ordering and writing rows"):
            source_bytes = sum(source.file.size_bytes for source in whole)
            deal = deal_slots(session, rows, source_bytes)
            write_ordered(dataset, rows, deal, f"{staging}/data")
        with phases.phase("writing the quarantine table"):
            _write_quarantine(session, parsed, sum(reasons.values()), sources, f"{staging}/quarantine")
    finally:
        parsed.unpersist()
    with phases.phase("counting and checksums"):
        storage = Storage(session, Location(staging, staging, None))
        name_parts(storage, f"{staging}/data")
        name_parts(storage, f"{staging}/quarantine")
        data = output_files(session, storage, staging, "data")
        quarantine = output_files(session, storage, staging, "quarantine")
    written = sum(entry["rows"] for entry in data)
    held = sum(entry["rows"] for entry in quarantine)
    if (
        written > good
        or (written < good and not dataset.has_duplicates)
        or held != sum(reasons.values()) + len(refused)
    ):
        raise RunError(f"{good} good lines became {written} rows and {held} quarantined: nothing was published")
    total = sum(lines.values())
    return {
        "kind": "ingest",
        "dataset": dataset.name,
        "version": FORMAT_VERSION,
        "lines": total,
        "rows": written,
        "duplicates": good - written,
        "quarantined": sum(reasons.values()),
        "quarantined_by_reason": dict(sorted(reasons.items())),
        "files_refused": [{"name": s.file.name, "reason": s.scan.broken, "detail": s.scan.detail} for s in refused],
        "columns_ignored": sorted({name for group in groups for name in group.ignored}),
        "sources": [source.entry(lines.get(source.file.path, 0)) for source in sources],
        "data": data,
        "quarantine": quarantine,
    }


def _tally(counted: Sequence[Any]) -> tuple[dict[str, int], int, dict[str, int]]:
    """Lines per file, good lines, and bad lines by reason."""
    lines: dict[str, int] = {}
    reasons: dict[str, int] = {}
    good = 0
    for row in counted:
        path, count = unquote(row["_file"]), int(row["count"])
        lines[path] = lines.get(path, 0) + count
        if row["_reason"] is None:
            good += count
        else:
            reasons[row["_reason"]] = reasons.get(row["_reason"], 0) + count
    return lines, good, reasons


def _write_quarantine(session: Any, parsed: Any, bad: int, sources: Sequence[_Source], where: str) -> None:
    """Bad lines with reason and bytes as they came; one row without bytes for each file refused as a whole."""
    from pyspark.sql import functions as F

    names = session.createDataFrame([(s.file.path, s.file.name) for s in sources], "_file string, file string")
    # Spark hands out paths as they stand in a URI; the plus sign alone means something else to url_decode.
    path = F.expr("url_decode(replace(_file, '+', '%2B'))")
    lines = (
        parsed.where(F.col("_reason").isNotNull())
        .withColumn("_file", path)
        .join(F.broadcast(names), "_file")
        .select("file", F.col("_reason").alias("reason"), F.col("_detail").alias("detail"), F.col("_raw").alias("raw"))
    )
    files = [(s.file.name, str(s.scan.broken), s.scan.detail) for s in sources if s.scan.broken is not None]
    if files:
        broken = session.createDataFrame(files, "file string, reason string, detail string")
        lines = lines.unionByName(broken.withColumn("raw", F.lit(None).cast("binary")))
    parts = 1 + bad // _QUARANTINE_ROWS_PER_FILE
    ordered = lines.repartition(parts, "file").sortWithinPartitions("file", "reason", "detail", "raw")
    ordered.write.parquet(where)


def _why_nothing(sources: Sequence[_Source]) -> str:
    broken = [source for source in sources if source.scan.broken is not None]
    if broken:
        return f"{broken[0].file.name} is a {str(broken[0].scan.broken).replace('_', ' ')} ({broken[0].scan.detail})"
    return f"all {len(sources)} files are empty"


def _nothing_fits(dataset: DataSet, groups: Sequence[Layout], lines: dict[str, int], reasons: dict[str, int]) -> str:
    total = sum(lines.values())
    if not reasons:
        return "nothing to ingest: the files hold no lines besides their header"
    reason = max(reasons, key=lambda name: reasons[name])
    hint = f"{reason.replace('_', ' ')} in {reasons[reason]}"
    if reason == Reason.MISSING_COLUMN:
        missing = next(group.missing for group in groups if group.missing)
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        hint = f"the header lacks {', '.join(missing[:3])}{more}"
    elif reason == Reason.WRONG_COLUMN_COUNT:
        hint += f", {groups[0].width} columns are wanted"
    return f"wrong schema for {dataset.name!r}: none of {total} lines fits ({hint}); nothing was written"
