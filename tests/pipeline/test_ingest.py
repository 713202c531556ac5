"""Hand-made dirt: every line ends as a row, a counted duplicate or a row of the quarantine table."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from rstream.errors import DataError
from rstream.testing import run as run_test
from tests.pipeline.conftest import Ingest, quarantined, query, table
from tests.pipeline.topology_truth import TRUTHS

T = 1511600000  # within the nine days of the set
GOOD = [f"{user},{100 + user},7,pv,{T + user}" for user in range(1, 11)]
HEADER = "date,serial_number,model,capacity_bytes,failure,smart_9_raw"
DEBS_HEADER = (
    "date,serial_number,model,failure,vault_id,s1_read_error_rate,s2_throughput_performance,"
    "s3_spin_up_time,s4_start_stop_count,s5_reallocated_sector_count,"
    "s7_seek_error_rate,s8_seek_time_performance,s9_power_on_hours,s10_spin_retry_count,s12_power_cycle_count,"
    "s173_wear_leveling_count,s174_unexpected_power_loss_count,s183_sata_downshift_count,"
    "s187_reported_uncorrectable_errors,s188_command_timeout,s189_high_fly_writes,s190_airflow_temperature_cel,"
    "s191_g_sense_error_rate,s192_power_off_retract_count,s193_load_unload_cycle_count,s194_temperature_celsius,"
    "s195_hardware_ecc_recovered,s196_reallocated_event_count,s197_current_pending_sector,s198_offline_uncorrectable,"
    "s199_udma_crc_error_count,s200_multi_zone_error_rate,s220_disk_shift,s222_loaded_hours,s223_load_retry_count,"
    "s226_load_in_time,s240_head_flying_hours,s241_total_lbas_written,s242_total_lbas_read"
)
"""That of the public files of the DEBS 2024 challenge."""


def write(path: Path, lines: list[str], encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode(encoding))


def test_every_kind_of_dirt_is_counted_with_its_reason(run_ingest: Ingest, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw / "good.csv", GOOD)
    write(raw / "again.csv", [GOOD[0], GOOD[1], GOOD[1]])
    write(raw / "columns.csv", ["1,2,3,pv", f"1,2,3,pv,{T},9", '1,2,"3,pv,9'])
    write(
        raw / "numbers.csv", [f"x,2,3,pv,{T}", f"1,2.5,3,pv,{T}", f"1,99999999999999999999,3,pv,{T}", "1,2,3,pv,noon"]
    )
    write(raw / "values.csv", [f"1,2,3,look,{T}", f"1,,3,pv,{T}", "1,2,3,pv,12", "1,2,3,pv,999999999999999999"])
    (raw / "empty.csv").touch()
    write(raw / "latin.csv", [f"1,2,3,pv,{T}é"], encoding="latin-1")
    write(raw / "wide.csv", ["1,2,3,pv,1511600000"], encoding="utf-16")
    write(raw / "marked.csv", [f"501,2,3,buy,{T}"], encoding="utf-8-sig")
    write(raw / "odd name + 100% [1].csv", [f"601,2,3,fav,{T}", "bad"])
    whole = gzip.compress(b"".join(f"{7000 + n},{n * n % 1009},3,pv,{T}\n".encode() for n in range(5000)))
    (raw / "whole.csv.gz").write_bytes(whole)
    (raw / "half.csv.gz").write_bytes(whole[: len(whole) // 2])
    (raw / "README").write_text("not data\n")

    manifest = run_ingest("tianchi", raw, tmp_path / "table")

    lines = {entry["name"]: entry["lines"] for entry in manifest["sources"]}
    # UTF-16 ends its lines with the bytes 0A 00, of which the second starts a line of its own.
    assert lines.pop("wide.csv") == 2
    wanted = "again 3, columns 3, empty 0, good 10, latin 1, marked 1, numbers 4, odd name + 100% [1] 2, values 4"
    assert lines == {"half.csv.gz": 0, "whole.csv.gz": 5000} | {
        f"{file}.csv": int(count) for file, _, count in (entry.rpartition(" ") for entry in wanted.split(", "))
    }
    assert manifest["rows"] == 10 + 1 + 1 + 5000
    assert manifest["duplicates"] == 3
    assert manifest["quarantined_by_reason"] == {
        "bad_number": 3,
        "bad_time": 2,
        "bad_value": 1,
        "missing_value": 1,
        "not_utf8": 3,
        "time_out_of_range": 1,
        "wrong_column_count": 4,
    }
    assert manifest["lines"] == manifest["rows"] + manifest["duplicates"] + manifest["quarantined"]
    assert [(file["name"], file["reason"]) for file in manifest["files_refused"]] == [
        ("half.csv.gz", "half_written_file")
    ]
    assert manifest["files_skipped"] == ["README"]
    assert quarantined(tmp_path / "table") == manifest["quarantined_by_reason"] | {"half_written_file": 1}
    [(rows, buyers)] = query(
        f"select count(*), count(*) filter (behavior = 'buy' and user_id = 501) from {table(tmp_path / 'table')}"
    )
    assert (rows, buyers) == (5012, 1)
    raws = query(f"select file, raw from read_parquet('{tmp_path}/table/quarantine/*.parquet')")
    assert ("latin.csv", f"1,2,3,pv,{T}é".encode("latin-1")) in raws, "the bytes are kept as they came"
    assert ("odd name + 100% [1].csv", b"bad") in raws


def test_columns_are_found_by_name_and_a_file_without_one_is_quarantined(run_ingest: Ingest, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(raw / "2014.csv", [HEADER, "2014-01-01,A1,M,1000,0,5", "2014-01-01,A2,M,-1,1,", "2014-01-01,A3,M,1,0,x"])
    write(
        raw / "2023.csv",
        [
            "model,date,failure,vault_id,serial_number,capacity_bytes,smart_9_raw,smart_255_raw",
            "M,2023-01-01,0,12,A1,1000,7,1",
            "M,2023-04-01T00:00:00.000000,0,12,A1,1000,8.0,1",
        ],
    )
    write(raw / "cut.csv", ["date,model,capacity_bytes,failure", "2014-01-02,M,1000,0", "2014-01-02,M,1000,1"])

    manifest = run_ingest("backblaze", raw, tmp_path / "table")

    assert manifest["rows"] == 4
    assert manifest["quarantined_by_reason"] == {"bad_number": 1, "missing_column": 2}
    assert manifest["columns_ignored"] == ["smart_255_raw"]
    fields = "day::varchar, serial_number, capacity_bytes, failure, vault_id, smart_9_raw"
    assert query(f"select {fields} from {table(tmp_path / 'table')} order by 1, 2") == [
        ("2014-01-01", "A1", 1000, 0, None, 5),
        ("2014-01-01", "A2", -1, 1, None, None),
        ("2023-01-01", "A1", 1000, 0, 12, 7),
        ("2023-04-01", "A1", 1000, 0, 12, 8),
    ]
    [(detail,)] = query(
        f"select distinct detail from read_parquet('{tmp_path}/table/quarantine/*.parquet')"
        " where reason = 'missing_column'"
    )
    assert detail == "serial_number"


def test_the_files_of_the_debs_challenge_keep_their_attributes_and_reach_their_topology(
    run_ingest: Ingest, tmp_path: Path
) -> None:
    def drive(serial: str, failure: int, **values: float) -> str:
        attributes = [str(values.get(name.partition("_")[0], "")) for name in DEBS_HEADER.split(",")[5:]]
        return ",".join(["2023-04-01T00:00:00.000000", serial, "M", str(failure), "1122.0", *attributes])

    lines = [drive("A", 0, s5=3.0, s187=4.0, s194=21.0, s242=15372280616.0), drive("B", 1, s5=0.0, s187=0.0, s194=25.0)]
    write(tmp_path / "raw" / "debs.csv", [DEBS_HEADER, *lines, drive("C", 0, s5=1.0, s194=30.0)])

    manifest = run_ingest("backblaze", tmp_path / "raw", tmp_path / "table")

    assert (manifest["rows"], manifest["columns_ignored"]) == (3, [])
    fields = "serial_number, vault_id, smart_5_raw, smart_187_raw, smart_194_raw, smart_242_raw, smart_5_normalized"
    assert query(f"select {fields} from {table(tmp_path / 'table')} order by 1") == [
        ("A", 1122, 3, 4, 21, 15372280616, None),
        ("B", 1122, 0, 0, 25, None, None),
        ("C", 1122, 1, None, 30, None, None),
    ]
    day_s = 1680307200
    truth = TRUTHS["debs2024"]
    came = truth.results(run_test(truth.build(tmp_path / "table")))
    # Of C one value is not there: that row alone is filtered out.
    assert sorted(came) == [("M", day_s - n * 86_400, day_s + (3 - n) * 86_400, 2, 1, 7) for n in (2, 1, 0)]


def test_rows_that_differ_only_in_which_column_is_empty_are_not_duplicates(run_ingest: Ingest, tmp_path: Path) -> None:
    header = "date,serial_number,model,failure,smart_5_raw,smart_9_raw"
    write(tmp_path / "raw" / "a.csv", [header, "2014-01-01,A,M,0,3,", "2014-01-01,A,M,0,,3", "2014-01-01,A,M,0,,3"])
    manifest = run_ingest("backblaze", tmp_path / "raw", tmp_path / "table")
    assert (manifest["rows"], manifest["duplicates"]) == (2, 1)


def test_both_shapes_of_tweet_are_read(run_ingest: Ingest, tmp_path: Path) -> None:
    write(
        tmp_path / "tweets.jsonl",
        [
            '{"created_at": "Wed Mar 25 20:10:30 +0000 2020", "id_str": "12", "full_text": "a, \\"b\\"\\n c ", '
            '"user": {"screen_name": "ann"}}',
            '{"created_at": "2020-03-25T20:10:29.000Z", "id": "11", "text": "first", "author_id": "9", "lang": "en"}',
            '{"created_at": "2020-03-25T20:10:29.000Z", "id": "13", "author_id": "9"}',
            '{"created_at": "2020-03-25T20:1',
        ],
    )
    manifest = run_ingest("covid_tweets", tmp_path / "tweets.jsonl", tmp_path / "table")
    assert manifest["quarantined_by_reason"] == {"bad_json": 1, "missing_value": 1}
    rows = query(f"select id, author, lang, text, epoch(event_time)::bigint from {table(tmp_path / 'table')}")
    assert rows == [(11, "9", "en", "first", 1585167029), (12, "ann", None, 'a, "b"\n c ', 1585167030)]


def test_a_second_run_changes_nothing_and_an_added_file_is_taken_in(run_ingest: Ingest, tmp_path: Path) -> None:
    raw, target = tmp_path / "raw", tmp_path / "table"
    write(raw / "a.csv", GOOD[:6])
    first = run_ingest("tianchi", raw, target)
    before = {file: (file.stat().st_ino, file.read_bytes()) for file in target.rglob("*") if file.is_file()}
    second = run_ingest("tianchi", raw, target)
    after = {file: (file.stat().st_ino, file.read_bytes()) for file in target.rglob("*") if file.is_file()}
    assert (first["status"], second["status"]) == ("ingested", "unchanged")
    assert before == after

    next(target.glob("data/**/*.parquet")).unlink()
    assert run_ingest("tianchi", raw, target)["status"] == "ingested", "a table that lost a file is made anew"

    write(raw / "b.csv", GOOD[4:])
    third = run_ingest("tianchi", raw, target)
    assert (third["status"], third["lines"], third["rows"], third["duplicates"]) == ("ingested", 12, 10, 2)
    assert query(f"select count(*) from {table(target)}") == [(10,)]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [], "nothing is left beside it"


def test_the_same_source_gives_the_same_bytes_in_another_place(run_ingest: Ingest, tmp_path: Path) -> None:
    write(tmp_path / "raw" / "a.csv", GOOD)
    write(tmp_path / "raw" / "b.csv", ["broken", *GOOD[:3]])
    one, two = (run_ingest("tianchi", tmp_path / "raw", tmp_path / name) for name in ("one", "two"))
    assert one["data"] == two["data"]
    assert one["quarantine"] == two["quarantine"]


def test_a_pattern_a_file_and_a_uri_name_the_same_data(run_ingest: Ingest, tmp_path: Path) -> None:
    write(tmp_path / "raw" / "deep" / "a.txt", ["to be", "or not"])
    write(tmp_path / "raw" / "b.log", ["to be"])
    ways = ("raw/deep/*.txt", "raw/deep/a.txt", "raw")
    for number, source in enumerate([*(f"{tmp_path}/{way}" for way in ways), f"file://{tmp_path}/raw/deep"]):
        assert run_ingest("text", source, tmp_path / f"table{number}")["rows"] == 2


@pytest.mark.long
def test_another_file_system_is_read_and_written_by_its_uri(spark: Any, run_ingest: Ingest, tmp_path: Path) -> None:
    """Hadoop's viewfs, as it mounts a folder: nothing of rstream may take it for the local one, or exchange folders."""
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.mounted.link./data", f"file://{tmp_path}")
    write(tmp_path / "raw" / "a.txt", ["to be", "", "or not"])
    for lines in (2, 3):
        manifest = run_ingest("text", "viewfs://mounted/data/raw", "viewfs://mounted/data/table")
        assert (manifest["status"], manifest["rows"], manifest["quarantined"]) == ("ingested", lines, 1)
        again = run_ingest("text", "viewfs://mounted/data/raw", "viewfs://mounted/data/table")
        assert again["status"] == "unchanged"
        assert query(f"select count(*) from {table(tmp_path / 'table')}") == [(lines,)]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "table"]
        write(tmp_path / "raw" / "b.txt", ["to be"])


