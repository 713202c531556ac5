"""What the synthesiser says it made is what stands in its files and what the ingest finds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rstream.spark.catalogue import SETS, find
from rstream.spark.location import Location
from rstream.spark.recipes import RECIPES
from rstream.spark.synth import synth
from tests.pipeline.conftest import COUNTS, QUICK_ROWS, MakeSet, quarantined, query, table
from tests.pipeline.judge import judge


@pytest.mark.parametrize("name", SETS)
def test_the_ingest_finds_exactly_what_the_synthesiser_made(name: str, made: MakeSet) -> None:
    one = made(name)
    assert {key: one.ingest[key] for key in COUNTS} == {key: one.synth[key] for key in COUNTS}
    assert one.synth["quarantined_by_reason"]
    [(rows,)] = query(f"select count(*) from {table(one.table)}")
    assert rows == one.synth["rows"]
    assert quarantined(one.table) == one.synth["quarantined_by_reason"]


@pytest.mark.parametrize("name", [name for name in SETS if name != "text"])
def test_the_files_of_a_day_hold_its_events_in_order_and_no_row_twice(name: str, made: MakeSet) -> None:
    rows = table(made(name).table)
    previous = "lag(event_time) over (partition by day order by filename, file_row_number)"
    [(backwards,)] = query(f"select count(*) from (select event_time < {previous} as b from {rows}) where b")
    assert backwards == 0
    offset_h = find(name).utc_offset_h
    [(astray,)] = query(
        f"select count(*) from {rows} where cast(day as date) != cast(event_time + interval {offset_h} hour as date)"
    )
    assert astray == 0
    [(total, different)] = query(
        f"select count(*), (select count(*) from (select distinct * exclude (filename, file_row_number) from {rows}))"
        f" from {rows}"
    )
    assert total == different


def test_plain_python_judges_the_tianchi_lines_the_same_way(made: MakeSet) -> None:
    one = made("tianchi")
    faults, repeats, good = judge(one.raw)
    assert dict(sorted(faults.items())) == one.ingest["quarantined_by_reason"]
    assert repeats == one.ingest["duplicates"] > 0
    fields = "user_id, item_id, category_id, behavior, epoch(event_time)::bigint"
    assert set(query(f"select {fields} from {table(one.table)}")) == {
        (int(user), int(item), int(category), behavior, int(second)) for user, item, category, behavior, second in good
    }


def test_text_keeps_the_order_of_its_lines(made: MakeSet) -> None:
    one = made("text")
    raw = b"".join(file.read_bytes() for file in sorted(one.raw.glob("*.txt"))).split(b"\n")
    wanted = [line.decode() for line in raw if line.strip() and not line.endswith(b"\xc3\x28")]
    got = query(f"select line from {table(one.table)} order by filename, file_row_number")
    assert [line for (line,) in got] == wanted


def test_the_bytes_depend_on_the_seed_and_not_on_the_partitions(spark: Any, made: MakeSet, tmp_path: Path) -> None:
    whole = made("backblaze")
    assert len(whole.synth["files"]) == 4
    for partitions, seed in ((1, 7), (3, 7), (4, 8)):
        target = Location.parse(str(tmp_path / f"{partitions}-{seed}"))
        said = synth(spark, find("backblaze"), target, QUICK_ROWS, seed, partitions)
        assert (said["files"] == whole.synth["files"]) == (seed == 7)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.long) for name in ("covid_tweets", "doh")), "text"]
)
def test_files_of_a_thousand_rows_are_the_same_bytes_from_one_task_and_from_three(
    name: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are of 250,000 rows otherwise, which these sets have only when they are large."""
    recipe = RECIPES[name]
    monkeypatch.setitem(RECIPES, name, lambda rows, seed: replace(recipe(rows, seed), file_rows=1_000))
    one, three = (
        synth(spark, find(name), Location.parse(str(tmp_path / f"{n}")), 3_000, 5, n)["files"] for n in (1, 3)
    )
    assert len(one) == 3
    assert one == three


def test_the_manifest_has_the_checksums_of_the_files(made: MakeSet) -> None:
    one = made("covid_tweets")
    for listed, root, key in ((one.synth["files"], one.raw, "name"), (one.ingest["data"], one.table, "path")):
        for entry in listed:
            content = (root / entry[key]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == entry["sha256"]
            assert len(content) == entry["bytes"]
    assert json.loads((one.table / "_manifest.json").read_text()) == {
        key: value for key, value in one.ingest.items() if key != "status"
    }


def test_keys_are_skewed_and_the_day_has_a_rhythm(made: MakeSet) -> None:
    rows = table(made("tianchi").table)
    items = Counter(dict(query(f"select item_id, count(*) from {rows} group by item_id")))
    ranked = [count for _, count in items.most_common()]
    assert ranked[0] > 5 * ranked[9] > 0, "the first item is far ahead of the tenth"
    assert len(ranked) > 1_000, "and there is a long tail"
    hours = query(f"select hour(event_time + interval 8 hour) as h, count(*) from {rows} group by h order by h")
    by_hour = [count for _, count in hours]
    assert max(by_hour) > 3 * min(by_hour)


def test_a_set_smaller_than_a_thousand_rows_is_clean(spark: Any, tmp_path: Path) -> None:
    said = synth(spark, find("text"), Location.parse(str(tmp_path / "few")), 10, 1)
    assert (said["lines"], said["rows"], said["quarantined"]) == (10, 10, 0)
    assert len((tmp_path / "few" / "lines-00000.txt").read_text().splitlines()) == 10
