"""What is computed on the driver: headers, slots, dirt counts, the time table; and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from itertools import pairwise

import pytest

import rstream.spark
from rstream.spark.catalogue import SETS, find
from rstream.spark.dirt import GROUP
from rstream.spark.draws import time_table
from rstream.spark.layout import cut
from rstream.spark.parse import layouts
from rstream.spark.recipes import RECIPES


@pytest.mark.parametrize("module", [module.name for module in pkgutil.iter_modules(rstream.spark.__path__)])
def test_the_examples_of_the_docstrings_run(module: str) -> None:
    outcome = doctest.testmod(
        importlib.import_module(f"rstream.spark.{module}"),
        optionflags=doctest.ELLIPSIS,
    )
    assert outcome.failed == 0


def test_files_are_grouped_by_header_and_columns_found_whatever_their_case_and_order() -> None:
    short, long = "Date,Serial_Number,model,failure", '\ufeffmodel,"failure",vault_id,serial_number,date,x'
    first, second = layouts(find("backblaze"), [("a", short), ("b", long), ("c", short)])
    assert first.paths == ("a", "c")
    assert (second.place["event_time"], second.place["vault_id"], second.ignored) == (4, 2, ("x",))
    assert first.missing == second.missing == ()


def test_a_header_that_lacks_a_required_column_is_known() -> None:
    [group] = layouts(find("backblaze"), [("a", "date,model,failure")])
    assert group.missing == ("serial_number",)


def test_a_column_goes_by_its_own_name_before_another_that_only_looks_like_it() -> None:
    header = "date,serial_number,model,failure,s5_reallocated_sector_count,s50_x,s5,smart_5_raw,s9_power_on_hours"
    [group] = layouts(find("backblaze"), [("a", header)])
    assert (group.place["smart_5_raw"], group.place["smart_9_raw"]) == (7, 8)
    assert group.ignored == ("s5_reallocated_sector_count", "s50_x", "s5")


def test_slots_stay_in_order_and_parts_come_out_about_equal() -> None:
    counts = [(slot, 10 + slot % 7) for slot in range(100)]
    dealt = cut(counts, 8)
    parts = [part for _, part in dealt]
    assert parts == sorted(parts)
    assert set(parts) == set(range(8))
    sizes = [sum(rows for (_, rows), (_, part) in zip(counts, dealt, strict=True) if part == p) for p in range(8)]
    assert max(sizes) - min(sizes) < 40


def test_one_huge_slot_is_a_part_of_its_own() -> None:
    assert [part for _, part in cut([(1, 1), (2, 1000), (3, 1)], 4)] == [0, 0, 1]


@pytest.mark.parametrize("name", SETS)
def test_no_group_of_rows_lies_in_two_files(name: str) -> None:
    for rows in (10, 8_000, 1_000_000, 10_000_001):
        recipe = RECIPES[name](rows, 1)
        assert recipe.file_rows % GROUP == 0
        assert len({recipe.file_name(file) for file in range(-(-rows // recipe.file_rows))}) <= 50


def test_the_time_table_has_spikes_that_the_seed_places() -> None:
    one, again, other = (time_table(seed, "2017-11-25", 9, 8) for seed in (1, 1, 2))
    assert one == again != other
    assert one[0] == 1511539200, "midnight in Beijing"
    widths = [after - before for before, after in pairwise(one)]
    assert max(widths) > 20 * min(widths), "a spike's cells are short, the small hours' long"
