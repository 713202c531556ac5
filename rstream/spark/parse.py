"""Turns lines into typed rows, each with the reason why it is not one, if it is not.

All of it is Spark SQL: no row passes through Python. The result has the data set's columns and, beside them, `_file`,
`_raw`, `_reason` (null for a good row), `_detail` and `_slot`; `_position` where the order of lines is to be kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rstream.spark.dataset import Column, DataSet, Reason
from rstream.spark.location import escape

SLOT_S = 3600  # the grain at which rows are dealt to output files
_CORRUPT = "_corrupt"
BOM = "\ufeff"  # Spark itself leaves it out of the lines it reads; a header read by us still has it


@dataclass(frozen=True)
class Layout:
    """Files with one header in common, and where each column stands in them."""

    paths: tuple[str, ...]
    header: str
    width: int
    place: dict[str, int]  # column name to index
    missing: tuple[str, ...]  # required columns that the header lacks
    ignored: tuple[str, ...]  # header names that the catalogue does not keep


def layouts(dataset: DataSet, first_lines: Sequence[tuple[str, str]]) -> list[Layout]:
    """Group files by their header; one group for sets without.

    >>> from rstream.spark.catalogue import find
    >>> [group] = layouts(find("backblaze"), [("a.csv", "date,serial_number,model,failure,smart_255_raw")])
    >>> group.place["failure"], group.missing, group.ignored
    (3, (), ('smart_255_raw',))
    """
    if not dataset.header:
        place = {column.name: index for index, column in enumerate(dataset.columns)}
        return [Layout(tuple(path for path, _ in first_lines), "", len(place), place, (), ())]
    groups: dict[str, list[str]] = {}
    for path, line in first_lines:
        groups.setdefault(line, []).append(path)
    return [_layout(dataset, line, paths) for line, paths in groups.items()]


def _layout(dataset: DataSet, line: str, paths: list[str]) -> Layout:
    names = [name.strip().strip('"').lower() for name in line.removeprefix(BOM).split(",")]
    found = {column.name: column.place_in(names) for column in dataset.columns}
    place = {name: index for name, index in found.items() if index is not None}
    missing = tuple(column.fields[0] for column in dataset.columns if column.required and column.name not in place)
    taken = set(place.values())
    ignored = tuple(name for index, name in enumerate(names) if index not in taken)
    return Layout(tuple(paths), line, len(names), place, missing, ignored)


def parse(session: Any, dataset: DataSet, groups: Sequence[Layout]) -> Any:
    """One DataFrame of all lines of all groups, headers left out."""
    parsed = [_parse_group(session, dataset, group) for group in groups]
    result = parsed[0]
    for more in parsed[1:]:
        result = result.unionByName(more)
    return result


def _parse_group(session: Any, dataset: DataSet, group: Layout) -> Any:
    from pyspark.sql import functions as F

    lines = session.read.text([escape(path) for path in group.paths]).select(
        F.col("value").alias("_raw"),
        F.expr("replace(_metadata.file_path, 'file:///', 'file:/')").alias("_file"),
        F.expr("_metadata.file_block_start").alias("_start"),
    )
    if dataset.header:
        lines = lines.where(F.col("_raw") != F.lit(group.header.removeprefix(BOM)))
    lines = lines.withColumn("_line", F.expr(_LINE_REASON))
    fields = _fields(dataset, group, lines)
    typed = fields.select(
        "_raw", "_file", "_start", "_line", "_text", *(_typed(column, group) for column in dataset.columns)
    )
    reasons = F.expr(_reasons(dataset, group))
    position = F.struct("_file", "_start", F.monotonically_increasing_id().alias("n")).alias("_position")
    return typed.withColumn("_bad", reasons).select(
        *(column.name for column in dataset.columns),
        "_file",
        F.when(F.col("_bad").isNotNull(), F.col("_raw").cast("binary")).alias("_raw"),
        F.expr("substring_index(_bad, ':', 1)").alias("_reason"),
        F.expr("nullif(substring_index(_bad, ':', -1), substring_index(_bad, ':', 1))").alias("_detail"),
        F.expr(_slot(dataset)).alias("_slot"),
        *([] if dataset.timed else [position]),
    )


# A line of a file in UTF-16 is often valid UTF-8 byte by byte; the zero bytes give it away.
_LINE_REASON = f"""case
    when trim(_raw) = '' then '{Reason.BLANK_LINE}'
    when not is_valid_utf8(_raw) or contains(_raw, char(0)) then '{Reason.NOT_UTF8}' end"""


def _fields(dataset: DataSet, group: Layout, lines: Any) -> Any:
    """The text of every field as the struct `_text`, made only for lines that are text at all."""
    from pyspark.sql import functions as F

    readable = F.expr("if(_line is null, _raw, null)")
    corrupt = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if dataset.format == "csv":
        schema = ", ".join(f"c{index} string" for index in range(group.width))
        return lines.withColumn("_text", F.from_csv(readable, f"{schema}, {_CORRUPT} string", corrupt))
    if dataset.format == "jsonl":
        schema = f"{dataset.json_schema}, {_CORRUPT} string"
        parsed = lines.withColumn("_json", F.from_json(readable, schema, corrupt))
        texts = [F.expr(_within_json(dataset, column.json)).alias(column.name) for column in dataset.columns]
        return parsed.withColumn("_text", F.struct(*texts, F.col(f"_json.{_CORRUPT}").alias(_CORRUPT)))
    return lines.withColumn("_text", F.struct(readable.alias("c0"), F.lit(None).cast("string").alias(_CORRUPT)))


def _within_json(dataset: DataSet, expression: str) -> str:
    """The catalogue's expression with its top-level names looked up in the parsed object."""
    tops = [part.strip().split(" ", 1)[0] for part in re.sub(r"<[^>]*>", "", dataset.json_schema).split(",")]
    return re.sub(rf"(?<![.\w])({'|'.join(tops)})\b", r"_json.\1", expression)


