"""Batches from Spark, without Spark: what was fixed is sent once, whatever is computed again later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest

from rstream.errors import RunError
from rstream.operators import sources
from rstream.runtime.ingest_client import IngestClient, IngestTarget
from rstream.spark.staging import Staging
from tests.behaviour.test_ingest import FIELDS, counting, rows, running, truth

COLUMNS = ("word", "n")


def arrow(values: list[tuple[str, Any]]) -> list[Any]:
    table = pyarrow.table({"n": [n for _, n in values], "word": [word for word, _ in values]})
    return list(table.to_batches(max_chunksize=700))


def test_a_batch_counts_once_however_often_and_in_whatever_order_it_is_computed(tmp_path: Path) -> None:
    parts = [rows(partition, 1500) for partition in range(3)]
    with running(counting(sources.Ingest(FIELDS))) as found:
        staging = Staging(str(tmp_path / "staging"))
        files = [staging.stage(arrow(part)) for part in parts]
        staging.deliver(found.target, 5, files, COLUMNS)
        again = [staging.stage(arrow(part)) for part in (parts[0] + parts[2][::-1], parts[1][::-1])]
        Staging(str(tmp_path / "staging")).deliver(found.target, 5, again, COLUMNS)
        assert found.end() == truth(*parts)
    assert sorted(path.name for path in (tmp_path / "staging").iterdir()) == ["batch-5.json", "state.json"]


def test_a_batch_that_was_sent_in_part_goes_on_as_it_was_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = rows(0, 4000)
    with running(counting(sources.Ingest(FIELDS, lanes=1), parallelism=1)) as found:
        staging = Staging(str(tmp_path))
        files = [staging.stage(arrow(part[:2500])), staging.stage(arrow(part[2500:]))]
        with monkeypatch.context() as patch:
            patch.setattr(IngestClient, "send", sends_until(3))
            with pytest.raises(RunError, match="killed"):
                staging.deliver(found.target, 0, files, COLUMNS)
        staging.abandon(0, files)  # as Spark asks after the failure: what was fixed stays
        other = [staging.stage(arrow(part[::-1]))]
        staging.deliver(found.target, 0, other, COLUMNS)
        staging.deliver(found.target, 1, [staging.stage(arrow(part[:10]))], COLUMNS)
        assert found.end() == truth(part, part[:10])


def sends_until(most: int) -> Any:
    send, sent = IngestClient.send, 0

    def limited(client: IngestClient, values: list[Any]) -> None:
        nonlocal sent
        sent += 1
        if sent > most:
            client.finish()
            raise RunError("killed")
        send(client, values)

    return limited


def test_partitions_without_rows_are_no_files_and_a_batch_of_them_is_done_at_once(tmp_path: Path) -> None:
    with running(counting(sources.Ingest(FIELDS))) as found:
        staging = Staging(str(tmp_path))
        assert staging.stage(iter(())) == staging.stage(arrow([])) == ""
        staging.deliver(found.target, 0, ["", ""], COLUMNS)
        assert found.end() == {}


def test_workers_that_were_met_on_the_way_are_known_later(tmp_path: Path) -> None:
    with running(counting(sources.Ingest(FIELDS))) as found:
        Staging(str(tmp_path)).deliver(found.target, 0, [Staging(str(tmp_path)).stage(arrow(rows(0, 5)))], COLUMNS)
        gone = Staging(str(tmp_path)).known(IngestTarget(("127.0.0.1:9",), found.target.token))
        assert gone.workers == (*found.target.workers, "127.0.0.1:9")


def test_records_that_the_source_refuses_fail_the_batch_and_the_others_are_taken(tmp_path: Path) -> None:
    values: list[Any] = [("a", 1), ("b", None), ("a", 3)]
    with running(counting(sources.Ingest(FIELDS))) as found:
        staging = Staging(str(tmp_path))
        with pytest.raises(
            RunError, match=r"1 records of batch 0 were refused, the others taken: column 'n' wants int"
        ):
            staging.deliver(found.target, 0, [staging.stage(arrow(values))], COLUMNS)
        staging.deliver(found.target, 0, [], COLUMNS)
        assert found.end() == {"a": 2}
