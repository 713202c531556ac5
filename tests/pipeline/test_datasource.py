"""`format("rstream")` on a real Spark: into a topology and out of one, each record once, whatever starts again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rstream import Topology, run, submit
from rstream.operators import sinks, sources
from tests.behaviour.test_ingest import FIELDS, Running, counting, running
from tests.conftest import TwoNodes
from tests.deadline import wait_until

ROWS = 3_000
COLUMNS = ("word", "n")


def frame(spark: Any) -> Any:
    return spark.range(ROWS).selectExpr("concat('word', id % 7) as word", "id as n")


def counts(times: int) -> dict[str, int]:
    return {word: n * times for word, n in Counter(f"word{n % 7}" for n in range(ROWS)).items()}


def options(found: Running) -> dict[str, str]:
    return {"workers": ",".join(found.target.workers), "token": found.target.token}


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after a batch was sent and before Spark wrote that down."""
    newest = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    newest.unlink()
    (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_stream_and_a_write_into_a_topology_count_once_although_a_batch_is_done_again(
    spark: Any, tmp_path: Path
) -> None:
    frame(spark).repartition(2).write.parquet(str(tmp_path / "in"))

    def query(found: Running) -> None:
        read = spark.readStream.schema("word string, n long").option("maxFilesPerTrigger", 1)
        stream = read.parquet(str(tmp_path / "in")).writeStream.format("rstream").options(**options(found))
        started = stream.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
        assert started.awaitTermination(120)

    with running(counting(sources.Ingest(FIELDS))) as found:
        query(found)
        forget_last_commit(tmp_path / "cp")
        query(found)
        assert found.received() == ROWS
        frame(spark).write.format("rstream").options(**options(found)).mode("append").save()
        assert found.end() == counts(2)  # the stream once although its last batch was done again, and the write


def written(folder: Path, first: int) -> None:
    """A topology of two tasks writes another thousand records."""
    topology = Topology("written")
    numbers = topology.source("n", [(f"word{n % 7}", n) for n in range(first, first + 1000)], parallelism=2)
    numbers.sink("out", sinks.Parquet(folder, COLUMNS, commit_records=100), parallelism=2)
    run(topology, local=True)


def test_a_stream_out_of_a_topology_has_each_record_once_and_goes_on_after_a_restart(
    spark: Any, tmp_path: Path
) -> None:
    out, came = tmp_path / "out", tmp_path / "came"

    def query(**trigger: Any) -> Any:
        read = spark.readStream.format("rstream").option("maxFilesPerTrigger", 5).load(str(out))
        return read.writeStream.option("checkpointLocation", str(tmp_path / "cp")).trigger(**trigger).start(str(came))

    written(out, 0)
    assert query(availableNow=True).awaitTermination(120)
    forget_last_commit(tmp_path / "cp")
    written(out, 1000)
    live = query(processingTime="0 seconds")
    live.processAllAvailable()
    written(out, 2000)
    live.processAllAvailable()
    live.stop()
    assert sorted(row.n for row in spark.read.parquet(str(came)).collect()) == list(range(3000))
    at_once = spark.read.format("rstream").load(str(out))
    assert at_once.dtypes == [("word", "string"), ("n", "bigint")]
    assert sorted(row.n for row in at_once.collect()) == list(range(3000))


@pytest.mark.long
def test_a_topology_on_a_cluster_is_written_to_and_read_from_by_its_name(
    spark: Any, two_nodes: TwoNodes, tmp_path: Path
) -> None:
    topology = Topology("named")
    topology.source("rows", sources.Ingest(FIELDS)).sink("out", sinks.JsonLines(tmp_path / "out"))
    handle = submit(topology, workers=2, folder="")
    name = {"topology": "named", "address": two_nodes.address}
    frame(spark).write.format("rstream").options(**name).mode("append").save()

    def came() -> Counter[str]:
        read = spark.read.format("rstream").options(**name, step="out").schema("word string, n long").load()
        return Counter(row.word for row in read.collect())

    wait_until(lambda: came() == counts(1), "all rows to be committed", timeout_s=120)
    handle.kill(drain=True)
    assert handle.wait(120) == "KILLED"
    assert came() == counts(1), "what it has written is found after its end"


def test_what_cannot_be_is_refused_with_the_reason(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="DataError: rstream: nothing is committed in"):
        spark.read.format("rstream").load(str(tmp_path))
    with pytest.raises(PySparkException, match="DataError: no worker of a topology answers"):
        frame(spark).write.format("rstream").options(workers="127.0.0.1:9", token="x").mode("append").save()