@pytest.mark.parametrize(
    ("name", "files", "complaint"),
    [
        (
            "tianchi",
            {"a.csv": ["1;2", "3;4"]},
            r"wrong schema for 'tianchi': none of 2 lines fits .* 5 columns are wanted",
        ),
        ("doh", {"a.csv": ["id,label", "1,DoH"]}, r"the header lacks timestamp, sourceip, destinationip and 2. more"),
        ("tianchi", {"a.csv": []}, r"nothing to ingest: all 1 files are empty"),
        ("tianchi", {"a.zip": ["PK"], "b.zip": ["PK"]}, r"has no files of 'tianchi' .* unpack the zip first"),
    ],
)
def test_a_source_that_does_not_fit_is_refused_and_the_old_data_stays(
    name: str, files: dict[str, list[str]], complaint: str, run_ingest: Ingest, tmp_path: Path
) -> None:
    for file, lines in files.items():
        write(tmp_path / "raw" / file, lines)
    target = tmp_path / "table"
    target.mkdir()
    manifest = f'{{"kind": "ingest", "dataset": "{name}"}}'
    (target / "_manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=complaint):
        run_ingest(name, tmp_path / "raw", target)
    assert (target / "_manifest.json").read_text() == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "table"]


def test_a_directory_with_other_files_is_never_replaced(run_ingest: Ingest, tmp_path: Path, made: Any) -> None:
    write(tmp_path / "raw" / "a.csv", GOOD)
    write(tmp_path / "mine" / "thesis.txt", ["years of work"])
    with pytest.raises(DataError, match="holds files that rstream did not write"):
        run_ingest("tianchi", tmp_path / "raw", tmp_path / "mine")
    with pytest.raises(DataError, match="holds the synth of 'text', which is not replaced"):
        run_ingest("tianchi", tmp_path / "raw", made("text").raw)
