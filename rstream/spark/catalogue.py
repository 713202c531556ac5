"""The data sets that rstream knows: schema, origin, licence note and quirks, one entry each.

The real files cannot be shipped: their owners give them out under terms of their own. The entries are written for
the real formats, and `synth` makes files of the same shape.
"""

from __future__ import annotations

import difflib
import re

from rstream.errors import DataError
from rstream.spark.dataset import Column, DataSet

CSV_SUFFIXES = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")

# The drive attributes of the DEBS 2024 challenge, out of some ninety that Backblaze has published over the years.
SMART_IDS: tuple[int, ...] = (
    *(1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 173, 174, 183, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198),
    *(199, 200, 220, 222, 223, 226, 240, 241, 242),
)

DOH_FLOW = ("Duration", "FlowBytesSent", "FlowSentRate", "FlowBytesReceived", "FlowReceivedRate")
DOH_STATISTICS = (
    *("Variance", "StandardDeviation", "Mean", "Median", "Mode"),
    *("SkewFromMedian", "SkewFromMode", "CoefficientofVariation"),
)
DOH_FEATURES = DOH_FLOW + tuple(
    group + statistic for group in ("PacketLength", "PacketTime", "ResponseTimeTime") for statistic in DOH_STATISTICS
)
DOH_LABELS = ("DoH", "NonDoH", "Benign", "Malicious", "True", "False")

# A number of seconds beyond the calendar would stop the job instead of being one bad row.
_UNIX_SECONDS = "timestamp_seconds(if(abs(try_cast({x} as bigint)) < 200000000000, try_cast({x} as bigint), null))"
# Spark parses no names of weekdays, so `Wed ` is cut off; the second form is that of Twitter's later interface.
_TWEET_TIME = "coalesce(try_to_timestamp(substr({x}, 5), 'MMM dd HH:mm:ss Z yyyy'), try_cast({x} as timestamp))"


