"""What the Spark data source does in its processes, without a Spark: refusals, and the rows of a sink's files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rstream import Topology, run
from rstream.errors import RStreamError
from rstream.operators import sinks, sources
from rstream.runtime.embedded import Embedded
from rstream.runtime.ingest_client import IngestTarget
from rstream.spark.by_name import folder_of
from rstream.spark.datasource import RstreamSource
from rstream.spark.output_reader import Folder, StreamReader
from tests.behaviour.test_ingest import FIELDS, counting, running

WORD, N = StructField("word", StringType()), StructField("n", LongType())
BOTH = StructType([N, WORD])


def test_what_a_topology_would_not_take_is_refused_before_anything_is_staged(tmp_path: Path) -> None:
    with running(counting(sources.Ingest(FIELDS))) as found:
        right = {"workers": found.target.workers[0], "token": found.target.token}
        for options, schema, reason in (
            ({}, BOTH, "name where the rows go"),
            ({"workers": right["workers"]}, BOTH, "with a token only"),
            ({**right, "tokenFile": str(tmp_path / "none")}, BOTH, "cannot read the token"),
            ({**right, "token": "guess"}, BOTH, "wrong token"),
            ({**right, "workers": "127.0.0.1:9"}, BOTH, "no worker of a topology answers"),
            ({**right, "step": "other"}, BOTH, "has no ingest source 'other'"),
            (right, StructType([WORD]), "the DataFrame has no column 'n'"),
            (right, StructType([WORD, StructField("n", StringType())]), "the topology wants 'n': int"),
        ):
            with pytest.raises(RStreamError, match=reason):
                RstreamSource(options).writer(schema, overwrite=False)
        with pytest.raises(RStreamError, match="cannot be overwritten"):
            RstreamSource(right).writer(BOTH, overwrite=True)
        with pytest.raises(RStreamError, match="name a checkpointLocation"):
            RstreamSource(right).streamWriter(BOTH, overwrite=False)
        chosen = RstreamSource({**right, "checkpointLocation": str(tmp_path)}).streamWriter(BOTH, False).delivery
        assert (chosen.columns, chosen.staging) == (("word", "n"), f"{tmp_path}/rstream")
        assert isinstance(chosen.target, IngestTarget)
    assert list(tmp_path.iterdir()) == []


def test_a_write_without_a_folder_of_its_own_is_refused_where_executors_do_not_see_the_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = [pyarrow.table({"n": [1, 2], "word": ["a", "b"]}).to_batches()[0]]
    with running(counting(sources.Ingest(FIELDS))) as found:
        options = {"workers": found.target.workers[0], "token": found.target.token}
        here = RstreamSource(options).writer(BOTH, overwrite=False)
        here.commit([here.write(iter(rows))])
        assert list(tmp_path.iterdir()) == [], "its folder is gone"
        elsewhere = RstreamSource(options).writer(BOTH, overwrite=False)
        [folder] = tmp_path.iterdir()
        folder.rmdir()
        with pytest.raises(RStreamError, match=r"an executor runs on another one; .*\.option\('staging', \.\.\.\)"):
            elsewhere.write(iter(rows))
        elsewhere.abort([])
        assert list(tmp_path.iterdir()) == []
        shared = RstreamSource({**options, "staging": f"{tmp_path}/shared"}).writer(BOTH, overwrite=False)
        shared.commit([shared.write(iter(rows))])
        assert found.end() == {"a": 2, "b": 2}


def written(sink: Any, values: list[Any]) -> None:
    topology = Topology("written")
    topology.source("n", values).sink("out", sink)
    run(topology, local=True)


def test_lines_of_json_are_rows_with_a_schema_and_text_without(tmp_path: Path) -> None:
    written(sinks.JsonLines(tmp_path), [("a", 1), {"n": 2, "word": "b"}])
    folder = Folder(str(tmp_path))
    [[name]] = [list(numbers.values()) for numbers in folder.files().values()]
    assert folder.schema() == "value string"
    text = StructType([StructField("value", StringType())])
    assert list(folder.read([name], text)) == [('["a", 1]',), ('{"n": 2, "word": "b"}',)]
    assert list(folder.read([name], StructType([WORD, N]))) == [("a", 1), ("b", 2)]


def test_a_column_without_values_in_one_file_has_the_type_that_was_asked_for(tmp_path: Path) -> None:
    written(sinks.Parquet(tmp_path, ("word", "n")), [("a", None)])
    [batch] = Folder(str(tmp_path)).read(["out-0-00000001.parquet"], BOTH)
    assert batch.to_pylist() == [{"n": None, "word": "a"}]


def test_files_that_were_read_go_only_where_that_is_asked_for(tmp_path: Path) -> None:
    written(sinks.JsonLines(tmp_path, commit_records=1), [1, 2])
    for options, left in (({}, 1), ({"cleanSource": "delete"}, 0)):
        reader = StreamReader(Folder(str(tmp_path)), BOTH, options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert [each.value for each in reader.partitions(start, end)] == [sorted(names(tmp_path))]
        reader.commit(end)
        assert bool(names(tmp_path)) == bool(left)
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end


def test_a_query_for_what_is_available_now_reads_only_that_even_if_it_is_nothing(tmp_path: Path) -> None:
    for available in ([], [1, 2]):
        folder = tmp_path / str(len(available))
        folder.mkdir()
        if available:
            written(sinks.JsonLines(folder), available)
        reader = StreamReader(Folder(str(folder)), BOTH, {})
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        written(sinks.JsonLines(folder), [3])
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert [len(each.value) for each in reader.partitions(start, end)] == [1] * bool(available)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.jsonl")]


def test_the_status_of_a_topology_tells_where_its_file_sinks_write(tmp_path: Path) -> None:
    topology = Topology("told")
    stream = topology.source("n", [1])
    stream.sink("out", sinks.JsonLines(tmp_path / "out"))
    stream.sink("kept")
    host = Embedded(topology.build())
    host.run()
    status = host.status()
    assert folder_of(status, "out") == str(tmp_path / "out")
    assert Folder.of({"path": folder_of(status, "out")}).schema() == "value string"
    assert folder_of(status, "n") == folder_of(status, "kept") == ""
    with pytest.raises(RStreamError, match="topology 'told' has no step 'put'; it has: n, out, kept"):
        folder_of(status, "put")


def test_a_folder_that_is_none_or_empty_is_said_so(tmp_path: Path) -> None:
    for options, reason in (
        ({}, "name the folder"),
        ({"path": str(tmp_path / "none")}, "is no folder"),
        ({"path": str(tmp_path)}, "nothing is committed in .* so give the columns"),
    ):
        with pytest.raises(RStreamError, match=reason):
            RstreamSource(options).schema()
