"""The catalogue is complete and refuses what it does not know."""

from __future__ import annotations

import json

import pytest

from rstream.cli import main as cli
from rstream.errors import DataError
from rstream.spark.catalogue import SETS, find
from rstream.spark.recipes import RECIPES


def test_the_sets_are_those_of_the_contract() -> None:
    assert set(SETS) == set(RECIPES) == {"tianchi", "backblaze", "covid_tweets", "doh", "text"}


@pytest.mark.parametrize("name", SETS)
def test_every_entry_says_where_it_comes_from_and_what_is_odd_about_it(name: str) -> None:
    entry = find(name)
    assert entry.origin
    assert entry.licence
    assert entry.quirks
    assert len({column.name for column in entry.columns}) == len(entry.columns)


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(DataError, match="did you mean 'covid_tweets'"):
        find("covid-tweet")


def test_list_shows_all_of_it_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["data", "list", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(entries) == set(SETS)
    assert entries["tianchi"]["columns"][0] == {"name": "user_id", "type": "bigint", "required": True}
    assert cli.run(["data", "list"]) == 0
    assert "licence:" in capsys.readouterr().out