def snake(name: str) -> str:
    """A header name in the spelling of our tables.

    >>> snake("PacketLengthCoefficientofVariation"), snake("SourceIP")
    ('packet_length_coefficient_of_variation', 'source_ip')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.replace("tofV", "tOfV")).lower()


def _smart(number: int) -> tuple[Column, Column]:
    """The two columns of a drive attribute; DEBS files have its raw value alone, as `sNUMBER_` and any description."""
    return (
        Column(f"smart_{number}_normalized", "bigint", required=False),
        Column(f"smart_{number}_raw", "bigint", field_pattern=f"s{number}_.+", required=False),
    )


TIANCHI = DataSet(
    name="tianchi",
    title="User behaviour on Taobao",
    origin="Alibaba Tianchi, data set 649 (UserBehavior.csv, about 100 M rows)",
    licence="Tianchi's terms: research use, registration needed, no redistribution",
    quirks=(
        "no header; five columns: user, item, category, behaviour, unix time in seconds",
        "some rows lie outside the stated nine days (of Beijing time); they go to quarantine",
        "ordered by user, not by time; a few rows are there twice",
    ),
    format="csv",
    columns=(
        Column("user_id", "bigint"),
        Column("item_id", "bigint"),
        Column("category_id", "bigint"),
        Column("behavior", "string", allowed=("pv", "buy", "cart", "fav")),
        Column("event_time", "timestamp", field_names=("timestamp",), parse=_UNIX_SECONDS),
    ),
    suffixes=CSV_SUFFIXES,
    first="2017-11-25",
    last="2017-12-03",
    utc_offset_h=8,
)

BACKBLAZE = DataSet(
    name="backblaze",
    title="Daily SMART telemetry of hard drives",
    origin="Backblaze drive statistics, one CSV per day in quarterly zips; the telemetry of the DEBS 2024 challenge",
    licence="free to use with Backblaze named as the source; may not be sold",
    quirks=(
        "the header differs by year: columns are found by name, an absent optional one is null, "
        "and attributes outside the DEBS 2024 list are named in the manifest as ignored",
        "the zips must be unpacked first: Spark cannot read a zip",
        "the DEBS files have raw values only, in columns named s5_reallocated_sector_count where Backblaze says "
        "smart_5_raw; they write the date as 2023-04-01T00:00:00.000000 and whole numbers as 100.0",
        "capacity_bytes is -1 where the drive did not answer",
    ),
    format="csv",
    header=True,
    columns=(
        Column("event_time", "timestamp", field_names=("date",)),
        Column("serial_number", "string"),
        Column("model", "string"),
        Column("capacity_bytes", "bigint", required=False),
        Column("failure", "int", allowed=("0", "1")),
        Column("datacenter", "string", required=False),
        Column("vault_id", "bigint", required=False),
        Column("pod_id", "bigint", required=False),
        *(column for number in SMART_IDS for column in _smart(number)),
    ),
    suffixes=CSV_SUFFIXES,
    first="2013-04-10",
    last="2035-12-31",
)

COVID_TWEETS = DataSet(
    name="covid_tweets",
    title="Tweets about COVID-19, hydrated",
    origin="public lists of tweet ids (for example Panacea Lab's), hydrated to JSON lines by the user",
    licence="the ids are free for research; the tweets fall under X's developer terms and may not be passed on",
    quirks=(
        "both shapes of tweet are read: id_str/full_text/user.screen_name and id/text/author_id",
        "hydrating in overlapping lists yields the same tweet more than once",
        "deleted tweets are simply absent; a killed hydrator leaves half a line at the end",
    ),
    format="jsonl",
    json_schema="id_str string, id string, created_at string, full_text string, text string, lang string, "
    "author_id string, user struct<screen_name: string, id_str: string>, author struct<username: string>",
    columns=(
        Column("event_time", "timestamp", json="created_at", parse=_TWEET_TIME),
        Column("id", "bigint", json="coalesce(id_str, id)"),
        Column("author", "string", json="coalesce(user.screen_name, author.username, author_id, user.id_str)"),
        Column("lang", "string", json="lang", required=False),
        Column("text", "string", json="coalesce(full_text, text)", free_text=True),
    ),
    suffixes=(".jsonl", ".jsonl.gz", ".jsonl.bz2", ".jsonl.zst", ".json", ".json.gz"),
    first="2019-12-01",
    last="2024-12-31",
)

DOH = DataSet(
    name="doh",
    title="DNS over HTTPS traffic, flow features",
    origin="CIRA-CIC-DoHBrw-2020, Canadian Institute for Cybersecurity (l1-*.csv, l2-*.csv)",
    licence="free for research with the data set's paper cited",
    quirks=(
        "the label column is called Label or DoH",
        "response-time statistics are empty for flows without a response",
        "a skew of -10 is DoHLyzer's mark for a standard deviation of zero",
        "the files of layer 2 repeat flows of layer 1 under another label: ingest one layer at a time",
    ),
    format="csv",
    header=True,
    columns=(
        Column("event_time", "timestamp", field_names=("timestamp",)),
        Column("source_ip", "string", field_names=("sourceip",)),
        Column("destination_ip", "string", field_names=("destinationip",)),
        Column("source_port", "int", field_names=("sourceport",)),
        Column("destination_port", "int", field_names=("destinationport",)),
        *(
            Column(snake(name), "double", field_names=(name.lower(),), required=not name.startswith("ResponseTime"))
            for name in DOH_FEATURES
        ),
        Column("label", "string", field_names=("label", "doh"), allowed=DOH_LABELS),
    ),
    suffixes=CSV_SUFFIXES,
    first="2019-01-01",
    last="2021-12-31",
)

TEXT = DataSet(
    name="text",
    title="Lines of text, for WordCount",
    origin="any text files in UTF-8",
    licence="that of the files",
    quirks=(
        "no event time: the order of the files' names and of their lines is kept",
        "equal lines are data, not duplicates; blank lines go to quarantine",
    ),
    format="lines",
    columns=(Column("line", "string", free_text=True),),
    suffixes=(".txt", ".txt.gz", ".txt.bz2", ".txt.zst", ".text", ".md"),
    has_duplicates=False,
)

SETS: dict[str, DataSet] = {entry.name: entry for entry in (TIANCHI, BACKBLAZE, COVID_TWEETS, DOH, TEXT)}


def find(name: str) -> DataSet:
    """The entry of that name; refuses an unknown one with the nearest known name.

    >>> find("doh").title
    'DNS over HTTPS traffic, flow features'
    >>> find("tiancchi")
    Traceback (most recent call last):
    rstream.errors.DataError: data set 'tiancchi' is not known, did you mean 'tianchi'? ...
    """
    if name in SETS:
        return SETS[name]
    near = difflib.get_close_matches(name.lower(), SETS, n=1, cutoff=0.4)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    raise DataError(f"data set {name!r} is not known{hint} the catalogue has {', '.join(SETS)}")
