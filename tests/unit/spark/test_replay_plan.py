"""What a replay sends and when: rows dealt to partitions, profiles, and refusals before anything is sent."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from rstream.errors import DataError
from rstream.lab.catalogue import experiments, find
from rstream.spark.pace import Pace
from rstream.spark.profile import Profile, parse_profile
from rstream.spark.replay_report import PartitionReport, summary
from rstream.spark.rows import check_file, open_table, read_partition

WANTED = [("n", "int"), ("word", "str"), ("event_time", "float")]


def table(folder: Path, *parts: range, nulls: bool = False) -> Path:
    """A file for each range of numbers, with small row groups."""
    for at, numbers in enumerate(parts):
        columns: dict[str, Any] = {
            "n": pyarrow.array([None if nulls and n == 3 else n for n in numbers], pyarrow.int64()),
            "word": [f"w{n}" for n in numbers],
            "event_time": pyarrow.array(
                [dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n) for n in numbers],
                pyarrow.timestamp("us", "UTC"),
            ),
            "nested": pyarrow.array([[n] for n in numbers], pyarrow.list_(pyarrow.int64())),
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"part-{at}.parquet", row_group_size=7)
    return folder


def ns(found: Any) -> list[int]:
    return [row[0] for rows, _ in found for row in rows]


@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_partitions_deal_the_rows_out_one_by_one_and_find_any_place_again(tmp_path: Path, partitions: int) -> None:
    found = open_table(str(table(tmp_path, range(20), range(20, 21), range(21, 60))), (), WANTED)
    assert found.total == 60
    for partition in range(partitions):
        mine = list(range(60))[partition::partitions]
        for skip in (0, 1, 5, len(mine) - 1, len(mine), len(mine) + 3):
            assert ns(read_partition(found, partition, partitions, skip)) == mine[skip:]


def test_rows_are_tuples_with_times_in_seconds(tmp_path: Path) -> None:
    found = open_table(str(table(tmp_path, range(2))), (), WANTED)
    [(rows, times)] = list(read_partition(found, 0, 1, 0))
    start_s = dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()
    assert rows == [(0, "w0", start_s), (1, "w1", start_s + 1)]
    assert list(times) == [start_s, start_s + 1]


def test_the_fingerprint_names_rows_columns_and_partitions(tmp_path: Path) -> None:
    source = str(table(tmp_path, range(20)))
    found = open_table(source, ("n",), None)
    assert found.fingerprint(2) == open_table(source, ("n",), None).fingerprint(2)
    assert found.fingerprint(2) != found.fingerprint(3)
    assert found.fingerprint(2) != open_table(source, ("n", "word"), None).fingerprint(2)
    table(tmp_path, range(20), range(20, 30))
    assert found.fingerprint(2) != open_table(source, ("n",), None).fingerprint(2)


@pytest.mark.parametrize(
    ("columns", "wanted", "message"),
    [
        ((), [("m", "int")], "has no column 'm'; its columns: n, word, event_time, nested"),
        ((), [("n", "str")], r"column 'n' is int \(int64\), the topology wants 'n': str"),
        ((), [("n", "int")], "column 'n' lacks 1 values, the topology wants 'n': int"),
        (("n", "word"), [("n", "int")], r"the topology wants 1 columns \(n\), --columns names 2"),
        ((), None, r"column 'nested' is of type list<.*>, which cannot be sent; name others with --columns"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    tmp_path: Path, columns: tuple[str, ...], wanted: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        open_table(str(table(tmp_path, range(5), nulls=True)), columns, wanted)


def test_missing_values_and_whole_numbers_are_taken_where_the_topology_says_so(tmp_path: Path) -> None:
    source = str(table(tmp_path, range(5), nulls=True))
    found = open_table(source, (), [("n", "float | None")])
    assert ns(read_partition(found, 0, 1, 0)) == [0, 1, 2, None, 4]


def test_no_files_and_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no Parquet file there"):
        open_table(str(tmp_path), (), None)
    table(tmp_path, range(0))
    with pytest.raises(DataError, match="hold no rows, so there is nothing to replay"):
        open_table(str(tmp_path), ("n",), None)
    with pytest.raises(DataError, match="no such file or directory"):
        open_table(str(tmp_path / "nowhere"), (), None)


def test_a_column_of_event_time_is_checked_unless_none_is_named_and_none_is_there(tmp_path: Path) -> None:
    source = str(table(tmp_path, range(5)))
    assert open_table(source, ("n",), None).times == "event_time"
    assert open_table(source, ("word",), None, "n").times == "n"
    pyarrow.parquet.write_table(pyarrow.table({"n": [6]}), tmp_path / "part-1.parquet")
    with pytest.raises(DataError, match=r"part-1\.parquet has no column 'event_time' of event time; .* columns: n"):
        open_table(source, ("n",), None)
    (tmp_path / "part-0.parquet").unlink()
    assert open_table(source, ("n",), None).times == ""
    for named in ("event_time", "evnt_time"):
        with pytest.raises(DataError, match=f"has no column '{named}' of event time; name another with --time-column"):
            open_table(source, ("n",), None, named)


def test_a_column_of_event_time_that_holds_no_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 'word' of event time is of type string, wanted a timestamp or a numb"):
        open_table(str(table(tmp_path, range(5))), ("n",), None, "word")


def test_a_row_out_of_order_is_found(tmp_path: Path) -> None:
    whole = open_table(str(table(tmp_path, range(30))), (), WANTED)
    start_s = dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()
    assert check_file(whole, 0) == (start_s, start_s + 29, "")
    pyarrow.parquet.write_table(
        pyarrow.concat_tables([pyarrow.parquet.read_table(whole.files[0])] * 2), whole.files[0], row_group_size=9
    )
    assert check_file(whole, 0)[2].endswith("row 30 is earlier in event_time than the row before it")


def test_a_profile_says_when_each_record_is_due() -> None:
    profile = parse_profile("10@0s,0@2s,40@5s")
    assert profile.due_s(np.arange(0, 60, 10)).tolist() == [0.0, 1.0, 5.0, 5.25, 5.5, 5.75]
    assert profile.records(6.0) == 60.0
    assert parse_profile("E10") == Profile((0.0, 100.0, 160.0), (1800.0, 3600.0, 2700.0))


def test_a_table_of_rates_is_a_profile(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("time_s,rate\n0,100\n10,200\n20,50\n")
    text = str(tmp_path / "rates.csv")
    assert parse_profile(text) == Profile((0.0, 10.0, 20.0), (100.0, 200.0, 50.0))
    assert parse_profile(text, time_scale=0.5).times_s == (0.0, 5.0, 10.0)


def test_a_ramp_sends_what_lies_below_it() -> None:
    """The loads of PSPS's experiments are straight lines from point to point."""
    [case] = find("P0").cases()
    [trace] = case.setup.traces
    assert trace.linear
    profile = parse_profile("P0")
    for until_s in (5.0, 10.0, 100.0, trace.end_s):
        times = [*(time for time in trace.times_s if time < until_s), until_s]
        assert profile.records(until_s) == pytest.approx(
            np.trapezoid([trace.at(time) for time in times], times), rel=0.01
        )
    assert profile.due_s(np.array([profile.records(10.0)])) == pytest.approx(10.0)


