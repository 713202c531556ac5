"""The ready topologies with rows that are pushed to them, and what those that count words say of themselves."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pyarrow
import pyarrow.parquet
import pytest

from rstream.errors import DataError
from rstream.operators.sources import Ingest
from rstream.testing import run
from rstream.topologies import top_n, top_n_wide, wordcount
from tests.behaviour.test_ingest import running, send

READY = ("wordcount", "top_n", "top_n_wide", "commcount", "debs2024", "twitter", "twitter_complex", "dns")
LINES = ["To be, or not to be:", "that is the question.", "to be"]


@pytest.mark.parametrize("name", READY)
def test_every_ready_topology_takes_rows_that_are_pushed(name: str) -> None:
    module = importlib.import_module(f"rstream.topologies.{name}")
    [source] = [each for each in module.build(table="ingest").build().operators if each.kind == "source"]
    assert isinstance(source.logic, Ingest)
    assert source.logic.columns()


def test_words_of_lines_that_are_pushed_are_counted() -> None:
    with running(wordcount.build(table="ingest")) as found:
        send(found.target, 0, [(line,) for line in LINES])
        assert found.end("top") == {"to": 3, "be": 3, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1}


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table as `rstream data ingest text` leaves it: the lines that were refused stand beside the good ones."""
    for folder, rows in (("data", pyarrow.table({"line": LINES})), ("quarantine", pyarrow.table({"raw": [b"\xff"]}))):
        (tmp_path / folder).mkdir()
        pyarrow.parquet.write_table(rows, tmp_path / folder / "part-00000.parquet")
    return str(tmp_path)


@pytest.mark.parametrize("topology", [wordcount, top_n, top_n_wide], ids=lambda module: module.__name__)
def test_the_truth_of_a_table_is_what_the_topology_gives(topology: ModuleType, table: str) -> None:
    assert sorted(run(topology.build(table=table))["top"]) == sorted(topology.truth(table=table)["top"])


@pytest.mark.parametrize("topology", [wordcount, top_n], ids=lambda module: module.__name__)
def test_the_truth_of_invented_lines_is_what_the_topology_gives(topology: ModuleType) -> None:
    few = {"lines_per_s": 90, "seconds": 1}
    assert sorted(run(topology.build(**few))["top"]) == sorted(topology.truth(**few)["top"])


def test_the_truth_of_a_text_is_what_the_topology_gives(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("\n".join([name, *LINES]))
    text = str(tmp_path / "*.txt")
    assert sorted(run(wordcount.build(text=text))["top"]) == sorted(wordcount.truth(text=text)["top"])


def test_of_rows_that_will_be_pushed_there_is_no_truth() -> None:
    for topology in (wordcount, top_n):
        with pytest.raises(DataError, match="what will be pushed is not known beforehand"):
            topology.truth(table="ingest")
