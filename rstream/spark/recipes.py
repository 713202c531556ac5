"""What the synthesiser writes for each data set: file names, headers, and every field of a row as SQL.

A field is an expression over `c`, the number of the row whose content is shown, and `fault`, null or the reason for
which the row shall be refused. The statistics follow what is published about the real sets: Zipf keys, the shares of
behaviours, drive models and languages, the nine days, the daily rhythm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from rstream.spark.catalogue import DOH_FEATURES, SMART_IDS
from rstream.spark.dataset import Reason
from rstream.spark.dirt import GROUP, Dirt
from rstream.spark.draws import JITTER_S, Draws, densest_rows_per_s, time_steps, time_table, zipf_of
from rstream.spark.words import words_sql

FILE_ROWS = 250_000
_USER_STEP = 611_953  # a prime
_BLANK_AND_ENCODING = ((Reason.BLANK_LINE, 1), (Reason.NOT_UTF8, 1))


@dataclass(frozen=True)
class Recipe:
    """How to make one data set of a given size.

    `steps` are columns computed one after the other, each from those before it; `line` is the clean line made of them.
    """

    dirt: Dirt
    steps: tuple[tuple[str, str], ...]
    line: str
    file_name: Callable[[int], str]
    header: Callable[[int], str] | None = None
    file_rows: int = FILE_ROWS  # a multiple of GROUP, so that no group lies in two files


def line_sql() -> str:
    """SQL for the line as it is written, from the `clean` one: the faults that concern a line as a whole."""
    return f"""case fault
        when '{Reason.BLANK_LINE}' then ''
        when '{Reason.NOT_UTF8}' then cast(concat(cast(clean as binary), X'C328') as string)
        when '{Reason.WRONG_COLUMN_COUNT}' then concat(clean, ',0')
        when '{Reason.BAD_JSON}' then left(clean, 60)
        else clean end"""


def tianchi(rows: int, seed: int) -> Recipe:
    """User behaviour: items and categories by Zipf, users in turn, so that no two clean rows are equal."""
    draws = Draws(seed)
    table = time_table(seed, "2017-11-25", 9, 8)
    # Rows of one second stand near each other in the file: with more users than rows in that stretch, they differ.
    stretch = 4 * JITTER_S * densest_rows_per_s(table, rows)
    users = max(987_994, int(stretch) + 1)
    users += math.gcd(users, _USER_STEP) > 1  # users then come in turn, each once before any comes twice
    item = f"1 + pmod({draws.zipf('item', 4_162_024)} * 2654435769L, 4162024L)"
    # A category belongs to its item, not to the row.
    category = f"1 + pmod({zipf_of(Draws(seed, 'item').unit('category'), 9_439, 1.2)} * 7919L, 9439L)"
    behavior = "case when kind < 895 then 'pv' when kind < 950 then 'cart' when kind < 979 then 'fav' else 'buy' end"
    steps = (*time_steps(table, rows, draws), ("item", item), ("kind", draws.below("behavior", 1000)))
    stray = f"t - if({draws.below('stray', 2)} = 0, 864000L, 315360000L)"
    user = f"(1 + pmod(c * {_USER_STEP}L, {users}L))"
    fields = [
        _unless(Reason.BAD_NUMBER, f"concat('u', {user})", user),
        _unless(Reason.MISSING_VALUE, "''", "item"),
        category,
        _unless(Reason.BAD_VALUE, "'view'", behavior),
        _time("'now'", stray, "t"),
    ]
    faults = [Reason.BAD_NUMBER, Reason.MISSING_VALUE, Reason.BAD_VALUE, Reason.BAD_TIME, Reason.WRONG_COLUMN_COUNT]
    dirt = Dirt(2, (*((reason, 1) for reason in faults), (Reason.TIME_OUT_OF_RANGE, 2), *_BLANK_AND_ENCODING))
    return Recipe(dirt, steps, _csv(fields), lambda file: f"UserBehavior-{file:05}.csv")


_MODELS_TB = {
    "ST4000DM000": 4,
    "ST12000NM0007": 12,
    "HGST HMS5C4040BLE640": 4,
    "TOSHIBA MG07ACA14TA": 14,
    "ST8000NM0055": 8,
    "ST14000NM001G": 14,
    "WDC WUH721414ALE6L4": 14,
    "HGST HUH721212ALN604": 12,
    "ST16000NM001G": 16,
    "TOSHIBA MG08ACA16TA": 16,
}
_FIRST_NEW_DAY = date(2023, 1, 1)  # from here on the header has the places of the drives


def backblaze(rows: int, seed: int) -> Recipe:
    """Drive days: each file is one day of the same drives; the header changes with the year."""
    days = max(4, -(-rows // FILE_ROWS))
    drives = -(-rows // (days * GROUP)) * GROUP
    first = _FIRST_NEW_DAY - timedelta(days=days // 2)
    draws, drive = Draws(seed), Draws(seed, f"pmod(c, {drives}L)")
    first_new_file = (_FIRST_NEW_DAY - first).days
    steps = (
        ("day", f"c div {drives}L"),
        ("model", f"cast({drive.zipf('model', len(_MODELS_TB))} as int) - 1"),
        ("reports", f"pmod({drive.bits('reports')}, 3L)"),
    )
    names, sizes = ", ".join(f"'{name}'" for name in _MODELS_TB), ", ".join(f"{tb}L" for tb in _MODELS_TB.values())
    fields = [
        _time("'2023-02-31'", "'1970-01-01'", f"date_add(date'{first}', cast(day as int))"),
        _unless(Reason.MISSING_VALUE, "''", f"concat('Z', lpad(hex(pmod(c, {drives}L) * 40503L), 9, '0'))"),
        f"array({names})[model]",
        f"array({sizes})[model] * 1000000000000L",
        # One bad day in ten: the failure rate has its spikes too.
        _unless(Reason.BAD_VALUE, "'2'", f"if({draws.below('failure', 100_000)} < if(pmod(day, 10) = 3, 40, 4), 1, 0)"),
    ]
    for place in ("'sac0'", drive.below("vault", 1200), drive.below("pod", 20)):
        # A null is left out of the line altogether, unlike an empty text.
        fields.append(f"if(file < {first_new_file}, null, cast({place} as string))")
    for number in SMART_IDS:
        raw = _smart_raw(number, draws, drive)
        known = f"reports != {number % 3}"  # no drive reports every attribute
        if number == 9:
            raw, known = _unless(Reason.BAD_NUMBER, "'n/a'", raw), "true"
        for value in (drive.below(f"n{number}", 101), raw):
            fields.append(f"if({known}, cast({value} as string), '')")
    fields.append("''")  # an attribute outside the list, as the real files have many
    faults = [Reason.BAD_NUMBER, Reason.MISSING_VALUE, Reason.BAD_VALUE, Reason.BAD_TIME, Reason.WRONG_COLUMN_COUNT]
    dirt = Dirt(2, (*((reason, 1) for reason in (*faults, Reason.TIME_OUT_OF_RANGE)), *_BLANK_AND_ENCODING))

    def header(file: int) -> str:
        start = "date,serial_number,model,capacity_bytes,failure,"
        located = "datacenter,vault_id,pod_id," if file >= first_new_file else ""
        return start + located + ",".join(f"smart_{n}_normalized,smart_{n}_raw" for n in SMART_IDS) + ",smart_255_raw"

    return Recipe(dirt, steps, _csv(fields), lambda file: f"{first + timedelta(days=file)}.csv", header, drives)


def _smart_raw(number: int, draws: Draws, drive: Draws) -> str:
    if number == 9:
        return f"{drive.below('hours', 50_000)} + 24 * day"
    if number in (190, 194):
        return f"20 + {draws.below(f'r{number}', 25)}"
    if number in (5, 187, 188, 197, 198, 199):  # counters of trouble: zero on nearly every drive
        return f"if({drive.below(f's{number}', 50)} = 0, {drive.below(f'r{number}', 400)}, 0)"
    return drive.below(f"r{number}", 200_000_000)


def covid_tweets(rows: int, seed: int) -> Recipe:
    """Hydrated tweets: authors and words by Zipf, ids that carry their time as the real ones do."""
    draws = Draws(seed)
    table = time_table(seed, "2020-03-01", 30, 0)
    steps = (
        *time_steps(table, rows, draws),
        ("ident", "shiftleft(t * 1000L - 1288834974657L, 22) + pmod(c, 4194304L)"),
        ("author", draws.zipf("author", 400_000)),
    )
    when = "date_format(timestamp_seconds(t), \"EEE MMM dd HH:mm:ss '+0000' yyyy\")"
    lang = f"array('en', 'es', 'fr', 'pt', 'und')[cast({draws.zipf('lang', 5, 1.6)} as int) - 1]"
    text = f"concat({words_sql(draws, 6, 22)}, ' #covid19')"
    body = _unless(Reason.MISSING_VALUE, "''", f"concat('\"full_text\": \"', {text}, '\", ')")
    shown = _time("'yesterday'", "'Thu Jan 01 00:00:00 +0000 1970'", when)
    number = _unless(Reason.BAD_NUMBER, "concat(ident, 'x')", "ident")
    tweet = (
        f"""concat('{{"created_at": "', {shown}, '", "id_str": "', {number}, '", ', {body}, '"lang": "', {lang}, """
        f"""'", "user": {{"id_str": "', author, '", "screen_name": "user_', author, '"}}}}')"""
    )
    faults = [Reason.BAD_JSON, Reason.BAD_TIME, Reason.TIME_OUT_OF_RANGE, Reason.BAD_NUMBER, Reason.MISSING_VALUE]
    dirt = Dirt(5, (*((reason, 1) for reason in faults), *_BLANK_AND_ENCODING))
    return Recipe(dirt, steps, tweet, lambda file: f"tweets-{file:05}.jsonl")


def doh(rows: int, seed: int) -> Recipe:
    """Flows: a few busy clients, public resolvers, statistics with the gaps of the real ones."""
    draws = Draws(seed)
    table = time_table(seed, "2020-01-14", 14, 0)
    steps = (*time_steps(table, rows, draws), ("responds", f"{draws.below('responds', 100)} >= 2"))
    fields = [
        f"concat('192.168.20.', 100 + {draws.zipf('client', 120)})",
        f"array('1.1.1.1', '8.8.4.4', '9.9.9.11', '176.103.130.130')[cast({draws.below('server', 4)} as int)]",
        _unless(Reason.BAD_NUMBER, "'https'", "1024 + pmod(c * 31L, 60000L)"),
        "443",
        _time("'14:20 or so'", "'1999-12-31 23:59:59'", "timestamp_seconds(t)"),
    ]
    for name in DOH_FEATURES:
        limit = 100_000 if "Bytes" in name else 1_500
        value = draws.below(name, limit) if "Bytes" in name else draws.fraction(name, limit)
        if name.startswith("ResponseTime"):
            value = f"if(responds, cast({value} as string), '')"
        elif name == "Duration":
            value = _unless(Reason.MISSING_VALUE, "''", value)
        fields.append(value)
    label = f"if({draws.below('label', 4)} = 0, 'DoH', 'NonDoH')"
    fields.append(_unless(Reason.BAD_VALUE, "'maybe'", label))
    identity = ("SourceIP", "DestinationIP", "SourcePort", "DestinationPort", "TimeStamp")
    header = ",".join((*identity, *DOH_FEATURES, "Label"))
    faults = [Reason.BAD_NUMBER, Reason.MISSING_VALUE, Reason.BAD_VALUE, Reason.BAD_TIME, Reason.WRONG_COLUMN_COUNT]
    dirt = Dirt(3, (*((reason, 1) for reason in (*faults, Reason.TIME_OUT_OF_RANGE)), *_BLANK_AND_ENCODING))
    return Recipe(dirt, steps, _csv(fields), lambda file: f"l1-{file:05}.csv", lambda file: header)


def text(rows: int, seed: int) -> Recipe:
    """Lines of words by Zipf."""
    assert rows > 0
    line = words_sql(Draws(seed), 4, 16)
    return Recipe(Dirt(0, _BLANK_AND_ENCODING), (), line, lambda file: f"lines-{file:05}.txt")


RECIPES: dict[str, Callable[[int, int], Recipe]] = {
    "tianchi": tianchi,
    "backblaze": backblaze,
    "covid_tweets": covid_tweets,
    "doh": doh,
    "text": text,
}


def _unless(fault: Reason, bad: str, good: str) -> str:
    """SQL for a field's text: the good one, or the bad one where that fault is wanted."""
    return f"if(fault <=> '{fault}', {bad}, cast({good} as string))"


def _time(bad: str, stray: str, good: str) -> str:
    return _unless(Reason.BAD_TIME, bad, _unless(Reason.TIME_OUT_OF_RANGE, f"cast({stray} as string)", good))


def _csv(fields: list[str]) -> str:
    return f"concat_ws(',', {', '.join(fields)})"