def test_a_case_of_an_experiment_has_the_load_of_that_case() -> None:
    assert parse_profile("E1/(3, 10, 11) at 1800") == Profile((0.0,), (1800.0,))
    assert parse_profile("E7/top_n") != parse_profile("E7/commcount")
    with pytest.raises(DataError, match="E7 has no case 'dns'; it has: commcount, top_n"):
        parse_profile("E7/dns")


CASES = [(name, case.name) for name in experiments() for case in find(name).cases()]


@pytest.mark.parametrize(("name", "case"), CASES, ids=lambda text: text)
def test_every_load_of_an_experiment_is_a_profile_by_its_name(name: str, case: str) -> None:
    cases = {each.name: each.setup.traces[0] for each in find(name).cases()}
    profile, trace = parse_profile(f"{name}/{case}"), cases[case]
    rates = [trace.at(time) for time in trace.times_s]
    assert [profile.rates[profile.times_s.index(time)] for time in trace.times_s] == pytest.approx(rates)
    if len(set(cases.values())) == 1:
        assert parse_profile(name) == profile
    else:
        with pytest.raises(DataError, match=f"the cases of {name} differ; name one"):
            parse_profile(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "wanted a number of records/s, steps like"),
        ("10@x", "wanted a number of records/s, steps like"),
        ("-5", "numbers of 0 or more"),
        ("nan", "numbers of 0 or more"),
        ("0", "the last rate is 0 records/s, so the replay would never end"),
        ("5@3s", "it must begin at 0s, got 3s"),
        ("5@0s,6@0s", "each time must be later than the one before"),
        ("P10", "experiment P10 has no load over time"),
        ("E1", "the cases of E1 differ; name one: E1/"),
        ("nowhere.csv", "cannot be read"),
    ],
)
def test_an_impossible_profile_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_profile(text)


def test_by_the_rows_own_times_an_hour_takes_a_minute() -> None:
    pace = Pace(speed=60.0, origin_s=1000.0)
    assert pace.due_s(np.arange(2), np.array([1000.0, 4600.0])).tolist() == [0.0, 60.0]


def test_the_report_holds_what_was_achieved_against_what_was_asked() -> None:
    pace = Pace(Profile((0.0, 4.0), (100.0, 200.0)))
    slow = Counter(dict.fromkeys(range(4), 50) | dict.fromkeys(range(4, 10), 60))
    reports = [PartitionReport(p, 0, 0.0, 560, slow, 3.0, 3.0, 10.0) for p in range(2)]
    told = summary(reports, pace)
    assert told["steps"] == [
        {"from_s": 0.0, "asked_per_s": 100.0, "achieved_per_s": 100.0},
        {"from_s": 4.0, "asked_per_s": 200.0, "achieved_per_s": 120.0},
    ]
    assert (told["sent"], told["took_s"], told["late_s"], told["waited_s"]) == (1120, 10.0, 3.0, 3.0)
    assert (told["achieved_per_s"], told["asked_per_s"]) == (112.0, 160.0)