def _text_of(column: Column, group: Layout) -> str | None:
    if column.json:
        return f"_text.{column.name}"
    index = group.place.get(column.name)
    return None if index is None else f"_text.c{index}"


def _typed(column: Column, group: Layout) -> Any:
    from pyspark.sql import functions as F

    text = _text_of(column, group)
    if text is None:
        return F.lit(None).cast(column.type).alias(column.name)
    x = text if column.free_text else f"trim({text})"
    return F.expr(f"cast({column.sql.format(x=x)} as {column.type})").alias(column.name)


def _reasons(dataset: DataSet, group: Layout) -> str:
    """SQL for `reason:detail` of the first thing wrong with a row, null if nothing is."""
    if group.missing:
        return f"coalesce(_line, '{Reason.MISSING_COLUMN}:{','.join(group.missing)}')"
    shape = Reason.BAD_JSON if dataset.format == "jsonl" else Reason.WRONG_COLUMN_COUNT
    checks = ["_line", f"if(_text.{_CORRUPT} is not null, '{shape}', null)"]
    for column in dataset.columns:
        text = _text_of(column, group)
        if text is None:
            continue
        empty = f"({text} is null or trim({text}) = '')"
        if column.required:
            checks.append(f"if({empty}, '{Reason.MISSING_VALUE}:{column.name}', null)")
        if column.type != "string":
            checks.append(f"if({column.name} is null and not {empty}, '{column.bad}:{column.name}', null)")
        if column.allowed:
            values = ", ".join(f"'{value}'" for value in column.allowed)
            checks.append(
                f"if(cast({column.name} as string) not in ({values}), '{Reason.BAD_VALUE}:{column.name}', null)"
            )
    if dataset.timed:
        inside = f"{day_sql(dataset)} between date'{dataset.first}' and date'{dataset.last}'"
        checks.append(f"if({inside}, null, '{Reason.TIME_OUT_OF_RANGE}:event_time')")
    return f"coalesce({', '.join(checks)})"


def day_sql(dataset: DataSet) -> str:
    """SQL for the day to which a row belongs, in the data set's own time zone."""
    return f"to_date(event_time + interval '{dataset.utc_offset_h}' hour)"


def _slot(dataset: DataSet) -> str:
    """SQL for what is never cut in two when rows are dealt to output files; slots sort as their rows do."""
    if dataset.timed:
        return f"unix_seconds(event_time) div {SLOT_S}"
    return "concat(_file, '#', lpad(_start, 16, '0'))"
