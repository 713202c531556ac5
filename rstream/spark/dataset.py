"""What the catalogue says about a data set: its columns, its clock, its dirt.

Plain values without Spark, so that the command line and the tests can read the catalogue at once. Expressions are
Spark SQL text: `{x}` in a column's `parse` stands for the field as a trimmed string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a line, or a whole file, is in the quarantine table."""

    BLANK_LINE = "blank_line"
    NOT_UTF8 = "not_utf8"
    WRONG_COLUMN_COUNT = "wrong_column_count"
    BAD_JSON = "bad_json"
    MISSING_COLUMN = "missing_column"
    MISSING_VALUE = "missing_value"
    BAD_NUMBER = "bad_number"
    BAD_TIME = "bad_time"
    BAD_VALUE = "bad_value"
    TIME_OUT_OF_RANGE = "time_out_of_range"
    HALF_WRITTEN_FILE = "half_written_file"
    UNREADABLE_FILE = "unreadable_file"


# Some exports went through a float on their way (`100.0`); anything else after the point is not a whole number.
_WHOLE_NUMBER = "try_cast(if(endswith({{x}}, '.0'), left({{x}}, length({{x}}) - 2), {{x}}) as {type})"
_PARSE_BY_TYPE = {
    "string": "{x}",
    "int": _WHOLE_NUMBER.format(type="int"),
    "bigint": _WHOLE_NUMBER.format(type="bigint"),
    "double": "try_cast({x} as double)",
    "timestamp": "try_cast({x} as timestamp)",
}


@dataclass(frozen=True)
class Column:
    """One column of the Parquet table and where it comes from.

    >>> Column("user_id", "bigint").fields
    ('user_id',)
    >>> Column("event_time", "timestamp").bad
    <Reason.BAD_TIME: 'bad_time'>
    """

    name: str
    type: str
    field_names: tuple[str, ...] = ()  # as in a header, lower case; its own name unless told
    field_pattern: str = ""  # of other names in a header that mean it, where none of those is there
    json: str = ""  # SQL over the parsed object, for JSON lines
    parse: str = ""
    allowed: tuple[str, ...] = ()
    required: bool = True
    free_text: bool = False  # blanks at its ends mean something

    @property
    def fields(self) -> tuple[str, ...]:
        """The header names that mean this column."""
        return self.field_names or (self.name,)

    def place_in(self, header: Sequence[str]) -> int | None:
        """Where it stands among the names of a header; its exact names go before its pattern.

        >>> Column("heat", "int", field_pattern="s194_.+").place_in(["date", "s194_temperature_celsius"])
        1
        """
        named = next((header.index(field) for field in self.fields if field in header), None)
        if named is not None or not self.field_pattern:
            return named
        alike = re.compile(self.field_pattern)
        return next((index for index, name in enumerate(header) if alike.fullmatch(name)), None)

    @property
    def sql(self) -> str:
        """The typed value as SQL, null where the text does not fit the type."""
        return self.parse or _PARSE_BY_TYPE[self.type]

    @property
    def bad(self) -> Reason:
        """The reason of a text that does not fit the type."""
        return Reason.BAD_TIME if self.type == "timestamp" else Reason.BAD_NUMBER


@dataclass(frozen=True)
class DataSet:
    """One entry of the catalogue.

    `first` and `last` are the days within which an event may lie, both included, at `utc_offset_h`; that offset also
    decides to which `day=` directory an event belongs.
    """

    name: str
    title: str
    origin: str
    licence: str
    quirks: tuple[str, ...]
    format: str  # csv, jsonl or lines
    columns: tuple[Column, ...]
    suffixes: tuple[str, ...]
    header: bool = False
    json_schema: str = ""
    first: str = ""
    last: str = ""
    utc_offset_h: int = 0
    has_duplicates: bool = True

    @property
    def timed(self) -> bool:
        """Whether its rows have an event time; if not, the order of the files and their lines is kept."""
        return any(column.name == "event_time" for column in self.columns)

    def describe(self) -> dict[str, object]:
        """The entry as plain values, for `--json`."""
        return {
            "name": self.name,
            "title": self.title,
            "origin": self.origin,
            "licence": self.licence,
            "format": self.format + (" with header" if self.header else ""),
            "columns": [{"name": c.name, "type": c.type, "required": c.required} for c in self.columns],
            "first_day": self.first or None,
            "last_day": self.last or None,
            "utc_offset_h": self.utc_offset_h,
            "deduplicated": self.has_duplicates,
            "quirks": list(self.quirks),
        }
