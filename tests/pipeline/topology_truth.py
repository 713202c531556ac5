"""What each ready topology must give for a table: its options, its results in plain form, and DuckDB's answer.

DuckDB reads the same Parquet files and shares no code with what is tested.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rstream import Topology
from rstream.operators.queue_sinks import take
from rstream.topologies import twitter, twitter_complex

Results = Mapping[str, list[Any]]
DAY_S = 86_400


@dataclass(frozen=True)
class Truth:
    """One topology, the data set that it reads, and what to compare."""

    name: str
    data: str
    sql: str
    """Gives the rows that are wanted; `{table}` stands for the input."""
    results: Callable[[Results], list[Any]]
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, table: Path, **options: Any) -> Topology:
        """The topology on a table."""
        module = importlib.import_module(f"rstream.topologies.{self.name}")
        topology: Topology = module.build(table=str(table), **{**self.options, **options})
        return topology


def _top(results: Results) -> list[Any]:
    return [tuple(pair) for _, pair in sorted(results["top"])]


def _stored(results: Results) -> list[Any]:
    return [tuple(row) for row in results["store"]]


def _totals(results: Results) -> list[Any]:
    return [(model, int(start), int(end), *numbers) for model, start, end, numbers in results["store"]]


def _among(words: Any) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


_WORDS = """select w, count(*) n from (
    select unnest(string_split_regex(lower(line), '\\s+')) w from {table}
) where w <> '' group by w order by n desc, w limit 10"""

_COUNTS = """select w, count(*) n from (
    select trim(unnest(string_split_regex(lower(line), '\\s+')), '.,;:!?"''()') w from {table}
) where w <> '' group by w"""

_TOPIC = "list_filter(string_split_regex(lower(text), '\\s+'), lambda w: w in ({words}))[1]"
_TWEETS = (
    "select id, case "
    + _TOPIC.replace("{words}", _among(twitter.TOPICS))
    + " "
    + " ".join(f"when '{word}' then '{topic}'" for word, topic in twitter.TOPICS.items())
    + " else 'other' end, case when right(author, 1) in ('0', '2', '4', '6', '8') then 'public' else 'private' end"
    + " from {table}"
)
_NEWS, _OPINIONS = _among(twitter_complex.NEWS), _among(twitter_complex.OPINIONS)
_COMPLEX = f"""with t as (
    select id, string_split_regex(lower(trim(text)), '\\s+') w from {{table}}
), s as (
    select id, len(list_filter(w, lambda x: x in ({_NEWS}))) news,
        len(list_filter(w, lambda x: x in ({_OPINIONS}))) opinions,
        length(array_to_string(w, ' ')) length from t
) select id,
    case when news > 0 then 'news' when opinions > 0 then 'opinion' else 'other' end,
    case when news > 0 then news else 2 * opinions end,
    case when length < 40 then 'short' when length >= 80 then 'long' else 'medium' end from s"""

_FLOWS = """with f as (select source_ip, destination_port port,
        case when duration > 0 then trunc((flow_bytes_sent + flow_bytes_received) / duration) else 0 end rate,
        case when flow_bytes_sent > 0 then flow_bytes_received / flow_bytes_sent else 0 end ratio from {table})
    select source_ip, port, cast(rate as bigint),
        case when port = 53 then 'dns' when port <> 443 then 'other' when ratio >= 2 then 'browsing'
             when ratio < 1 then 'tunnel' else 'doh' end from f"""

_EVENTS = """with e as (select model, serial_number, failure, smart_5_raw + smart_187_raw errors, smart_194_raw heat,
    cast(epoch(event_time) as bigint) t from {table} where smart_5_raw + smart_187_raw + smart_194_raw is not null)"""
_TOTALS = f"""{_EVENTS}, s as (select distinct unnest([t - 2 * {DAY_S}, t - {DAY_S}, t]) start from e)
    select model, start, start + 3 * {DAY_S}, count(*), sum(failure), sum(errors) from e
    join s on t >= start and t < start + 3 * {DAY_S} group by model, start"""
ALERTS = f"""{_EVENTS}, m as (select model, t, avg(heat) mean, stddev_pop(heat) deviation from e group by model, t)
    select model, serial_number, heat, t from e join m using (model, t) where abs(heat - mean) > 2 * deviation"""

TRUTHS = {
    truth.name: truth
    for truth in (
        Truth(
            "commcount",
            "tianchi",
            "select item_id, count(*) from {table} where behavior = 'pv' group by 1",
            lambda results: results["counts"],
        ),
        Truth("wordcount", "text", _COUNTS, lambda results: results["top"]),
        Truth("top_n", "text", _WORDS, _top, {"split": 3, "count": 2}),
        Truth("top_n_wide", "text", _WORDS, _top, {"read": 2}),
        Truth("debs2024", "backblaze", _TOTALS, _totals),
        Truth("twitter", "covid_tweets", _TWEETS, _stored),
        Truth("twitter_complex", "covid_tweets", _COMPLEX, _stored),
        Truth("dns", "doh", _FLOWS, _stored),
    )
}


def alerts(path: Path) -> list[Any]:
    """What stands in an alert queue, in plain form."""
    return sorted((model, drive, heat, int(at)) for model, drive, heat, at in take(path, limit=1_000_000))


def totals(path: Path) -> list[Any]:
    """What stands in the database of totals."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("select model, start_s, end_s, events, failures, errors from totals").fetchall()
    return [(model, int(start), int(end), *numbers) for model, start, end, *numbers in rows]
